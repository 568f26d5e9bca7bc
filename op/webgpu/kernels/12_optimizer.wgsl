// 12_optimizer: gradient norm, clipping and AdamW over mega-buffers.
//
// With MIRROR both forms of AdamW also write w16 (n), the new w in pairs of 16-bit
// floats (see 00_shared), as a cast does: float16 is clamped to ±65,504, so that a large
// weight stays finite. The new weights meet in workgroup memory, of which a thread then
// writes a pair; with an odd n the other half of the last word stays as it is.
const MIRROR: bool = false;

fn clamp16(x: f32) -> f32 {
  if (BF16 || (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) {
    return x;   // NaN is never clamped: a clamp may return a bound for it
  }
  return clamp(x, -65504.0, 65504.0);
}

// --- KERNEL: reduce_norm_sq ---
// partials[c] = (Σ g² over the finite g, count of the others) of chunk c of 65,536
// elements. g (n), partials (ceil(n/65,536), 2). One workgroup of WG threads per
// chunk, 1-D dispatch; a thread takes every WG-th element.
const NORM_CHUNK: u32 = 65536u;
@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read_write> partials: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let chunk = flat_wg(wid, nwg);
  let begin = chunk * NORM_CHUNK;
  if (begin >= n) {
    return;
  }
  let end = min(n, begin + NORM_CHUNK);
  var squares = vec4<f32>();
  var bad = 0.0;
  for (var i = begin + lid; i < end; i += 4u * WG) {
    var v = vec4<f32>(g[i], 0.0, 0.0, 0.0);
    if (i + WG < end) { v.y = g[i + WG]; }
    if (i + 2u * WG < end) { v.z = g[i + 2u * WG]; }
    if (i + 3u * WG < end) { v.w = g[i + 3u * WG]; }
    let bits = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u);
    if (bits.x || bits.y || bits.z || bits.w) {
      let ones = select(vec4<f32>(0.0), vec4<f32>(1.0), bits);
      bad += (ones.x + ones.y) + (ones.z + ones.w);
      v = select(v, vec4<f32>(0.0), bits);
    }
    squares = fma(v, v, squares);
  }
  let sum = wg_reduce_sum((squares.x + squares.y) + (squares.z + squares.w), lid);
  let count = wg_reduce_sum(bad, lid);
  if (lid == 0u) {
    partials[2u * chunk] = sum;
    partials[2u * chunk + 1u] = count;
  }
}

// --- KERNEL: finalize_grad_stats ---
// grad_stats = (norm, clip, non-finite count, 0): norm = √Σ,
// clip = min(1, max_norm / max(norm, 1e−6)), or 1 where max_norm is 0.
// partials (P, 2) of all arenas, grad_stats (4). One workgroup; P is the length of
// the bound range.
@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> grad_stats: array<f32>;
@group(0) @binding(2) var<uniform> max_norm: f32;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
  let count = arrayLength(&partials) / 2u;
  var sum = 0.0;
  var bad = 0.0;
  for (var p = lid; p < count; p += WG) {
    sum += partials[2u * p];
    bad += partials[2u * p + 1u];
  }
  let norm = sqrt(wg_reduce_sum(sum, lid));
  let all_bad = wg_reduce_sum(bad, lid);
  if (lid == 0u) {
    var clip = 1.0;
    if (max_norm > 0.0) {
      clip = min(1.0, max_norm / max(norm, 1e-6));
    }
    grad_stats[0] = norm;
    grad_stats[1] = clip;
    grad_stats[2] = all_bad;
    grad_stats[3] = 0.0;
  }
}

// --- KERNEL: adamw_update ---
// One AdamW step with decoupled decay (Loshchilov and Hutter, 2019), ĝ = g·clip:
//   m ← β1·m + (1−β1)·ĝ,  v ← β2·v + (1−β2)·ĝ²
//   w ← w − lr·(m̂/(√v̂ + eps) + wd·w)
// w, g, m, v (n), grad_stats (4) from finalize_grad_stats, hp = (lr, β1, β2, wd),
// bias = (β1ᵗ, β2ᵗ, eps, mode). Mode 0: a step with non-finite gradients changes
// nothing; mode 1: they count as 0. One element per thread, 1-D dispatch.
@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read> grad_stats: array<f32>;
@group(0) @binding(5) var<uniform> size: u32;
@group(0) @binding(6) var<uniform> hp: vec4<f32>;
@group(0) @binding(7) var<uniform> bias: vec4<f32>;
// #if MIRROR
@group(0) @binding(8) var<storage, read_write> w16: array<u32>;

var<workgroup> fresh: array<f32, WG>;   // new weights
// #endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let i = flat_id(gid, nwg);
  if (grad_stats[2] > 0.0 && bias.w == 0.0) {
    return;
  }
  if (i < size) {
    let ghat = nan_guard(g[i]) * grad_stats[1];
    let m_new = hp.y * m[i] + (1.0 - hp.y) * ghat;
    let v_new = hp.z * v[i] + (1.0 - hp.z) * ghat * ghat;
    let m_hat = m_new / (1.0 - bias.x);
    let v_hat = v_new / (1.0 - bias.y);
    let w_old = w[i];
    let w_new = w_old - hp.x * (m_hat / (sqrt(v_hat) + bias.z) + hp.w * w_old);
    m[i] = m_new;
    v[i] = v_new;
    w[i] = w_new;
// #if MIRROR
    fresh[lid] = w_new;
// #endif
  }
