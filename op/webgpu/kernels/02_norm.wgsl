// 02_norm: RMSNorm (Zhang and Sennrich, 2019), forward and backward.
struct NormDims {
  n: u32,   // N rows
  c: u32,   // C channels
}
struct NormParams {
  eps: f32,
}

// The forms named _vec are for rows of whole vec4s that fit into the registers of
// their threads. The launcher sets the shape:
const LANES: u32 = 32u;      // threads of a row, a power of two from 4 to 64, or WG
const THREADS: u32 = 128u;   // threads of a workgroup: LANES times the rows it does at once
const QUADS: u32 = 6u;       // vec4s of a thread: at least C/(4·LANES)
const FULL: bool = false;    // C is 4·LANES·QUADS: there are no bounds to check

var<workgroup> row_parts: array<f32, 2u * THREADS>;

// row_sum adds up x over the LANES threads of a row, in one order on all devices.
// All threads of the workgroup call it; turns in a row alternate between two
// halves of row_parts, so one barrier is enough.
fn row_sum(x: f32, lid: u32, turn: u32) -> f32 {
  if (LANES == WG) {
    return wg_reduce_sum(x, lid);
  }
  let half = (turn & 1u) * THREADS;
  row_parts[half + lid] = x;
  workgroupBarrier();
  let first = half + lid / LANES * LANES;
  var sum = vec4<f32>();
  for (var i = 0u; i < LANES; i += 4u) {
    let at = first + i;
    sum += vec4<f32>(row_parts[at], row_parts[at + 1u], row_parts[at + 2u], row_parts[at + 3u]);
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// --- KERNEL: rmsnorm_forward ---
// y = x·rms_inv·w with rms_inv = (mean x² + eps)^−½ of each row.
// x (N, C), w (C), y (N, C), rms_out (N): rms_inv, kept for the backward pass.
// One workgroup of WG threads per row, 1-D dispatch over N; a thread takes every
// WG-th channel.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> rms_out: array<f32>;
@group(0) @binding(4) var<uniform> dims: NormDims;
@group(0) @binding(5) var<uniform> params: NormParams;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = flat_wg(wid, nwg);
  if (row >= dims.n) {
    return;
  }
  let base = row * dims.c;
  var squares = 0.0;
  var mine = vec4<f32>();   // the row stays in registers while it fits
  if (dims.c <= 4u * WG) {
    if (lid < dims.c) { mine.x = x[base + lid]; }
    if (lid + WG < dims.c) { mine.y = x[base + lid + WG]; }
    if (lid + 2u * WG < dims.c) { mine.z = x[base + lid + 2u * WG]; }
    if (lid + 3u * WG < dims.c) { mine.w = x[base + lid + 3u * WG]; }
    squares = dot(mine, mine);
  } else {
    for (var c = lid; c < dims.c; c += WG) {
      let v = x[base + c];
      squares += v * v;
    }
  }
  let mean = wg_reduce_sum(squares, lid) / f32(dims.c);
  let rms_inv = 1.0 / sqrt(mean + params.eps);
  if (dims.c <= 4u * WG) {
    if (lid < dims.c) { y[base + lid] = mine.x * rms_inv * w[lid]; }
    if (lid + WG < dims.c) { y[base + lid + WG] = mine.y * rms_inv * w[lid + WG]; }
    if (lid + 2u * WG < dims.c) { y[base + lid + 2u * WG] = mine.z * rms_inv * w[lid + 2u * WG]; }
    if (lid + 3u * WG < dims.c) { y[base + lid + 3u * WG] = mine.w * rms_inv * w[lid + 3u * WG]; }
  } else {
    for (var c = lid; c < dims.c; c += WG) {
      y[base + c] = x[base + c] * rms_inv * w[c];
    }
  }
  if (lid == 0u) {
    rms_out[row] = rms_inv;
  }
}

// --- KERNEL: rmsnorm_forward_w16 ---
// As rmsnorm_forward with w in f16: cast on load, computed and stored in f32.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f16>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> rms_out: array<f32>;
@group(0) @binding(4) var<uniform> dims: NormDims;
@group(0) @binding(5) var<uniform> params: NormParams;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = flat_wg(wid, nwg);
  if (row >= dims.n) {
    return;
  }
  let base = row * dims.c;
  var squares = 0.0;
  var mine = vec4<f32>();   // the row stays in registers while it fits
  if (dims.c <= 4u * WG) {
    if (lid < dims.c) { mine.x = x[base + lid]; }
    if (lid + WG < dims.c) { mine.y = x[base + lid + WG]; }
    if (lid + 2u * WG < dims.c) { mine.z = x[base + lid + 2u * WG]; }
    if (lid + 3u * WG < dims.c) { mine.w = x[base + lid + 3u * WG]; }
    squares = dot(mine, mine);
  } else {
    for (var c = lid; c < dims.c; c += WG) {
      let v = x[base + c];
      squares += v * v;
    }
  }
  let mean = wg_reduce_sum(squares, lid) / f32(dims.c);
  let rms_inv = 1.0 / sqrt(mean + params.eps);
  if (dims.c <= 4u * WG) {
    if (lid < dims.c) { y[base + lid] = mine.x * rms_inv * f32(w[lid]); }
    if (lid + WG < dims.c) { y[base + lid + WG] = mine.y * rms_inv * f32(w[lid + WG]); }
    if (lid + 2u * WG < dims.c) { y[base + lid + 2u * WG] = mine.z * rms_inv * f32(w[lid + 2u * WG]); }
    if (lid + 3u * WG < dims.c) { y[base + lid + 3u * WG] = mine.w * rms_inv * f32(w[lid + 3u * WG]); }
  } else {
    for (var c = lid; c < dims.c; c += WG) {
      y[base + c] = x[base + c] * rms_inv * f32(w[c]);
    }
  }
  if (lid == 0u) {
    rms_out[row] = rms_inv;
  }
}

