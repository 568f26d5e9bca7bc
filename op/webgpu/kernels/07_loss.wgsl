// 07_loss: cross-entropy with label smoothing and z-loss.

struct LossDims {
  rows: u32,
  v: u32,
  ignore: i32,
  grad: u32,        // 1: write the gradient
  alpha: f32,
  beta: f32,
}
struct LossScale {
  grad_scale: f32,
}

// loss_of is the loss of a row whose target has the logit l, or NaN if it is not inside.
fn loss_of(l: f32, lse: f32, mean: f32, inside: bool) -> f32 {
  let l_row = lse - (1.0 - dims.alpha) * l - dims.alpha * mean + dims.beta * lse * lse;
  return select(loss_nan(), l_row, inside);
}

// loss_nan is NaN; from dims, since a constant expression must not be one.
fn loss_nan() -> f32 {
  return bitcast<f32>(0x7fc00000u | (dims.v >> 31u));
}

// loss_gain is what a probability counts for in the gradient.
fn loss_gain(lse: f32) -> f32 {
  return (1.0 + 2.0 * dims.beta * lse) * scale.grad_scale;
}

// minus_at is what goes off the gradient of the vec4 with element hit.
fn minus_at(hit: u32) -> vec4<f32> {
  let minus = (1.0 - dims.alpha) * scale.grad_scale;
  return select(vec4<f32>(), vec4<f32>(minus), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(hit % 4u));
}

// --- KERNEL: cross_entropy ---
// With α smoothing, β z-loss, t the target of a row, p = exp(l − lse):
//   loss = lse − (1−α)·l_t − α·mean(l) + β·lse²
//   dl   = [p − (1−α)·onehot − α/V + 2β·lse·p]·grad_scale, in l's place
// logits (R, V), targets (R), loss (R). A row whose target is ignore has loss and
// gradient 0; one whose target is outside of [0, V) has loss NaN. The caller cuts
// the rows of a step into chunks, so V = 64k with thousands of rows fits.
// One workgroup of WG threads per row, 1-D dispatch over R; a thread takes every
// WG-th logit, four at a time. The first pass keeps a running maximum and sum. With
// LSE it also keeps lse (R), for cross_entropy_to16.
const LSE: bool = false;
// #if LSE
@group(0) @binding(5) var<storage, read_write> row_lse: array<f32>;
// #endif
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<uniform> dims: LossDims;
@group(0) @binding(4) var<uniform> scale: LossScale;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = flat_wg(wid, nwg);
  if (row >= dims.rows) {
    return;
  }
  let base = row * dims.v;
  let target_ = targets[row];
  if (target_ == dims.ignore) {
    if (lid == 0u) {
      loss[row] = 0.0;
    }
    if (dims.grad != 0u) {
      for (var i = lid; i < dims.v; i += WG) {
        logits[base + i] = 0.0;
      }
    }
    return;
  }
  let inside = target_ >= 0 && u32(target_) < dims.v;
  let hit = select(0u, u32(target_), inside);
  let l_hit = logits[base + hit];   // before the gradient takes its place

  var top = NEG_INF;
  var sum = 0.0;
  var total = 0.0;   // of the logits themselves, for their mean
  for (var i = lid; i < dims.v; i += 4u * WG) {
    var x = vec4<f32>(logits[base + i], NEG_INF, NEG_INF, NEG_INF);
    var add = x.x;
    if (i + WG < dims.v) {
      x.y = logits[base + i + WG];
      add += x.y;
    }
    if (i + 2u * WG < dims.v) {
      x.z = logits[base + i + 2u * WG];
      add += x.z;
    }
    if (i + 3u * WG < dims.v) {
      x.w = logits[base + i + 3u * WG];
      add += x.w;
    }
    total += add;
    let high = max(max(top, max(x.x, x.y)), max(x.z, x.w));
    if (high > top) {
      sum *= exp(top - high);
      top = high;
    }
    let e = exp(x - top);
    sum += (e.x + e.y) + (e.z + e.w);
  }
  let row_top = wg_reduce_max(top, lid);
  let row_sum = wg_reduce_sum(sum * exp(top - row_top), lid);
  let lse = row_top + log(row_sum);
  var mean = 0.0;
  if (dims.alpha > 0.0) {
    mean = wg_reduce_sum(total, lid) / f32(dims.v);
  }
  if (lid == 0u) {
    loss[row] = loss_of(l_hit, lse, mean, inside);
    // #if LSE
    row_lse[row] = lse;
    // #endif
  }
  if (dims.grad == 0u) {
    return;
  }
  let each = dims.alpha / f32(dims.v);
  let p_factor = 1.0 + 2.0 * dims.beta * lse;
  let minus = 1.0 - dims.alpha;
  var i = lid;
  while (i + 3u * WG < dims.v) {   // four loads at a time
    let l = vec4<f32>(logits[base + i], logits[base + i + WG], logits[base + i + 2u * WG], logits[base + i + 3u * WG]);
    let at = vec4<u32>(i, i + WG, i + 2u * WG, i + 3u * WG);
    var d = exp(l - lse) * p_factor - each;
    d -= select(vec4<f32>(0.0), vec4<f32>(minus), at == vec4<u32>(select(0xffffffffu, hit, inside)));
    d *= scale.grad_scale;
    logits[base + i] = d.x;
    logits[base + i + WG] = d.y;
    logits[base + i + 2u * WG] = d.z;
    logits[base + i + 3u * WG] = d.w;
    i += 4u * WG;
  }
  while (i < dims.v) {
    var d = exp(logits[base + i] - lse) * p_factor - each;
    if (inside && i == hit) {
      d -= minus;
    }
    logits[base + i] = d * scale.grad_scale;
    i += WG;
  }
}

