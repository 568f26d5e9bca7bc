// 11_elementwise: small helpers that belong to no stage of the model.

// --- KERNEL: add ---
// dst += src, (n) each, one element per thread, 1-D dispatch.
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    dst[i] += src[i];
  }
}

// --- KERNEL: scale ---
// dst = factor·src, (n) each, one element per thread, 1-D dispatch.
struct ScaleDims {
  n: u32,
  factor: f32,
}
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;
@group(0) @binding(2) var<uniform> dims: ScaleDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < dims.n) {
    dst[i] = dims.factor * src[i];
  }
}

// --- KERNEL: scale_in_place ---
// dst = factor·dst, (n), one element per thread, 1-D dispatch.
struct ScaleDims {
  n: u32,
  factor: f32,
}
@group(0) @binding(0) var<storage, read_write> dst: array<f32>;
@group(0) @binding(1) var<uniform> dims: ScaleDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < dims.n) {
    dst[i] *= dims.factor;
  }
}

// --- KERNEL: copy ---
// dst = src, (n) quads of words each, one per thread, 1-D dispatch. It also
// measures what bandwidth a kernel can reach.
@group(0) @binding(0) var<storage, read> src: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> dst: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < n) {
    dst[i] = src[i];
  }
}

// --- KERNEL: fill ---
// dst = value, (n) words, one per thread, 1-D dispatch.
struct FillDims {
  n: u32,
  value: u32,
}
@group(0) @binding(0) var<storage, read_write> dst: array<u32>;
@group(0) @binding(1) var<uniform> dims: FillDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i < dims.n) {
    dst[i] = dims.value;
  }
}

// --- KERNEL: sum ---
// out[g] = scale·Σ of chunk g of x, or += with acc; chunks of `chunk` elements.
// x (n), out (workgroups). One workgroup per chunk, 1-D dispatch; every thread
// takes each WG-th element. Long sums run twice: chunks, then the chunks' sums.
struct SumDims {
  n: u32,
  chunk: u32,
  acc: u32,
  scale: f32,
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> dims: SumDims;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let group = flat_wg(wid, nwg);
  let begin = group * dims.chunk;
  let end = min(dims.n, begin + dims.chunk);
  var part = 0.0;
  for (var i = begin + lid; i < end; i += WG) {
    part += x[i];
  }
  let total = wg_reduce_sum(part, lid) * dims.scale;
  if (lid == 0u && begin < dims.n) {
    if (dims.acc != 0u) {
      out[group] += total;
    } else {
      out[group] = total;
    }
  }
}

// --- KERNEL: fma_peak ---
// Measures arithmetic: every thread runs eight chains of `rounds`·16 vec4 fma
// that fit in registers. out (threads). 1-D dispatch.
struct PeakDims {
  rounds: u32,
  x: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<uniform> dims: PeakDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let x = vec4<f32>(dims.x);
  var a = array<vec4<f32>, 8>();
  for (var c = 0u; c < 8u; c++) { // unroll
    a[c] = vec4<f32>(f32(gid.x & 7u) + f32(c));
  }
  for (var i = 0u; i < dims.rounds; i++) {
    for (var r = 0u; r < 16u; r++) { // unroll
      for (var c = 0u; c < 8u; c++) { // unroll
        a[c] = fma(a[c], x, x);
      }
    }
  }
  var sum = vec4<f32>();
  for (var c = 0u; c < 8u; c++) { // unroll
    sum += a[c];
  }
  out[flat_id(gid, nwg)] = sum.x + sum.y + sum.z + sum.w;
}
