// 02_norm: RMSNorm (Zhang and Sennrich, 2019), forward and backward.
struct NormDims {
  n: u32,   // N rows
  c: u32,   // C channels
}
struct NormParams {
  eps: f32,
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

// --- KERNEL: rmsnorm_backward_dw ---
// The second pass: dw[c] += Σ_p partials[p, c]. partials (P, C), dw (C).
// A workgroup takes 8 channels; each of its 32 rows of threads sums every 32nd
// partial, and the first adds up the 32 sums. 1-D dispatch over ceil(C/8).
@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> dw: array<f32>;
@group(0) @binding(2) var<uniform> dims: NormDims;   // n: partials P

var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let c = wid.x * 8u + (lid & 7u);
  var sum = 0.0;
  if (c < dims.c) {
    for (var p = lid >> 3u; p < dims.n; p += 32u) {
      sum += partials[p * dims.c + c];
    }
  }
  sums[lid] = sum;
  workgroupBarrier();
  if (lid < 8u && c < dims.c) {
    var total = dw[c];
    for (var i = 0u; i < 32u; i++) {
      total += sums[lid + 8u * i];
    }
    dw[c] = total;
  }
}
