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

// --- KERNEL: swiglu_forward ---
// gate, up, out (n), one element per thread, 1-D dispatch.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    out[i] = silu(gate[i]) * up[i];
  }
}

// --- KERNEL: swiglu_forward_inplace ---
// As swiglu_forward; the result takes up's place.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    up[i] *= silu(gate[i]);
  }
}

// --- KERNEL: geglu_forward ---
// gate, up, out (n), one element per thread, 1-D dispatch.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    out[i] = gelu_tanh(gate[i]) * up[i];
  }
}

// --- KERNEL: geglu_forward_inplace ---
// As geglu_forward; the result takes up's place.
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    up[i] *= gelu_tanh(gate[i]);
  }
}