// --- KERNEL: cross_entropy_to16 ---
// The gradient of cross_entropy for any V, in pairs of 16-bit floats: dlogits (R, V)
// from logits and from lse (R), which cross_entropy has kept. One pair per thread,
// 1-D dispatch over ceil(R·V/2); with an odd R·V the other half of the last word
// stays as it is.
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read> row_lse: array<f32>;
@group(0) @binding(3) var<storage, read_write> dlogits: array<u32>;
@group(0) @binding(4) var<uniform> dims: LossDims;
@group(0) @binding(5) var<uniform> scale: LossScale;

// d_logit is the gradient of element i.
fn d_logit(i: u32) -> f32 {
  let row = i / dims.v;
  let target_ = targets[row];
  if (target_ == dims.ignore) {
    return 0.0;
  }
  let lse = row_lse[row];
  var d = exp(logits[i] - lse) * (1.0 + 2.0 * dims.beta * lse) - dims.alpha / f32(dims.v);
  if (target_ >= 0 && u32(target_) == i - row * dims.v) {
    d -= 1.0 - dims.alpha;
  }
  return d * scale.grad_scale;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  let n = dims.rows * dims.v;
  if (2u * i + 1u < n) {
    dlogits[i] = pair(d_logit(2u * i), d_logit(2u * i + 1u));
  } else if (2u * i < n) {
    dlogits[i] = pair(d_logit(2u * i), 0.0) | (dlogits[i] & 0xffff0000u);
  }
}

// --- KERNEL: cross_entropy_row ---
// As cross_entropy with a gradient, for V a multiple of 4, reading the logits once: a
// workgroup keeps a whole row in registers, and asks for each vec4 of its next row as
// it writes the one whose place that takes, so that memory has work most of the time.
// With a thread's own maximum m and e = exp(l − m) a row needs one reduction, of
// (m, Σe):
//   dl = [e·exp(m − max)/Σ·(1 + 2β·lse) − α/V − (1−α)·onehot]·grad_scale
// With OUT16 the gradient goes to dlogits (R, V), in pairs of 16-bit floats, and the
// logits are only read. A row whose lse is no finite number has a gradient of NaN.
// The launcher sets WG and QUADS = ceil(V/4 / WG). Any number of workgroups along x;
// workgroup i takes rows i, i + workgroups, …; a thread takes every WG-th vec4 of one.
const QUADS: u32 = 8u;
const OUT16: bool = false;
// #if OUT16
@group(0) @binding(0) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> dlogits: array<vec2<u32>>;
@group(0) @binding(4) var<uniform> dims: LossDims;
@group(0) @binding(5) var<uniform> scale: LossScale;

fn put(i: u32, d: vec4<f32>) {
  dlogits[i] = quad_number(d);
}

fn put_nan(i: u32) {
  dlogits[i] = vec2<u32>(0x7fff7fffu);
}
// #else
@group(0) @binding(0) var<storage, read_write> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<uniform> dims: LossDims;
@group(0) @binding(4) var<uniform> scale: LossScale;

fn put(i: u32, d: vec4<f32>) {
  logits[i] = d;
}