// --- KERNEL: rmsnorm_forward_vec ---
// As rmsnorm_forward, and with W16 as rmsnorm_forward_w16, for rows in registers;
// with OUT16 y is in 16 bits. 1-D dispatch over ceil(N·LANES/THREADS); a thread
// takes every LANES-th vec4.
const W16: bool = false;
const OUT16: bool = false;
// #if W16
alias WT = f16;
// #else
alias WT = f32;
// #endif
// #if OUT16
alias YT = vec2<u32>;
fn stored(v: vec4<f32>) -> YT {
  return quad(v);
}
// #else
alias YT = vec4<f32>;
fn stored(v: vec4<f32>) -> YT {
  return v;
}
// #endif
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<WT>>;
@group(0) @binding(2) var<storage, read_write> y: array<YT>;
@group(0) @binding(3) var<storage, read_write> rms_out: array<f32>;
@group(0) @binding(4) var<uniform> dims: NormDims;
@group(0) @binding(5) var<uniform> params: NormParams;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = flat_wg(wid, nwg) * (THREADS / LANES) + lid / LANES;
  let lane = lid % LANES;
  let c4 = dims.c / 4u;
  let on = row < dims.n;
  let base = select(0u, row, on) * c4 + lane;
  var mine = array<vec4<f32>, QUADS>();
  for (var k = 0u; k < QUADS; k++) { // unroll
    if (FULL || lane + k * LANES < c4) {
      mine[k] = x[base + k * LANES];
    }
  }
  var squares = vec4<f32>();
  for (var k = 0u; k < QUADS; k++) { // unroll
    squares += mine[k] * mine[k];
  }
  let mean = row_sum((squares.x + squares.y) + (squares.z + squares.w), lid, 0u) / f32(dims.c);
  let rms_inv = 1.0 / sqrt(mean + params.eps);
  if (!on) {
    return;
  }
  for (var k = 0u; k < QUADS; k++) { // unroll
    if (FULL || lane + k * LANES < c4) {
      y[base + k * LANES] = stored(mine[k] * rms_inv * vec4<f32>(w[lane + k * LANES]));
    }
  }
  if (lane == 0u) {
    rms_out[row] = rms_inv;
  }
}

