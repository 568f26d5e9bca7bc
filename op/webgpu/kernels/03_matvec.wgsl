// 03_matvec: what 03_linear's tiles are no good for: products with few rows, when
// decoding, and the second pass of products that are split along K.
const ACC: u32 = 1u;           // bits of a product's mode: C +=
const RESIDUAL: u32 = 2u;      // + residual
const W16: bool = false;       // B is f16: the _w16 forms
// #if W16
alias BT = f16;
// #else
alias BT = f32;
// #endif

struct MatDims {
  m: u32,
  n: u32,
  k: u32,
  mode: u32,    // ACC, RESIDUAL
}

// --- KERNEL: matmul_reduce ---
// The second pass of a split product: c = Σ_s parts[s] in order of s, + residual
// and + c where asked. parts (splits, n), c (n). One element per thread, 1-D
// dispatch over n.
struct ReduceDims {
  n: u32,
  splits: u32,
  mode: u32,
}
@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read> residual: array<f32>;   // parts again when there is none
@group(0) @binding(2) var<storage, read_write> c_: array<f32>;
@group(0) @binding(3) var<uniform> dims: ReduceDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.n) {
    return;
  }
  var sum = 0.0;
  for (var s = 0u; s < dims.splits; s++) {
    sum += parts[s * dims.n + i];
  }
  if ((dims.mode & RESIDUAL) != 0u) {
    sum += residual[i];
  }
  if ((dims.mode & ACC) != 0u) {
    sum += c_[i];
  }
  c_[i] = sum;
}

// --- KERNEL: matvec ---
// C = A·B for few rows (decoding): A (M, K), B (K, N), C (M, N), M ≤ MR ≤ 8, N a
// multiple of 4. Reads B once. LANES threads side by side take a quad of columns
// each, WG/LANES slices of threads share K: slice s takes k = s, s + slices, …;
// the sums are added in a fixed tree. 1-D dispatch over ceil(N/4/LANES).
const MR: u32 = 1u;       // rows that are computed, at least M
const LANES: u32 = 8u;    // quads of columns per workgroup
const SLICES: u32 = WG / LANES;
@group(0) @binding(0) var<storage, read> a_: array<f32>;
@group(0) @binding(1) var<storage, read> b_: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> residual: array<vec4<f32>>;   // c-shaped scratch when there is none
@group(0) @binding(3) var<storage, read_write> c_: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<workgroup> part: array<vec4<f32>, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lane = lid % LANES;
  let slice = lid / LANES;
  let quads = mat.n / 4u;
  let quad = flat_wg(wid, nwg) * LANES + lane;
  var acc = array<vec4<f32>, MR>();
  if (quad < quads) {
    var k = slice;
    while (k + 3u * SLICES < mat.k) {   // four loads at a time
      var w = array<vec4<f32>, 4>();
      for (var u = 0u; u < 4u; u++) { // unroll
        w[u] = vec4<f32>(b_[(k + u * SLICES) * quads + quad]);
      }
      for (var u = 0u; u < 4u; u++) { // unroll
        for (var r = 0u; r < MR; r++) { // unroll
          acc[r] = fma(vec4<f32>(a_[min(r, mat.m - 1u) * mat.k + k + u * SLICES]), w[u], acc[r]);
        }
      }
      k += 4u * SLICES;
    }
    while (k < mat.k) {
      let w = vec4<f32>(b_[k * quads + quad]);
      for (var r = 0u; r < MR; r++) { // unroll
        acc[r] = fma(vec4<f32>(a_[min(r, mat.m - 1u) * mat.k + k]), w, acc[r]);
      }
      k += SLICES;
    }
  }
  for (var r = 0u; r < MR; r++) { // unroll
    part[lid] = acc[r];
    workgroupBarrier();
    for (var s = SLICES / 2u; s > 0u; s = s / 2u) {
      if (slice < s) {
        part[lid] += part[lid + s * LANES];
      }
      workgroupBarrier();
    }
    if (slice == 0u && quad < quads && r < mat.m) {
      let at = r * quads + quad;
      var sum = part[lid];
      if ((mat.mode & RESIDUAL) != 0u) {
        sum += residual[at];
      }
      if ((mat.mode & ACC) != 0u) {
        sum += c_[at];
      }
      c_[at] = sum;
    }
    workgroupBarrier();
  }
}

// --- KERNEL: matvec_t ---
// C = A·Bᵀ for few rows, such as tied logits while decoding: A (M, K), B (N, K),
// C (M, N), M ≤ MR ≤ 8, K a multiple of 4. LANES threads share a row of B, quad by
// quad; their sums are added in a fixed tree. 1-D dispatch over ceil(N·LANES/WG).
const MR: u32 = 1u;
const LANES: u32 = 32u;
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> c_: array<f32>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<workgroup> part: array<f32, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let lane = lid % LANES;
  let quads = mat.k / 4u;
  let col = flat_wg(wid, nwg) * (WG / LANES) + lid / LANES;
  var acc = array<vec4<f32>, MR>();
  if (col < mat.n) {
    for (var q = lane; q < quads; q += LANES) {
      let w = vec4<f32>(b_[col * quads + q]);
      for (var r = 0u; r < MR; r++) { // unroll
        acc[r] = fma(a_[min(r, mat.m - 1u) * quads + q], w, acc[r]);
      }
    }
  }
  for (var r = 0u; r < MR; r++) { // unroll
    part[lid] = (acc[r].x + acc[r].y) + (acc[r].z + acc[r].w);
    workgroupBarrier();
    for (var s = LANES / 2u; s > 0u; s = s / 2u) {
      if (lane < s) {
        part[lid] += part[lid + s];
      }
      workgroupBarrier();
    }
    if (lane == 0u && col < mat.n && r < mat.m) {
      let at = r * mat.n + col;
      var sum = part[lid];
      if ((mat.mode & RESIDUAL) != 0u) {
        sum += residual[at];
      }
      if ((mat.mode & ACC) != 0u) {
        sum += c_[at];
      }
      c_[at] = sum;
    }
    workgroupBarrier();
  }
}
