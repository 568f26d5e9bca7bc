// 07_loss: cross-entropy with label smoothing and z-loss.

// --- KERNEL: cross_entropy ---
// With α smoothing, β z-loss, t the target of a row, p = exp(l − lse):
//   loss = lse − (1−α)·l_t − α·mean(l) + β·lse²
//   dl   = [p − (1−α)·onehot − α/V + 2β·lse·p]·grad_scale, in l's place
// logits (R, V), targets (R), loss (R). A row whose target is ignore has loss and
// gradient 0; one whose target is outside of [0, V) has loss NaN. The caller cuts
// the rows of a step into chunks, so V = 64k with thousands of rows fits.
// One workgroup of WG threads per row, 1-D dispatch over R; a thread takes every
// WG-th logit, four at a time. The first pass keeps a running maximum and sum.
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
    let l = lse - (1.0 - dims.alpha) * l_hit - dims.alpha * mean + dims.beta * lse * lse;
    loss[row] = select(bitcast<f32>(0x7fc00000u | (dims.v >> 31u)), l, inside);
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