// --- KERNEL: rmsnorm_backward ---
// Undoes y = x·rms_inv·w. With A = Σ_c w·x·dy of a row:
//   dx = w·dy·rms_inv − x·rms_inv³·A/C,  dw += Σ_rows x·rms_inv·dy.
// x, dy, dx (N, C), w (C), rms (N), dw: (C) when one workgroup does all rows and
// adds to it; otherwise a partial-sum buffer (workgroups, C), written, that
// rmsnorm_backward_dw adds up in order; not touched without SUM_DW.
// Any number of workgroups along x; workgroup i takes rows i, i + workgroups, …
// A thread takes every WG-th channel.
const ADD_DX: bool = false;   // the launcher's variant: dx += instead of dx =
const SUM_DW: bool = true;    // and whether dw is wanted
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read> rms: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<f32>;
@group(0) @binding(5) var<storage, read_write> dw: array<f32>;
@group(0) @binding(6) var<uniform> dims: NormDims;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  if (dims.c <= 4u * WG) {
    short_rows(wid.x, nwg.x, lid);
    return;
  }
  if (SUM_DW) {
    for (var c = lid; c < dims.c; c += WG) {
      var sum = 0.0;
      for (var row = wid.x; row < dims.n; row += nwg.x) {
        let i = row * dims.c + c;
        sum += x[i] * rms[row] * dy[i];
      }
      put_dw(wid.x, nwg.x, c, sum);
    }
  }
  for (var row = wid.x; row < dims.n; row += nwg.x) {
    let base = row * dims.c;
    var part = 0.0;
    for (var c = lid; c < dims.c; c += WG) {
      part += w[c] * x[base + c] * dy[base + c];
    }
    let r = rms[row];
    let k = r * wg_reduce_sum(part, lid) / f32(dims.c);   // rms_inv³ alone may overflow
    for (var c = lid; c < dims.c; c += WG) {
      put_dx(base + c, r * (w[c] * dy[base + c] - x[base + c] * r * k));
    }
  }
}

fn put_dw(group: u32, groups: u32, c: u32, sum: f32) {
  if (!SUM_DW || c >= dims.c) {
    return;
  }
  if (groups == 1u) {
    dw[c] += sum;
  } else {
    dw[group * dims.c + c] = sum;
  }
}

fn put_dx(i: u32, d: f32) {
  if (ADD_DX) {
    dx[i] += d;
  } else {
    dx[i] = d;
  }
}

// short_rows does the same for C ≤ 4·WG with x, w, dy and dw's sums in registers.
fn short_rows(group: u32, groups: u32, lid: u32) {
  let c = vec4<u32>(lid, lid + WG, lid + 2u * WG, lid + 3u * WG);
  let on = c < vec4<u32>(dims.c);
  var w4 = vec4<f32>();
  if (on.x) { w4.x = w[c.x]; }
  if (on.y) { w4.y = w[c.y]; }
  if (on.z) { w4.z = w[c.z]; }
  if (on.w) { w4.w = w[c.w]; }
  var sum = vec4<f32>();
  for (var row = group; row < dims.n; row += groups) {
    let base = row * dims.c;
    var x4 = vec4<f32>();
    var dy4 = vec4<f32>();
    if (on.x) { x4.x = x[base + c.x]; dy4.x = dy[base + c.x]; }
    if (on.y) { x4.y = x[base + c.y]; dy4.y = dy[base + c.y]; }
    if (on.z) { x4.z = x[base + c.z]; dy4.z = dy[base + c.z]; }
    if (on.w) { x4.w = x[base + c.w]; dy4.w = dy[base + c.w]; }
    let r = rms[row];
    let xr = x4 * r;
    let g = w4 * dy4;
    let k = wg_reduce_sum(dot(xr, g), lid) / f32(dims.c);
    let d = r * (g - xr * k);
    sum += xr * dy4;
    if (on.x) { put_dx(base + c.x, d.x); }
    if (on.y) { put_dx(base + c.y, d.y); }
    if (on.z) { put_dx(base + c.z, d.z); }
    if (on.w) { put_dx(base + c.w, d.w); }
  }
  put_dw(group, groups, c.x, sum.x);
  put_dw(group, groups, c.y, sum.y);
  put_dw(group, groups, c.z, sum.z);
  put_dw(group, groups, c.w, sum.w);
}

// --- KERNEL: rmsnorm_backward_vec ---
// As rmsnorm_backward for rows in registers. Any number of workgroups along x; a
// workgroup does THREADS/LANES rows at once, and a thread every LANES-th vec4. With
// COPY16 dx_copy (N, C) gets the final dx in 16 bits.
const ADD_DX: bool = false;
const SUM_DW: bool = true;
const COPY16: bool = false;
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> rms: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> dw: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> dims: NormDims;
// #if COPY16
@group(0) @binding(7) var<storage, read_write> dx_copy: array<vec2<u32>>;
// #endif

