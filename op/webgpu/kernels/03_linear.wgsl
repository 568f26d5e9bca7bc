// 03_linear: matrix products. C = op(A)·op(B) in three forms: matmul X·W,
// matmul_t dY·Wᵀ, matmul_at Xᵀ·dY.
//
// The algorithm is in this preamble and is the same for all forms. A workgroup
// computes a tile of BM×BN elements of C, a thread TM×TN of them, in registers.
// Along K, slices of BK are copied to workgroup memory as as_[k][m] and
// bs_[k][n], so that each thread then reads vec4s that lie side by side. While
// one slice is multiplied the next is on its way in registers. A kernel says
// with A_ALONG_K and B_ALONG_K in which direction its operands lie in memory and
// brings load_a, load_b and store_row.
//
// Every element of C is one chain of fma over rising k, so the bits do not
// depend on the tile shape. The constants below are replaced by the launcher's
// choice; loops marked "unroll" are written out by it.
const BM: u32 = 32u;      // rows of C per workgroup
const BN: u32 = 32u;      // columns of C per workgroup
const BK: u32 = 16u;      // depth of a slice, a multiple of 8
const MQ: u32 = 1u;       // TM/4: quads of rows per thread
const NQ: u32 = 1u;       // TN/4: quads of columns per thread
const BUFS: u32 = 1u;     // slices in workgroup memory: 2 save one barrier of two
const PAD: u32 = 1u;      // vec4s between rows of as_ and bs_, against bank conflicts
const KLOW: u32 = 2u;     // 4, or 2 where BK is no multiple of 16
const KU: u32 = 1u;       // steps along k that are written out, divides BK
const CHECK: bool = true; // false when BM, BN and BK divide M, N and every slice
const ACC: u32 = 1u;           // bits of a product's mode: C +=
const RESIDUAL: u32 = 2u;      // + residual
const W16: bool = false;       // B is f16: the _w16 forms
// #if W16
alias BT = f16;
// #else
alias BT = f32;
// #endif

const TX: u32 = BN / 4u / NQ;          // threads along n, a multiple of 8
const TY: u32 = BM / 4u / MQ;          // threads along m, a multiple of 4
const THREADS: u32 = TX * TY;
const AS: u32 = BM / 4u + PAD;         // row of as_, in vec4
const BS: u32 = BN / 4u + PAD;         // row of bs_, in vec4
const A_BLOCKS: u32 = BM * BK / 16u;   // 4×4 blocks to copy per slice
const B_BLOCKS: u32 = BN * BK / 16u;
const COPIES: u32 = (A_BLOCKS + B_BLOCKS + THREADS - 1u) / THREADS; // per thread
const ACCS: u32 = 4u * MQ * NQ;        // vec4 accumulators per thread
const EXACT: bool = false; // THREADS divides A_BLOCKS and B_BLOCKS: no thread is idle
const STAGED: u32 = 4u * COPIES;       // vec4s on their way

struct MatDims {
  m: u32,
  n: u32,
  k: u32,
  row0: u32,    // first row of C of this dispatch, a multiple of BM
  depth: u32,   // k per split, a multiple of BK; split z does [z·depth, (z+1)·depth)
  n1: u32,      // group forms: columns of the first, second and third product
  n2: u32,
  n3: u32,
  mode: u32,    // ACC, RESIDUAL
}

var<workgroup> as_: array<vec4<f32>, BUFS * BK * AS>;
var<workgroup> bs_: array<vec4<f32>, BUFS * BK * BS>;

// A 4×4 block of a slice: quad of k, quad of m or n.
struct Block {
  k: u32,
  i: u32,
}

// block_of deals blocks to threads. An operand that lies along k is read 4 rows
// by 4 k at a time: KLOW neighbours read one stretch of a row.
fn block_of(index: u32, quads: u32, along_k: bool) -> Block {
  if (along_k) {
    let rest = index / KLOW;
    return Block(index % KLOW + KLOW * (rest / quads), rest % quads);
  }
  return Block(index / quads, index % quads);
}

fn turn_block(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y),
                     vec4<f32>(a.z, b.z, c.z, d.z), vec4<f32>(a.w, b.w, c.w, d.w));
}

