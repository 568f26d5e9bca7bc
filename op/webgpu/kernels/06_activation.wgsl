// 06_activation: out = act(gate)·up, SwiGLU and GeGLU (Shazeer, 2020).

// sigmoid of any x without overflow in exp.
fn sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn silu(x: f32) -> f32 {
  return x * sigmoid(x);
}

// gelu_tanh is 0.5·x·(1 + tanh u) = x·σ(2u), u = √(2/π)·(x + 0.044715·x³)
// (Hendrycks and Gimpel, 2016).
fn gelu_tanh(x: f32) -> f32 {
  return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x));
}

// activated is what glu_mixed takes.
const GELU: bool = false;
fn activated(x: f32) -> f32 {
  if (GELU) {
    return gelu_tanh(x);
  }
  return silu(x);
}

// first_of_four is the first of a thread's four elements.
fn first_of_four(wid: vec3<u32>, nwg: vec3<u32>, lid: u32) -> u32 {
  return flat_wg(wid, nwg) * 4u * WG + lid;
}

// --- KERNEL: swiglu_forward ---
// gate, up, out (n), four elements per thread, WG apart, so that several loads are
// on their way. 1-D dispatch over ceil(n/4).
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      out[at + k * WG] = silu(a[k]) * b[k];
    }
  }
}

// --- KERNEL: swiglu_forward_inplace ---
// As swiglu_forward; the result takes up's place.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      up[at + k * WG] = silu(a[k]) * b[k];
    }
  }
}

// --- KERNEL: geglu_forward ---
// gate, up, out (n), four elements per thread, WG apart, so that several loads are
// on their way. 1-D dispatch over ceil(n/4).
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      out[at + k * WG] = gelu_tanh(a[k]) * b[k];
    }
  }
}

// --- KERNEL: geglu_forward_inplace ---
// As geglu_forward; the result takes up's place.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      up[at + k * WG] = gelu_tanh(a[k]) * b[k];
    }
  }
}

// --- KERNEL: glu_mixed_vec ---
// As swiglu_forward, or with GELU as geglu_forward, for n a multiple of 4, where gate
// and up (IN16), or out (OUT16), or all, are pairs of 16-bit floats. STEPS vec4s per
// thread, WG apart, 1-D dispatch over ceil(n/(4·STEPS)); n in vec4s.
const IN16: bool = false;
const OUT16: bool = false;
const STEPS: u32 = 2u;
// #if IN16
alias In = vec2<u32>;
// #else
alias In = vec4<f32>;
// #endif
// #if OUT16
alias Out = vec2<u32>;
// #else
alias Out = vec4<f32>;
// #endif
@group(0) @binding(0) var<storage, read> gate: array<In>;
@group(0) @binding(1) var<storage, read> up: array<In>;
@group(0) @binding(2) var<storage, read_write> out: array<Out>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = flat_wg(wid, nwg) * STEPS * WG + lid;
  var a = array<In, STEPS>();
  var b = array<In, STEPS>();
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (at + k * WG < n) {
      let x = wide(a[k]);
      let act = vec4<f32>(activated(x.x), activated(x.y), activated(x.z), activated(x.w));
      out[at + k * WG] = narrow(act * wide(b[k]));
    }
  }
}

fn wide(v: In) -> vec4<f32> {
  // #if IN16
  return unquad(v);
  // #else
  return v;
  // #endif
}

fn narrow(v: vec4<f32>) -> Out {
  // #if OUT16
  return quad(v);
  // #else
  return v;
  // #endif
}

// --- KERNEL: glu_mixed ---
// As glu_mixed_vec for any n, in elements: two per thread, 1-D dispatch over
// ceil(n/2); with an odd n the other half of out's last word stays as it is.
const IN16: bool = false;
const OUT16: bool = false;
// #if IN16
alias In = u32;
// #else
alias In = f32;
// #endif
// #if OUT16
alias Out = u32;
// #else
alias Out = f32;
// #endif
@group(0) @binding(0) var<storage, read> gate: array<In>;
@group(0) @binding(1) var<storage, read> up: array<In>;
@group(0) @binding(2) var<storage, read_write> out: array<Out>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (2u * i >= n) {
    return;
  }
  let last = 2u * i + 1u == n;   // of which there is one element alone
  // #if IN16
  let a = unpair(gate[i]);
  let b = unpair(up[i]);
  // #else
  let second = min(2u * i + 1u, n - 1u);
  let a = vec2<f32>(gate[2u * i], gate[second]);
  let b = vec2<f32>(up[2u * i], up[second]);
  // #endif
  let y = vec2<f32>(activated(a.x), activated(a.y)) * b;
  // #if OUT16
  if (last) {
    out[i] = pair(y.x, 0.0) | (out[i] & 0xffff0000u);
  } else {
    out[i] = pair(y.x, y.y);
  }
  // #else
  out[2u * i] = y.x;
  if (!last) {
    out[2u * i + 1u] = y.y;
  }
  // #endif
}
