// 13_matrix: what surrounds the products of the matrix units (matrix/matmul.comp):
// operands to 16 bits, padded to whole tiles, and results from padded parts.
//
// A result of the conversions holds pairs of 16-bit floats (see 00_shared): rows of
// `out_cols`, a multiple of 8, of which `rows` × `cols` come from the source and the
// rest are zero.
const W16: bool = false;    // the source is f16
const SB16: bool = false;   // the source is bfloat16, in pairs
// #if SB16
alias ST = u32;
alias ST4 = vec2<u32>;
fn wide(v: ST4) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(v.x << 16u, v.x & 0xffff0000u, v.y << 16u, v.y & 0xffff0000u));
}
fn half_of(w: ST, i: u32) -> f32 {
  return bitcast<f32>(select(w & 0xffff0000u, w << 16u, i % 2u == 0u));
}
const PER: u32 = 2u;   // elements of an ST
// #else
// #if W16
alias ST = f16;
alias ST4 = vec4<f16>;
// #else
alias ST = f32;
alias ST4 = vec4<f32>;
// #endif
fn wide(v: ST4) -> vec4<f32> {
  return vec4<f32>(v);
}
fn half_of(x: ST, i: u32) -> f32 {
  return f32(x);
}
const PER: u32 = 1u;
// #endif

struct CastDims {
  rows: u32,      // of the source
  cols: u32,
  out_rows: u32,  // of the result
  out_cols: u32,
}

// --- KERNEL: matrix_cast_flat ---
// out = src, n elements in eights, no padding. Eight elements per thread, 1-D
// dispatch over n/8.
@group(0) @binding(0) var<storage, read> src: array<ST4>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (8u * i < n) {
    out[i] = vec4<u32>(quad(wide(src[2u * i])), quad(wide(src[2u * i + 1u])));
  }
}

// --- KERNEL: matrix_cast ---
// out (out_rows, out_cols) = src (rows, cols). Eight elements of out per thread,
// 1-D dispatch over out_rows·out_cols/8.
@group(0) @binding(0) var<storage, read> src: array<ST>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> dims: CastDims;

fn at(row: u32, col: u32) -> f32 {
  if (row < dims.rows && col < dims.cols) {
    let i = row * dims.cols + col;
    return half_of(src[i / PER], i);
  }
  return 0.0;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  let width = dims.out_cols / 8u;
  if (i >= dims.out_rows * width) {
    return;
  }
  let row = i / width;
  let col = i % width * 8u;
  out[i] = vec4<u32>(pair(at(row, col), at(row, col + 1u)), pair(at(row, col + 2u), at(row, col + 3u)),
    pair(at(row, col + 4u), at(row, col + 5u)), pair(at(row, col + 6u), at(row, col + 7u)));
}

// --- KERNEL: matrix_cast_t ---
// out (out_rows, out_cols) = srcᵀ, src (rows, cols): out_rows ≥ cols, out_cols ≥
// rows. A workgroup turns 64 rows × 32 columns of src; grid (out_rows/32,
// out_cols/64) rounded up.
@group(0) @binding(0) var<storage, read> src: array<ST>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> dims: CastDims;

const STEP: u32 = 33u;   // 32 columns and one, against bank conflicts
var<workgroup> tile: array<f32, 64u * STEP>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row0 = wid.y * 64u;
  let col0 = wid.x * 32u;
  for (var i = 0u; i < 8u; i++) {
    let r = lid / 32u + i * 8u;
    let c = lid % 32u;
    var v = 0.0;
    if (row0 + r < dims.rows && col0 + c < dims.cols) {
      let at = (row0 + r) * dims.cols + col0 + c;
      v = half_of(src[at / PER], at);
    }
    tile[r * STEP + c] = v;
  }
  workgroupBarrier();
  let c = lid / 8u;
  let r = lid % 8u * 8u;
  if (col0 + c < dims.out_rows && row0 + r < dims.out_cols) {
    var o = vec4<u32>();
    for (var i = 0u; i < 4u; i++) {
      o[i] = pair(tile[(r + 2u * i) * STEP + c], tile[(r + 2u * i + 1u) * STEP + c]);
    }
    out[((col0 + c) * dims.out_cols + row0 + r) / 8u] = o;
  }
}

// --- KERNEL: matrix_finish ---
// c (m, n) = Σ parts (splits, ·, stride), + c, + residual: the parts of a product
// split along K, or one whose rows are no whole vec4s. One element per thread, with
// VEC a vec4 in place of each element; 1-D dispatch.
const VEC: bool = false;
// #if VEC
alias FT = vec4<f32>;
// #else
alias FT = f32;
// #endif
struct FinishDims {
  m: u32,
  n: u32,        // of c, as the rest in elements or in vec4s
  stride: u32,   // of a row of parts
  part: u32,     // between parts
  splits: u32,
  mode: u32,     // 1: + c, 2: + residual
}
@group(0) @binding(0) var<storage, read> parts: array<FT>;
@group(0) @binding(1) var<storage, read> residual: array<FT>;
@group(0) @binding(2) var<storage, read_write> c: array<FT>;
@group(0) @binding(3) var<uniform> dims: FinishDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.m * dims.n) {
    return;
  }
  let at = i / dims.n * dims.stride + i % dims.n;
  var sum = FT();
  for (var s = 0u; s < dims.splits; s++) {
    sum += parts[s * dims.part + at];
  }
  if ((dims.mode & 1u) != 0u) {
    sum += c[i];
  }
  if ((dims.mode & 2u) != 0u) {
    sum += residual[i];
  }
  c[i] = sum;
}