// mm_tile computes the tile at (row0, col0) over the k of a split and hands its
// rows to store_row.
fn mm_tile(row0: u32, col0: u32, split: u32, lid: u32) {
  let k_begin = split * mat.depth;
  let k_end = min(mat.k, k_begin + mat.depth);
  let slices = (k_end - k_begin + BK - 1u) / BK;
  // Eight by four threads side by side, so that 32 of them read few banks.
  let strip = lid >> 5u;
  let tx = (strip % (TX / 8u)) * 8u + (lid & 7u);
  let ty = (strip / (TX / 8u)) * 4u + ((lid >> 3u) & 3u);

  var acc = array<vec4<f32>, ACCS>();
  var staged = array<vec4<f32>, STAGED>();
  var a = array<vec4<f32>, MQ>();
  var b = array<vec4<f32>, NQ>();

  for (var slice = 0u; slice <= slices; slice++) {
    // Slice is on its way while slice − 1 is multiplied. The last turn reads the
    // last slice again and does not use it: a load without a branch can wait.
    let k0 = k_begin + min(slice, slices - 1u) * BK;
    for (var u = 0u; u < COPIES; u++) { // unroll
      let index = lid + u * THREADS;
      if ((EXACT && u * THREADS < A_BLOCKS) || (!EXACT && index < A_BLOCKS)) {
        let at = block_of(index, BM / 4u, A_ALONG_K);
        for (var r = 0u; r < 4u; r++) { // unroll
          if (A_ALONG_K) {
            staged[u * 4u + r] = load_a(row0 + at.i * 4u + r, k0 + at.k * 4u, k_end);
          } else {
            staged[u * 4u + r] = load_a(row0 + at.i * 4u, k0 + at.k * 4u + r, k_end);
          }
        }
      } else if (EXACT || index < A_BLOCKS + B_BLOCKS) {
        let at = block_of(index - A_BLOCKS, BN / 4u, B_ALONG_K);
        for (var r = 0u; r < 4u; r++) { // unroll
          if (B_ALONG_K) {
            staged[u * 4u + r] = load_b(col0 + at.i * 4u + r, k0 + at.k * 4u, k_end);
          } else {
            staged[u * 4u + r] = load_b(col0 + at.i * 4u, k0 + at.k * 4u + r, k_end);
          }
        }
      }
    }
    if (slice > 0u) {
      let buf = (slice - 1u) % BUFS;
      let a_at = buf * BK * AS + ty;
      let b_at = buf * BK * BS + tx;
      for (var k0 = 0u; k0 < BK; k0 += KU) {
        for (var step = 0u; step < KU; step++) { // unroll
          let k = k0 + step;
          for (var q = 0u; q < MQ; q++) { // unroll
            a[q] = as_[a_at + k * AS + q * TY];
          }
          for (var p = 0u; p < NQ; p++) { // unroll
            b[p] = bs_[b_at + k * BS + p * TX];
          }
          for (var q = 0u; q < MQ; q++) { // unroll
            for (var p = 0u; p < NQ; p++) { // unroll
              acc[(q * 4u + 0u) * NQ + p] = fma(vec4<f32>(a[q].x), b[p], acc[(q * 4u + 0u) * NQ + p]);
              acc[(q * 4u + 1u) * NQ + p] = fma(vec4<f32>(a[q].y), b[p], acc[(q * 4u + 1u) * NQ + p]);
              acc[(q * 4u + 2u) * NQ + p] = fma(vec4<f32>(a[q].z), b[p], acc[(q * 4u + 2u) * NQ + p]);
              acc[(q * 4u + 3u) * NQ + p] = fma(vec4<f32>(a[q].w), b[p], acc[(q * 4u + 3u) * NQ + p]);
            }
          }
        }
      }
    }
    if (slice == slices) {
      break;
    }
    if (BUFS == 1u) {
      workgroupBarrier();
    }
    {
      let buf = slice % BUFS;
      for (var u = 0u; u < COPIES; u++) { // unroll
        let index = lid + u * THREADS;
        if ((EXACT && u * THREADS < A_BLOCKS) || (!EXACT && index < A_BLOCKS)) {
          let at = block_of(index, BM / 4u, A_ALONG_K);
          let to = (buf * BK + at.k * 4u) * AS + at.i;
          if (A_ALONG_K) {
            // Every other pair of quads begins with its third row, so that eight
            // threads meet no bank twice (with PAD 1).
            let flip = at.k & 2u;
            let turn = flip != 0u;
            let t = turn_block(staged[u * 4u], staged[u * 4u + 1u], staged[u * 4u + 2u], staged[u * 4u + 3u]);
            as_[to + flip * AS] = select(t[0], t[2], turn);
            as_[to + (flip ^ 1u) * AS] = select(t[1], t[3], turn);
            as_[to + (flip ^ 2u) * AS] = select(t[2], t[0], turn);
            as_[to + (flip ^ 3u) * AS] = select(t[3], t[1], turn);
          } else {
            as_[to] = staged[u * 4u];
            as_[to + AS] = staged[u * 4u + 1u];
            as_[to + 2u * AS] = staged[u * 4u + 2u];
            as_[to + 3u * AS] = staged[u * 4u + 3u];
          }
        } else if (EXACT || index < A_BLOCKS + B_BLOCKS) {
          let at = block_of(index - A_BLOCKS, BN / 4u, B_ALONG_K);
          let to = (buf * BK + at.k * 4u) * BS + at.i;
          if (B_ALONG_K) {
            // Every other pair of quads begins with its third row, so that eight
            // threads meet no bank twice (with PAD 1).
            let flip = at.k & 2u;
            let turn = flip != 0u;
            let t = turn_block(staged[u * 4u], staged[u * 4u + 1u], staged[u * 4u + 2u], staged[u * 4u + 3u]);
            bs_[to + flip * BS] = select(t[0], t[2], turn);
            bs_[to + (flip ^ 1u) * BS] = select(t[1], t[3], turn);
            bs_[to + (flip ^ 2u) * BS] = select(t[2], t[0], turn);
            bs_[to + (flip ^ 3u) * BS] = select(t[3], t[1], turn);
          } else {
            bs_[to] = staged[u * 4u];
            bs_[to + BS] = staged[u * 4u + 1u];
            bs_[to + 2u * BS] = staged[u * 4u + 2u];
            bs_[to + 3u * BS] = staged[u * 4u + 3u];
          }
        }
      }
      workgroupBarrier();
    }
  }

  for (var q = 0u; q < MQ; q++) { // unroll
    for (var r = 0u; r < 4u; r++) { // unroll
      var row = array<vec4<f32>, NQ>();
      for (var p = 0u; p < NQ; p++) { // unroll
        row[p] = acc[(q * 4u + r) * NQ + p];
      }
      store_row(row0 + (q * TY + ty) * 4u + r, col0, tx, row);
    }
  }
}

