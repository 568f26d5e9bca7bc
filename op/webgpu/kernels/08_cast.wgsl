// 08_cast: between f32 and 16 bits.

// --- KERNEL: cast_f32_to_f16 ---
// dst[i] = src[i] clamped to ±65,504, the largest finite f16; NaN stays NaN, and
// an infinity becomes the bound. One element per thread, 1-D dispatch over n.
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f16>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= n) {
    return;
  }
  let v = src[i];
  let is_nan = (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
  if (is_nan) {
    dst[i] = f16(v);   // never clamped: a clamp may return a bound for NaN
  } else {
    dst[i] = f16(clamp(v, -65504.0, 65504.0));
  }
}

// --- KERNEL: cast_f16_to_f32 ---
// dst[i] = src[i], lossless. One element per thread, 1-D dispatch over n.
@group(0) @binding(0) var<storage, read> src: array<f16>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    dst[i] = f32(src[i]);
  }
}

// --- KERNEL: cast_f32_to_pairs ---
// dst = src, n elements, in pairs of 16-bit floats: an operand tensor, where a value
// beyond the type's range becomes an infinity. One pair per thread, 1-D dispatch over
// ceil(n/2); with an odd n the other half of the last word stays as it is.
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<u32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (2u * i + 1u < n) {
    dst[i] = pair(src[2u * i], src[2u * i + 1u]);
  } else if (2u * i < n) {
    dst[i] = pair(src[2u * i], 0.0) | (dst[i] & 0xffff0000u);
  }
}

// --- KERNEL: cast_bf16_to_f32 ---
// dst[i] = src[i], lossless, from pairs of bfloat16. One element per thread, 1-D
// dispatch over n.
@group(0) @binding(0) var<storage, read> src: array<u32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    let w = src[i / 2u];
    dst[i] = bitcast<f32>(select(w & 0xffff0000u, w << 16u, i % 2u == 0u));
  }
}