// #if MIRROR
  workgroupBarrier();
  let at = i - lid + 2u * lid;   // of a pair of the workgroup's elements
  if (lid < WG / 2u && at < size) {
    var word = pair(clamp16(fresh[2u * lid]), clamp16(fresh[2u * lid + 1u]));
    if (at + 1u == size) {
      word = (word & 0xffffu) | (w16[at / 2u] & 0xffff0000u);
    }
    w16[at / 2u] = word;
  }
// #endif
}

// --- KERNEL: adamw_8bit_update ---
// As adamw_update with moments of 8 bits in blocks of 256 elements, one scale each
// (after Dettmers et al., 2022): m = code·m_scale, code in −127 … 127; √v =
// code·v_scale, code in 0 … 255, and never 0 where √v is positive. w, g (n),
// m_packed, v_packed (n bytes, four to a word), m_scale, v_scale (ceil(n/256)).
// w takes the new moments before they are encoded. One workgroup of WG = 256
// threads per block, 1-D dispatch over the blocks, beyond 65,535 in two dimensions.
@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m_packed: array<u32>;
@group(0) @binding(3) var<storage, read_write> v_packed: array<u32>;
@group(0) @binding(4) var<storage, read_write> m_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> v_scale: array<f32>;
@group(0) @binding(6) var<storage, read> grad_stats: array<f32>;
@group(0) @binding(7) var<uniform> size: u32;
@group(0) @binding(8) var<uniform> hp: vec4<f32>;
@group(0) @binding(9) var<uniform> bias: vec4<f32>;
// #if MIRROR
@group(0) @binding(10) var<storage, read_write> w16: array<u32>;

var<workgroup> fresh: array<f32, 256>;   // new weights
// #endif

var<workgroup> codes: array<u32, 256>;   // m's code in the low byte, then v's

// code of x ≥ 0 in units of scale, to the nearest; 0 in a block of zeros.
fn code(x: f32, scale: f32, limit: f32) -> f32 {
  if (scale == 0.0) {
    return 0.0;
  }
  return min(floor(x / scale + 0.5), limit);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let block = flat_wg(wid, nwg);
  let i = block * WG + lid;
  if (block * WG >= size || (grad_stats[2] > 0.0 && bias.w == 0.0)) {
    return;
  }
  let shift = 8u * (lid & 3u);
  var m_new = 0.0;
  var root = 0.0;
  var kept = 0u;   // what follows the last element in its word stays as it is
  if (i >= size && 4u * (i >> 2u) < size) {
    kept = extractBits(m_packed[i >> 2u], shift, 8u) | (extractBits(v_packed[i >> 2u], shift, 8u) << 8u);
  }
  if (i < size) {
    let m_code = extractBits(bitcast<i32>(m_packed[i >> 2u]), shift, 8u);
    let v_code = extractBits(v_packed[i >> 2u], shift, 8u);
    let root_old = f32(v_code) * v_scale[block];
    let ghat = nan_guard(g[i]) * grad_stats[1];
    m_new = hp.y * (f32(m_code) * m_scale[block]) + (1.0 - hp.y) * ghat;
    let v_new = hp.z * (root_old * root_old) + (1.0 - hp.z) * ghat * ghat;
    root = sqrt(v_new);
    let m_hat = m_new / (1.0 - bias.x);
    let v_hat = v_new / (1.0 - bias.y);
    let w_old = w[i];
    let w_new = w_old - hp.x * (m_hat / (sqrt(v_hat) + bias.z) + hp.w * w_old);
    w[i] = w_new;
// #if MIRROR
    fresh[lid] = w_new;
// #endif
  }
  let m_unit = wg_reduce_max(abs(m_new), lid) / 127.0;
  let v_unit = wg_reduce_max(root, lid) / 255.0;
  let m_size = code(abs(m_new), m_unit, 127.0);
  var v_code = code(root, v_unit, 255.0);
  if (root > 0.0) {
    v_code = max(v_code, 1.0);
  }
  let m_code = i32(select(m_size, -m_size, m_new < 0.0));
  codes[lid] = select(kept, (bitcast<u32>(m_code) & 0xffu) | (u32(v_code) << 8u), i < size);
  workgroupBarrier();
  let word = block * 64u + lid;
  if (lid < 64u && 4u * word < size) {
    var m4 = 0u;
    var v4 = 0u;
    for (var b = 0u; b < 4u; b++) {
      let c = codes[4u * lid + b];
      m4 |= (c & 0xffu) << (8u * b);
      v4 |= (c >> 8u) << (8u * b);
    }
    m_packed[word] = m4;
    v_packed[word] = v4;
  }
  if (lid == 0u) {
    m_scale[block] = m_unit;
    v_scale[block] = v_unit;
  }
// #if MIRROR
  let at = block * WG + 2u * lid;   // of a pair of the block's elements
  if (lid < WG / 2u && at < size) {
    var word = pair(clamp16(fresh[2u * lid]), clamp16(fresh[2u * lid + 1u]));
    if (at + 1u == size) {
      word = (word & 0xffffu) | (w16[at / 2u] & 0xffff0000u);
    }
    w16[at / 2u] = word;
  }
// #endif
}