// --- KERNEL: matmul ---
// C = A·B. A (M, K), B (K, N), C (M, N), all row-major. K and N are multiples
// of 4. Grid (ceil(N/BN), ceil(M/BM), splits) of THREADS threads, TM×TN elements
// each; with more than one split C is (splits, M, N), for matmul_reduce.
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = false;
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> residual: array<vec4<f32>>;   // a_ again when there is none
@group(0) @binding(3) var<storage, read_write> c_: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;   // first vec4 of this split's C

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (i >= mat.m || k >= k_end)) {
    return vec4<f32>();
  }
  return a_[(i * mat.k + k) >> 2u];
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (j >= mat.n || k >= k_end)) {
    return vec4<f32>();
  }
  return vec4<f32>(b_[(k * mat.n + j) >> 2u]);
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    let col = col0 + (p * TX + tx) * 4u;
    if (!CHECK || (row < mat.m && col < mat.n)) {
      let at = (row * mat.n + col) >> 2u;
      var sum = v[p];
      if ((mat.mode & RESIDUAL) != 0u) {
        sum += residual[at];
      }
      if ((mat.mode & ACC) != 0u) {
        sum += c_[out_at + at];
      }
      c_[out_at + at] = sum;
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * ((mat.m * mat.n) >> 2u);
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_scalar ---
// matmul for K or N that are no multiples of 4: elements are read one by one.
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = false;
@group(0) @binding(0) var<storage, read> a_: array<f32>;
@group(0) @binding(1) var<storage, read> b_: array<BT>;
@group(0) @binding(2) var<storage, read> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> c_: array<f32>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (i >= mat.m || k >= k_end) {
    return vec4<f32>();
  }
  let at = i * mat.k + k;
  var v = vec4<f32>(f32(a_[at]), 0.0, 0.0, 0.0);
  if (k + 1u < k_end) {
    v.y = f32(a_[at + 1u]);
  }
  if (k + 2u < k_end) {
    v.z = f32(a_[at + 2u]);
  }
  if (k + 3u < k_end) {
    v.w = f32(a_[at + 3u]);
  }
  return v;
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (j >= mat.n || k >= k_end) {
    return vec4<f32>();
  }
  let at = k * mat.n + j;
  var v = vec4<f32>(f32(b_[at]), 0.0, 0.0, 0.0);
  if (j + 1u < mat.n) {
    v.y = f32(b_[at + 1u]);
  }
  if (j + 2u < mat.n) {
    v.z = f32(b_[at + 2u]);
  }
  if (j + 3u < mat.n) {
    v.w = f32(b_[at + 3u]);
  }
  return v;
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    for (var i = 0u; i < 4u; i++) { // unroll
      let col = col0 + (p * TX + tx) * 4u + i;
      if (row < mat.m && col < mat.n) {
        let at = row * mat.n + col;
        var sum = v[p][i];
        if ((mat.mode & RESIDUAL) != 0u) {
          sum += residual[at];
        }
        if ((mat.mode & ACC) != 0u) {
          sum += c_[out_at + at];
        }
        c_[out_at + at] = sum;
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * mat.m * mat.n;
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_t ---
// C = A·Bᵀ, the gradient of a product's input. A (M, K), B (N, K), C (M, N). K and
// N are multiples of 4. Grid and threads as matmul.
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = true;
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> residual: array<vec4<f32>>;   // a_ again when there is none
@group(0) @binding(3) var<storage, read_write> c_: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;   // first vec4 of this split's C

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (i >= mat.m || k >= k_end)) {
    return vec4<f32>();
  }
  return a_[(i * mat.k + k) >> 2u];
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (j >= mat.n || k >= k_end)) {
    return vec4<f32>();
  }
  return vec4<f32>(b_[(j * mat.k + k) >> 2u]);
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    let col = col0 + (p * TX + tx) * 4u;
    if (!CHECK || (row < mat.m && col < mat.n)) {
      let at = (row * mat.n + col) >> 2u;
      var sum = v[p];
      if ((mat.mode & RESIDUAL) != 0u) {
        sum += residual[at];
      }
      if ((mat.mode & ACC) != 0u) {
        sum += c_[out_at + at];
      }
      c_[out_at + at] = sum;
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * ((mat.m * mat.n) >> 2u);
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_t_scalar ---
// matmul_t for K or N that are no multiples of 4.
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = true;
@group(0) @binding(0) var<storage, read> a_: array<f32>;
@group(0) @binding(1) var<storage, read> b_: array<BT>;
@group(0) @binding(2) var<storage, read> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> c_: array<f32>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (i >= mat.m || k >= k_end) {
    return vec4<f32>();
  }
  let at = i * mat.k + k;
  var v = vec4<f32>(f32(a_[at]), 0.0, 0.0, 0.0);
  if (k + 1u < k_end) {
    v.y = f32(a_[at + 1u]);
  }
  if (k + 2u < k_end) {
    v.z = f32(a_[at + 2u]);
  }
  if (k + 3u < k_end) {
    v.w = f32(a_[at + 3u]);
  }
  return v;
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (j >= mat.n || k >= k_end) {
    return vec4<f32>();
  }
  let at = j * mat.k + k;
  var v = vec4<f32>(f32(b_[at]), 0.0, 0.0, 0.0);
  if (k + 1u < k_end) {
    v.y = f32(b_[at + 1u]);
  }
  if (k + 2u < k_end) {
    v.z = f32(b_[at + 2u]);
  }
  if (k + 3u < k_end) {
    v.w = f32(b_[at + 3u]);
  }
  return v;
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    for (var i = 0u; i < 4u; i++) { // unroll
      let col = col0 + (p * TX + tx) * 4u + i;
      if (row < mat.m && col < mat.n) {
        let at = row * mat.n + col;
        var sum = v[p][i];
        if ((mat.mode & RESIDUAL) != 0u) {
          sum += residual[at];
        }
        if ((mat.mode & ACC) != 0u) {
          sum += c_[out_at + at];
        }
        c_[out_at + at] = sum;
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * mat.m * mat.n;
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_at ---
// C = Aᵀ·B, the gradient of a product's weight. A (K, M), B (K, N), C (M, N). M and
// N are multiples of 4. Grid and threads as matmul.
const A_ALONG_K: bool = false;
const B_ALONG_K: bool = false;
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b_: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> residual: array<vec4<f32>>;   // a_ again when there is none
@group(0) @binding(3) var<storage, read_write> c_: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;   // first vec4 of this split's C

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (i >= mat.m || k >= k_end)) {
    return vec4<f32>();
  }
  return a_[(k * mat.m + i) >> 2u];
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (j >= mat.n || k >= k_end)) {
    return vec4<f32>();
  }
  return vec4<f32>(b_[(k * mat.n + j) >> 2u]);
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    let col = col0 + (p * TX + tx) * 4u;
    if (!CHECK || (row < mat.m && col < mat.n)) {
      let at = (row * mat.n + col) >> 2u;
      var sum = v[p];
      if ((mat.mode & RESIDUAL) != 0u) {
        sum += residual[at];
      }
      if ((mat.mode & ACC) != 0u) {
        sum += c_[out_at + at];
      }
      c_[out_at + at] = sum;
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * ((mat.m * mat.n) >> 2u);
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_at_scalar ---
// matmul_at for M or N that are no multiples of 4.
const A_ALONG_K: bool = false;
const B_ALONG_K: bool = false;
@group(0) @binding(0) var<storage, read> a_: array<f32>;
@group(0) @binding(1) var<storage, read> b_: array<BT>;
@group(0) @binding(2) var<storage, read> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> c_: array<f32>;
@group(0) @binding(4) var<uniform> mat: MatDims;
var<private> out_at: u32;

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (i >= mat.m || k >= k_end) {
    return vec4<f32>();
  }
  let at = k * mat.m + i;
  var v = vec4<f32>(f32(a_[at]), 0.0, 0.0, 0.0);
  if (i + 1u < mat.m) {
    v.y = f32(a_[at + 1u]);
  }
  if (i + 2u < mat.m) {
    v.z = f32(a_[at + 2u]);
  }
  if (i + 3u < mat.m) {
    v.w = f32(a_[at + 3u]);
  }
  return v;
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (j >= mat.n || k >= k_end) {
    return vec4<f32>();
  }
  let at = k * mat.n + j;
  var v = vec4<f32>(f32(b_[at]), 0.0, 0.0, 0.0);
  if (j + 1u < mat.n) {
    v.y = f32(b_[at + 1u]);
  }
  if (j + 2u < mat.n) {
    v.z = f32(b_[at + 2u]);
  }
  if (j + 3u < mat.n) {
    v.w = f32(b_[at + 3u]);
  }
  return v;
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    for (var i = 0u; i < 4u; i++) { // unroll
      let col = col0 + (p * TX + tx) * 4u + i;
      if (row < mat.m && col < mat.n) {
        let at = row * mat.n + col;
        var sum = v[p][i];
        if ((mat.mode & RESIDUAL) != 0u) {
          sum += residual[at];
        }
        if ((mat.mode & ACC) != 0u) {
          sum += c_[out_at + at];
        }
        c_[out_at + at] = sum;
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  out_at = wid.z * mat.m * mat.n;
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, wid.z, lid);
}

// --- KERNEL: matmul_group ---
// Up to three products of one A in one dispatch, such as Q, K and V: Cᵢ = A·Bᵢ.
// A (M, K), Bᵢ (K, nᵢ), Cᵢ (M, nᵢ); K and all nᵢ are multiples of 4, n2 and n3 may
// be 0 (then b1, and scratch of its own for each c, stand in). Grid
// (Σ ceil(nᵢ/BN), ceil(M/BM), 1): a workgroup works on one product.
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = false;
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b1: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> b2: array<vec4<BT>>;
@group(0) @binding(3) var<storage, read> b3: array<vec4<BT>>;
@group(0) @binding(4) var<storage, read_write> c1: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> c2: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> c3: array<vec4<f32>>;
@group(0) @binding(7) var<uniform> mat: MatDims;
var<private> which: u32;   // product of this workgroup
var<private> width: u32;   // its N

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (i >= mat.m || k >= k_end)) {
    return vec4<f32>();
  }
  return a_[(i * mat.k + k) >> 2u];
}

fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (j >= width || k >= k_end)) {
    return vec4<f32>();
  }
  let at = (k * width + j) >> 2u;
  if (which == 0u) {
    return vec4<f32>(b1[at]);
  } else if (which == 1u) {
    return vec4<f32>(b2[at]);
  }
  return vec4<f32>(b3[at]);
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ; p++) { // unroll
    let col = col0 + (p * TX + tx) * 4u;
    if (!CHECK || (row < mat.m && col < width)) {
      let at = (row * width + col) >> 2u;
      var sum = v[p];
      if (which == 0u) {
        if ((mat.mode & ACC) != 0u) {
          sum += c1[at];
        }
        c1[at] = sum;
      } else if (which == 1u) {
        if ((mat.mode & ACC) != 0u) {
          sum += c2[at];
        }
        c2[at] = sum;
      } else {
        if ((mat.mode & ACC) != 0u) {
          sum += c3[at];
        }
        c3[at] = sum;
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  var tile = wid.x;
  which = 0u;
  width = mat.n1;
  if (tile >= (width + BN - 1u) / BN) {
    tile -= (width + BN - 1u) / BN;
    which = 1u;
    width = mat.n2;
    if (tile >= (width + BN - 1u) / BN) {
      tile -= (width + BN - 1u) / BN;
      which = 2u;
      width = mat.n3;
    }
  }
  mm_tile(mat.row0 + wid.y * BM, tile * BN, 0u, lid);
}

// --- KERNEL: matmul_gate_up ---
// The first half of the feed-forward block in one dispatch: gate = A·Wg,
// up = A·Wu, out = act(gate)·up. A (M, K), Wg and Wu (K, N), gate, up, out (M, N);
// K and N are multiples of 4. NQ is even: the left half of a tile's columns comes
// from Wg and the right half from Wu, so a thread holds both factors of an
// element. Grid (ceil(N/(BN/2)), ceil(M/BM), 1).
const A_ALONG_K: bool = true;
const B_ALONG_K: bool = false;
const GELU: bool = false;   // gelu_tanh instead of silu
@group(0) @binding(0) var<storage, read> a_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w_gate: array<vec4<BT>>;
@group(0) @binding(2) var<storage, read> w_up: array<vec4<BT>>;
@group(0) @binding(3) var<storage, read_write> gate: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> up: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> mat: MatDims;
const HALF: u32 = BN / 2u;

fn load_a(i: u32, k: u32, k_end: u32) -> vec4<f32> {
  if (CHECK && (i >= mat.m || k >= k_end)) {
    return vec4<f32>();
  }
  return a_[(i * mat.k + k) >> 2u];
}

// j counts the tile's columns from 2·(its first column): see main.
fn load_b(j: u32, k: u32, k_end: u32) -> vec4<f32> {
  let tile = j / BN;
  let inside = j % BN;
  let col = tile * HALF + inside % HALF;
  if (CHECK && (col >= mat.n || k >= k_end)) {
    return vec4<f32>();
  }
  let at = (k * mat.n + col) >> 2u;
  if (inside < HALF) {
    return vec4<f32>(w_gate[at]);
  }
  return vec4<f32>(w_up[at]);
}

fn sigmoid4(x: vec4<f32>) -> vec4<f32> {
  let e = exp(-abs(x));
  return select(e, vec4<f32>(1.0), x >= vec4<f32>(0.0)) / (1.0 + e);
}

fn store_row(row: u32, col0: u32, tx: u32, v: array<vec4<f32>, NQ>) {
  for (var p = 0u; p < NQ / 2u; p++) { // unroll
    let col = col0 / 2u + (p * TX + tx) * 4u;
    if (!CHECK || (row < mat.m && col < mat.n)) {
      let at = (row * mat.n + col) >> 2u;
      let g = v[p];
      let u = v[p + NQ / 2u];
      gate[at] = g;
      up[at] = u;
      if (GELU) {
        out[at] = g * sigmoid4(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u;
      } else {
        out[at] = g * sigmoid4(g) * u;
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  mm_tile(mat.row0 + wid.y * BM, wid.x * BN, 0u, lid);
}