fn put_nan(i: u32) {
  logits[i] = vec4<f32>(loss_nan());
}
// #endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  var row = wid.x;
  if (row >= dims.rows) {
    return;
  }
  let v4 = dims.v / 4u;
  let last = lid + (QUADS - 1u) * WG < v4;   // the others are inside of the row
  var e = array<vec4<f32>, QUADS>();         // the logits, and then e
  for (var k = 0u; k < QUADS; k++) { // unroll
    e[k] = vec4<f32>(NEG_INF);
    if (k + 1u < QUADS || last) {
      e[k] = logits[row * v4 + lid + k * WG];
    }
  }
  var target_ = targets[row];
  loop {
    let next = row + nwg.x;
    let more = next < dims.rows;
    let ignored = target_ == dims.ignore;
    let inside = target_ >= 0 && u32(target_) < dims.v;
    let hit = select(0u, u32(target_), inside);
    let near = logits[row * v4 + hit / 4u];   // before the gradient takes its place
    var mean = 0.0;
    if (dims.alpha > 0.0) {
      var total4 = vec4<f32>();
      for (var k = 0u; k < QUADS; k++) { // unroll
        if (k + 1u < QUADS || last) {
          total4 += e[k];
        }
      }
      mean = wg_reduce_sum((total4.x + total4.y) + (total4.z + total4.w), lid) / f32(dims.v);
    }
    var top4 = vec4<f32>(NEG_INF);
    for (var k = 0u; k < QUADS; k++) { // unroll
      top4 = max(top4, e[k]);
    }
    let top = max(max(top4.x, top4.y), max(top4.z, top4.w));
    var sum4 = vec4<f32>();
    for (var k = 0u; k < QUADS; k++) { // unroll
      e[k] = exp(e[k] - top);
      sum4 += e[k];
    }
    let whole = wg_reduce_exp(vec2<f32>(top, (sum4.x + sum4.y) + (sum4.z + sum4.w)), lid);
    let lse = whole.x + log(whole.y);
    if (lid == 0u) {
      loss[row] = select(loss_of(near[hit % 4u], lse, mean, inside), 0.0, ignored);
    }
    if (more) {
      target_ = targets[next];
    }
    let now = row * v4 + lid;
    let then = next * v4 + lid;
    if (is_finite(lse) && !ignored) {
      let factor = exp(top - whole.x) / whole.y * loss_gain(lse);
      let each = dims.alpha / f32(dims.v) * scale.grad_scale;
      for (var k = 0u; k < QUADS; k++) { // unroll
        if (k + 1u < QUADS || last) {
          put(now + k * WG, e[k] * factor - each);
          if (more) {
            e[k] = logits[then + k * WG];
          }
        }
      }
      if (inside && lid == hit / 4u % WG) {
        put(row * v4 + hit / 4u, exp(near - lse) * loss_gain(lse) - each - minus_at(hit));
      }
    } else {
      for (var k = 0u; k < QUADS; k++) { // unroll
        if (k + 1u < QUADS || last) {
          if (ignored) {
            put(now + k * WG, vec4<f32>());
          } else {
            put_nan(now + k * WG);
          }
          if (more) {
            e[k] = logits[then + k * WG];
          }
        }
      }
    }
    if (!last) {
      e[QUADS - 1u] = vec4<f32>(NEG_INF);
    }
    if (!more) {
      break;
    }
    row = next;
  }
}

// --- KERNEL: cross_entropy_vec ---
// As cross_entropy for V a multiple of 4, for rows too long for cross_entropy_row. A
// workgroup does row after row, so that there are only as many rows at work as the
// launcher starts workgroups: what the first pass read is then still near when the
// second pass asks for it. A thread takes every WG-th vec4; it keeps the first KEEP of
// them in registers, and the second pass goes backwards through the others, the latest
// first. OUT16 and rows without a finite lse are as in cross_entropy_row.
// Any number of workgroups along x; workgroup i takes rows i, i + workgroups, …
const KEEP: u32 = 4u;
const BATCH: u32 = 4u;   // vec4s of a thread on their way at a time
const OUT16: bool = false;
// #if OUT16
@group(0) @binding(0) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> dlogits: array<vec2<u32>>;
@group(0) @binding(4) var<uniform> dims: LossDims;
@group(0) @binding(5) var<uniform> scale: LossScale;

fn put(i: u32, d: vec4<f32>) {
  dlogits[i] = quad_number(d);
}

fn put_nan(i: u32) {
  dlogits[i] = vec2<u32>(0x7fff7fffu);
}
// #else
@group(0) @binding(0) var<storage, read_write> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<uniform> dims: LossDims;
@group(0) @binding(4) var<uniform> scale: LossScale;