var<workgroup> row_sums: array<vec4<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let rows = THREADS / LANES;
  let lane = lid % LANES;
  let c4 = dims.c / 4u;
  var gain = array<vec4<f32>, QUADS>();
  var sums = array<vec4<f32>, QUADS>();   // of x·rms_inv·dy
  for (var k = 0u; k < QUADS; k++) { // unroll
    if (FULL || lane + k * LANES < c4) {
      gain[k] = w[lane + k * LANES];
    }
  }
  var turn = 0u;
  for (var first = wid.x * rows; first < dims.n; first += nwg.x * rows) {
    let row = first + lid / LANES;
    let on = row < dims.n;
    let at = select(0u, row, on);
    let base = at * c4 + lane;
    var xr = array<vec4<f32>, QUADS>();
    var g = array<vec4<f32>, QUADS>();     // dy
    var old = array<vec4<f32>, QUADS>();   // dx, which is on its way together with the others
    for (var k = 0u; k < QUADS; k++) { // unroll
      if (FULL || lane + k * LANES < c4) {
        xr[k] = x[base + k * LANES];
        g[k] = dy[base + k * LANES];
        if (ADD_DX) {
          old[k] = dx[base + k * LANES];
        }
      }
    }
    let r = select(0.0, rms[at], on);   // 0 keeps the surplus rows out of the sums
    var dots = vec4<f32>();
    for (var k = 0u; k < QUADS; k++) { // unroll
      xr[k] *= r;
      sums[k] += xr[k] * g[k];
      g[k] *= gain[k];
      dots += xr[k] * g[k];
    }
    let mean = row_sum((dots.x + dots.y) + (dots.z + dots.w), lid, turn) / f32(dims.c);
    turn += 1u;
    if (on) {
      for (var k = 0u; k < QUADS; k++) { // unroll
        if (FULL || lane + k * LANES < c4) {
          let d = old[k] + r * (g[k] - xr[k] * mean);
          dx[base + k * LANES] = d;
          // #if COPY16
          dx_copy[base + k * LANES] = quad(d);
          // #endif
        }
      }
    }
  }
  if (!SUM_DW) {
    return;
  }
  for (var k = 0u; k < QUADS; k++) { // unroll
    row_sums[lid] = sums[k];
    workgroupBarrier();
    if (lid < LANES && (FULL || lid + k * LANES < c4)) {
      var sum = row_sums[lid];
      for (var i = 1u; i < rows; i++) {
        sum += row_sums[lid + i * LANES];
      }
      if (nwg.x == 1u) {
        sum += dw[lid + k * LANES];
      }
      dw[wid.x * c4 + lid + k * LANES] = sum;
    }
    workgroupBarrier();
  }
}

// --- KERNEL: rmsnorm_backward_dw ---
// The second pass: dw[c] += Σ_p partials[p, c]. partials (P, C), dw (C).
// A workgroup takes 8 channels; each of its 32 rows of threads sums every 32nd
// partial, and the first adds up the 32 sums. The kernel is short, and most of it is
// waiting: 16 loads are on their way at a time, which is all of 512 partials, and dw
// comes with them. 1-D dispatch over ceil(C/8).
@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> dw: array<f32>;
@group(0) @binding(2) var<uniform> dims: NormDims;   // n: partials P

var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let c = wid.x * 8u + (lid & 7u);
  var total = 0.0;
  if (lid < 8u && c < dims.c) {
    total = dw[c];
  }
  var sum = 0.0;
  if (c < dims.c) {
    for (var p = lid >> 3u; p < dims.n; p += 512u) {
      var part = array<f32, 16>();
      for (var k = 0u; k < 16u; k++) { // unroll
        if (p + 32u * k < dims.n) {
          part[k] = partials[(p + 32u * k) * dims.c + c];
        }
      }
      sum += ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
      sum += ((part[8] + part[9]) + (part[10] + part[11])) + ((part[12] + part[13]) + (part[14] + part[15]));
    }
  }
  sums[lid] = sum;
  workgroupBarrier();
  if (lid < 8u && c < dims.c) {
    for (var i = 0u; i < 32u; i++) { // unroll
      total += sums[lid + 8u * i];
    }
    dw[c] = total;
  }
}