fn put(i: u32, d: vec4<f32>) {
  logits[i] = d;
}

fn put_nan(i: u32) {
  logits[i] = vec4<f32>(loss_nan());
}
// #endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  for (var row = wid.x; row < dims.rows; row += nwg.x) {
    if (targets[row] == dims.ignore) {
      ignored(row, lid);
    } else {
      counted(row, lid);
    }
  }
}

fn ignored(row: u32, lid: u32) {
  if (lid == 0u) {
    loss[row] = 0.0;
  }
  if (dims.grad != 0u) {
    let v4 = dims.v / 4u;
    for (var i = lid; i < v4; i += WG) {
      put(row * v4 + i, vec4<f32>());
    }
  }
}

fn highest(x: vec4<f32>) -> f32 {
  return max(max(x.x, x.y), max(x.z, x.w));
}

fn counted(row: u32, lid: u32) {
  let v4 = dims.v / 4u;
  let base = row * v4;
  let target_ = targets[row];
  let inside = target_ >= 0 && u32(target_) < dims.v;
  let hit = select(0u, u32(target_), inside);
  let near = logits[base + hit / 4u];   // before the gradient takes its place

  var kept = array<vec4<f32>, KEEP>();
  var top4 = vec4<f32>(NEG_INF);
  var sum4 = vec4<f32>();
  var total4 = vec4<f32>();   // of the logits themselves, for their mean
  for (var k = 0u; k < KEEP; k++) { // unroll
    kept[k] = vec4<f32>(NEG_INF);
    if (lid + k * WG < v4) {
      kept[k] = logits[base + lid + k * WG];
      total4 += kept[k];
    }
  }
  for (var k = 0u; k < KEEP; k++) { // unroll
    top4 = max(top4, kept[k]);
  }
  var top = highest(top4);
  for (var k = 0u; k < KEEP; k++) { // unroll
    sum4 += exp(kept[k] - top);
  }
  for (var first = KEEP * WG; first < v4; first += BATCH * WG) {
    var l = array<vec4<f32>, BATCH>();
    for (var k = 0u; k < BATCH; k++) { // unroll
      l[k] = vec4<f32>(NEG_INF);
      if (first + lid + k * WG < v4) {
        l[k] = logits[base + first + lid + k * WG];
        total4 += l[k];
      }
    }
    top4 = l[0];
    for (var k = 0u; k < BATCH; k++) { // unroll
      top4 = max(top4, l[k]);
    }
    let high = highest(top4);
    if (high > top) {
      sum4 *= exp(top - high);
      top = high;
    }
    for (var k = 0u; k < BATCH; k++) { // unroll
      sum4 += exp(l[k] - top);
    }
  }
  let row_top = wg_reduce_max(top, lid);
  let row_sum = wg_reduce_sum(((sum4.x + sum4.y) + (sum4.z + sum4.w)) * exp(top - row_top), lid);
  let lse = row_top + log(row_sum);
  var mean = 0.0;
  if (dims.alpha > 0.0) {
    mean = wg_reduce_sum((total4.x + total4.y) + (total4.z + total4.w), lid) / f32(dims.v);
  }
  if (lid == 0u) {
    loss[row] = loss_of(near[hit % 4u], lse, mean, inside);
  }
  if (dims.grad == 0u) {
    return;
  }
  if (!is_finite(lse)) {
    for (var i = lid; i < v4; i += WG) {
      put_nan(base + i);
    }
    return;
  }
  let gain = loss_gain(lse);
  let each = dims.alpha / f32(dims.v) * scale.grad_scale;
  let step = BATCH * WG;
  let batches = (max(v4, KEEP * WG) - KEEP * WG + step - 1u) / step;
  for (var n = batches; n > 0u; n--) {
    let at = KEEP * WG + (n - 1u) * step + lid;
    var l = array<vec4<f32>, BATCH>();
    for (var k = 0u; k < BATCH; k++) { // unroll
      if (at + k * WG < v4) {
        l[k] = logits[base + at + k * WG];
      }
    }
    for (var k = 0u; k < BATCH; k++) { // unroll
      if (at + k * WG < v4) {
        put(base + at + k * WG, exp(l[k] - lse) * gain - each);
      }
    }
  }
  for (var k = 0u; k < KEEP; k++) { // unroll
    if (lid + k * WG < v4) {
      put(base + lid + k * WG, exp(kept[k] - lse) * gain - each);
    }
  }
  if (inside && lid == hit / 4u % WG) {
    put(base + hit / 4u, exp(near - lse) * gain - each - minus_at(hit));
  }
}
