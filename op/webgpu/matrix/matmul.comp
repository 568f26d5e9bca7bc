// Matrix products on the GPU's matrix units: C = A·B, + C or + R. One dispatch may do
// several that share A, each with a B and a C of its own, side by side (GROUP > 1);
// or add several, each with an A, a B and a K of its own (PAIRS > 1): C = Σ A·B; or do
// two of one A and an activation (GATED): C0 = A·B0, C1 = A·B1, C2 = act(C0)·C1. Products
// of TURNED have C turned by RoPE's angles (04_rope.wgsl), in heads of HEAD columns.
//
// A is stored (M, K), or (K, M) with TURNED_A; B is stored (K, N), or (N, K) with
// TURNED_B. Both are 16-bit floats (bfloat16 when compiled with -DBF16) whose rows
// are whole 16 bytes; K is a multiple of BK. M and N may be anything: what is loaded
// beyond them ends up in sums that nobody writes. Sums are float32.
//
// A workgroup computes a tile of BM × BN; each of its subgroups a part of WM × WN
// in fragments of XM × XN × XK, the shape that the device's units multiply. Slices
// of BK along K go through workgroup memory: while one is multiplied, the next is
// on its way from memory to registers. Sums leave through workgroup memory too:
// what a thread holds of a fragment is scattered over rows, and written like that
// it would cost as much as the product.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
#ifdef BF16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#else
#define HALF float16_t
#endif

layout(constant_id = 1) const uint BM = 128;
layout(constant_id = 2) const uint BN = 128;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 64;
layout(constant_id = 5) const uint WN = 64;
layout(constant_id = 6) const uint XM = 16;
layout(constant_id = 7) const uint XN = 16;
layout(constant_id = 8) const uint XK = 16;
layout(constant_id = 9) const bool TURNED_A = false;
layout(constant_id = 10) const bool TURNED_B = false;
layout(constant_id = 11) const uint PAIRS = 1; // up to 3; one of PAIRS and GROUP is 1
layout(constant_id = 12) const uint GROUP = 1;
layout(constant_id = 13) const uint HALVES = 0; // bit i: C of product i has 16 bits; mode is 0
layout(constant_id = 14) const bool GATED = false; // PAIRS and GROUP are 1, mode is 0
layout(constant_id = 15) const bool GELU = false;  // instead of SiLU
layout(constant_id = 16) const uint HEAD = 8;   // a multiple of 8; WN is one of HEAD
layout(constant_id = 17) const uint TURNED = 0; // bit i: C of product i is turned; mode is 0, r the angles
layout(constant_id = 18) const bool SPLITS = false; // bfloat16 by splitting: the launcher has tried it
layout(constant_id = 0) const uint THREADS = 128; // those of a subgroup for each part
layout(local_size_x_id = 0) in;

const uint FM = WM / XM; // fragments of a subgroup along M and N
const uint FN = WN / XN;
const uint SUBGROUPS = BM / WM * (BN / WN);
const uint LANES = THREADS / SUBGROUPS;
// Columns of one product in a tile, and in a subgroup's part of it. With GATED the left
// half of each part belongs to B0 and the right half to B1.
const uint COLS = GATED ? BN / 2 : BN;
const uint PART = GATED ? WN / 2 : WN;

layout(set = 0, binding = 0) readonly buffer A0_ { uvec4 a0[]; }; // eight 16-bit floats each
layout(set = 0, binding = 1) readonly buffer A1_ { uvec4 a1[]; };
layout(set = 0, binding = 2) readonly buffer A2_ { uvec4 a2[]; };
layout(set = 0, binding = 3) readonly buffer B0_ { uvec4 b0[]; };
layout(set = 0, binding = 4) readonly buffer B1_ { uvec4 b1[]; };
layout(set = 0, binding = 5) readonly buffer B2_ { uvec4 b2[]; };
layout(set = 0, binding = 6) readonly buffer R_ { vec4 r[]; };
layout(set = 0, binding = 7) buffer C0_ { vec4 c0[]; };
layout(set = 0, binding = 8) buffer C1_ { vec4 c1[]; };
layout(set = 0, binding = 9) buffer C2_ { vec4 c2[]; };
layout(set = 0, binding = 7) buffer H0_ { uvec2 h0[]; }; // C in 16 bits
layout(set = 0, binding = 8) buffer H1_ { uvec2 h1[]; };
layout(set = 0, binding = 9) buffer H2_ { uvec2 h2[]; };
struct Product {
  uint strideA, strideB; // of rows, in uvec4
  uint slices;           // of BK, of one part along K
  uint tilesN;
  uint quads;            // vec4s of a row of C and R
  uint zero;
  uint positions;        // row i of C has position i modulo positions
  uint pad;
};
layout(set = 0, binding = 10) uniform Dims {
  uint tilesM, tilesN; // of all products of a group
  uint m;
  uint mode;           // 0, 1: + C, or 2: + R
  Product products[3]; // of a group, or pairs to add
};

// Workgroup memory holds slices of A and B, with 16 bytes between rows so that the
// rows of a fragment fall into different banks; and at the end a row of fragments
// for each subgroup, with 32 bytes between rows.
const uint ROW_A = (TURNED_A ? BM : BK) / 8, ROW_B = (TURNED_B ? BK : BN) / 8;
const uint STEP_A = ROW_A + 1, STEP_B = ROW_B + 1;
const uint SLICE_A = (TURNED_A ? BK : BM) * STEP_A, SLICE_B = (TURNED_B ? BN : BK) * STEP_B;
const uint QUADS = WN / 4, STEP_C = QUADS + 2;
const uint STAGE = XM * STEP_C;
const uint SLICES = SLICE_A + SLICE_B, STAGES = SUBGROUPS * STAGE;
shared uvec4 near[SLICES > STAGES ? SLICES : STAGES];

const uint LOADS_A = BM * BK / 8 / THREADS; // of each thread for a slice
const uint LOADS_B = BN * BK / 8 / THREADS;
uvec4 nextA[LOADS_A];
uvec4 nextB[LOADS_B];

#define SUM coopmat<float, gl_ScopeSubgroup, XM, XN, gl_MatrixUseAccumulator>
#define PART_A coopmat<HALF, gl_ScopeSubgroup, XM, XK, gl_MatrixUseA>
#define PART_B coopmat<HALF, gl_ScopeSubgroup, XK, XN, gl_MatrixUseB>
SUM sum[FM * FN];

// spread is the row of a slice that thread e's 16 bytes belong to. Where a row has
// only 64 bytes, eight threads write rows r and r + 4: those begin in different
// halves of the banks.
uint spread(uint e, uint width) {
  uint row = e / width;
  if (width == 4) row = (row & ~7u) | (row & 1u) << 2 | (row >> 1 & 3u);
  return row;
}

// Thread e's 16 bytes of B with GATED: every other load of a thread is B1's.
const uint HALF_ROW = COLS / 8;
uint gatedRow(uint i) { return ((i >> 1) * THREADS + gl_LocalInvocationIndex) / HALF_ROW; }
uint gatedCol(uint i) { return ((i >> 1) * THREADS + gl_LocalInvocationIndex) % HALF_ROW; }
uint gatedPlace(uint i) { return gatedCol(i) / (PART / 8) * (WN / 8) + (i & 1) * (PART / 8) + gatedCol(i) % (PART / 8); }

// Where the next slice comes from.
uint which;            // of the products
uint atA, atB;         // its first element, in uvec4
uint strideA, strideB; // of rows
uint stepA, stepB;     // from slice to slice

// begin goes to the first slice of a product's part along K, for the tile at (row, col).
void begin(uint product, uint row, uint col) {
  which = product;
  strideA = products[which].strideA;
  strideB = products[which].strideB;
  stepA = TURNED_A ? BK * strideA : BK / 8;
  stepB = TURNED_B ? BK / 8 : BK * strideB;
  uint slice = gl_WorkGroupID.z * products[which].slices;
  atA = (TURNED_A ? row / 8 : row * strideA) + slice * stepA;
  atB = (TURNED_B ? col * strideB : col / 8) + slice * stepB;
}

// fetch reads the next slice into registers, keep writes it to workgroup memory.
#define FETCH_A(a) \
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) { \
    uint e = i * THREADS + gl_LocalInvocationIndex; \
    nextA[i] = a[atA + spread(e, ROW_A) * strideA + e % ROW_A]; \
  }
#define FETCH_B(b) \
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) { \
    uint e = i * THREADS + gl_LocalInvocationIndex; \
    nextB[i] = b[atB + spread(e, ROW_B) * strideB + e % ROW_B]; \
  }
void fetch() {
  if (GATED) {
    FETCH_A(a0)
    [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
      uint at = atB + gatedRow(i) * strideB + gatedCol(i);
      if ((i & 1) == 0) nextB[i] = b0[at];
      else nextB[i] = b1[at];
    }
  } else if (PAIRS == 1 && GROUP == 1 || which == 0) {
    FETCH_A(a0)
    FETCH_B(b0)
  } else if (PAIRS == 2 || GROUP == 2 || which == 1) {
    FETCH_A(a1)
    FETCH_B(b1)
  } else {
    FETCH_A(a2)
    FETCH_B(b2)
  }
}

void keep() {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    near[spread(e, ROW_A) * STEP_A + e % ROW_A] = nextA[i];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    if (GATED) near[SLICE_A + gatedRow(i) * STEP_B + gatedPlace(i)] = nextB[i];
    else near[SLICE_A + spread(e, ROW_B) * STEP_B + e % ROW_B] = nextB[i];
  }
}

// multiply adds a slice's products to the sums of a subgroup.
void multiply(uint subRow, uint subCol) {
  [[unroll]] for (uint k = 0; k < BK; k += XK) {
    PART_A fa[FM];
    [[unroll]] for (uint i = 0; i < FM; i++) {
      uint row = subRow + i * XM;
      if (TURNED_A) coopMatLoad(fa[i], near, k * STEP_A + row / 8, STEP_A, gl_CooperativeMatrixLayoutColumnMajor);
      else coopMatLoad(fa[i], near, row * STEP_A + k / 8, STEP_A, gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint j = 0; j < FN; j++) {
      PART_B fb;
      uint col = subCol + j * XN;
      if (TURNED_B) coopMatLoad(fb, near, SLICE_A + col * STEP_B + k / 8, STEP_B, gl_CooperativeMatrixLayoutColumnMajor);
      else coopMatLoad(fb, near, SLICE_A + k * STEP_B + col / 8, STEP_B, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0; i < FM; i++) sum[i * FN + j] = coopMatMulAdd(fa[i], fb, sum[i * FN + j]);
    }
  }
}

// narrow rounds to 16 bits, to nearest, ties to even; NaN stays NaN. A conversion would
// do for f16 only: NVIDIA's driver cuts bits off for bfloat16. With SPLITS Dekker's
// splitting (1971) leaves the eight upper bits of a float32, rounded so, in three steps
// where integers take eight; beyond 2¹²⁸/65537 = 5.2e33 it gives NaN, below 2⁻¹²⁶
// perhaps 0.
#ifdef BF16
uint near16(float x) {
  uint v = floatBitsToUint(x);
  if ((v & 0x7fffffffu) > 0x7f800000u) return v >> 16 | 0x40u; // rounding could end a NaN
  return (v + 0x7fffu + (v >> 16 & 1u)) >> 16;
}
uint pair(float x, float y) { return near16(x) | near16(y) << 16; }
uvec2 narrow(vec4 v) {
  if (!SPLITS) return uvec2(pair(v.x, v.y), pair(v.z, v.w));
  precise vec4 c = v * 65537.0;
  precise vec4 low = c - v;
  precise vec4 high = c - low;
  uvec4 bits = floatBitsToUint(high);
  return bits.xz >> 16 | bits.yw & 0xffff0000u;
}
vec2 wide(uint x) { return vec2(uintBitsToFloat(x << 16), uintBitsToFloat(x & 0xffff0000u)); }
#else
uvec2 narrow(vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
vec2 wide(uint x) { return unpackHalf2x16(x); }
#endif

// Reading and writing C of a product of the group.
vec4 sumAt(uint product, uint at) {
  if (GROUP == 1 || product == 0) return c0[at];
  if (GROUP == 2 || product == 1) return c1[at];
  return c2[at];
}

#define WRITE(h, c, product) \
  { \
    if ((HALVES >> product & 1u) != 0) h[at] = narrow(v); \
    else c[at] = v; \
  }
void write(uint product, uint at, vec4 v) {
  if (GROUP == 1 || product == 0) WRITE(h0, c0, 0)
  else if (GROUP == 2 || product == 1) WRITE(h1, c1, 1)
  else WRITE(h2, c2, 2)
}

// put writes a row of fragments, which begins at (row, quad) of a product's C. What is
// added is read before anything is written, all of it at once: C could be the same
// memory.
const uint PUTS = XM * QUADS / LANES; // vec4s of a thread
void put(uint i, uint product, uint row, uint quad) {
  uint quads = products[product].quads;
  vec4 old[PUTS];
  if (mode == 1)
    [[unroll]] for (uint e = 0; e < PUTS; e++) {
      uint at = e * LANES + gl_SubgroupInvocationID;
      old[e] = sumAt(product, (row + at / QUADS) * quads + quad + at % QUADS);
    }
  else if (mode == 2)
    [[unroll]] for (uint e = 0; e < PUTS; e++) {
      uint at = e * LANES + gl_SubgroupInvocationID;
      old[e] = r[(row + at / QUADS) * quads + quad + at % QUADS];
    }
  else
    [[unroll]] for (uint e = 0; e < PUTS; e++) old[e] = vec4(0.0);
  uint stage = gl_SubgroupID * STAGE;
  [[unroll]] for (uint j = 0; j < FN; j++)
    coopMatStore(sum[i * FN + j], near, stage + j * XN / 4, STEP_C, gl_CooperativeMatrixLayoutRowMajor);
  subgroupBarrier();
  [[unroll]] for (uint e = 0; e < PUTS; e++) {
    uint at = e * LANES + gl_SubgroupInvocationID, y = row + at / QUADS, x = quad + at % QUADS;
    vec4 v = uintBitsToFloat(near[stage + at / QUADS * STEP_C + at % QUADS]) + old[e];
    if (y < m && x < quads) write(product, (gl_WorkGroupID.z * m + y) * quads + x, v);
  }
  subgroupBarrier();
}

// putTurned is put of a product that is TURNED. A thread turns pairs of vec4s, half a
// head apart; parts begin with a head.
const uint HALF_HEAD = HEAD / 8, HALF_QUADS = QUADS / 2; // vec4s, pairs of them in a row
const uint TURNS = (XM * HALF_QUADS + LANES - 1) / LANES; // of a thread
void putTurned(uint i, uint product, uint row, uint quad) {
  uint quads = products[product].quads;
  vec4 c[TURNS], s[TURNS];
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint n = e * LANES + gl_SubgroupInvocationID;
    uint angle = (row + n / HALF_QUADS) % products[0].positions * (2 * HALF_HEAD) + n % HALF_HEAD;
    c[e] = r[angle];
    s[e] = r[angle + HALF_HEAD];
  }
  uint stage = gl_SubgroupID * STAGE;
  [[unroll]] for (uint j = 0; j < FN; j++)
    coopMatStore(sum[i * FN + j], near, stage + j * XN / 4, STEP_C, gl_CooperativeMatrixLayoutRowMajor);
  subgroupBarrier();
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint n = e * LANES + gl_SubgroupInvocationID, y = n / HALF_QUADS;
    uint pair = n % HALF_QUADS, left = pair + pair / HALF_HEAD * HALF_HEAD, x = quad + left;
    if (n < XM * HALF_QUADS && row + y < m && x < quads) {
      uint at = (row + y) * quads + x;
      vec4 a = uintBitsToFloat(near[stage + y * STEP_C + left]), b = uintBitsToFloat(near[stage + y * STEP_C + left + HALF_HEAD]);
      write(product, at, a * c[e] - b * s[e]);
      write(product, at + HALF_HEAD, b * c[e] + a * s[e]);
    }
  }
  subgroupBarrier();
}

// KEEP_GATED writes a C and makes v what is stored. NVIDIA's driver leaves out that a
// number is packed and unpacked, rounding and all, unless something unknown is between.
#define KEEP_GATED(h, c, product) \
  { \
    if ((HALVES >> product & 1u) != 0) { \
      uvec2 two = narrow(v); \
      h[at] = two; \
      two ^= products[0].zero; \
      v = vec4(wide(two.x), wide(two.y)); \
    } else c[at] = v; \
  }

// activate is SiLU, or GELU by tanh, without overflow in exp.
vec4 activate(vec4 x) {
  vec4 z = GELU ? 1.5957691216057308 * (x + 0.044715 * x * x * x) : x;
  vec4 e = exp(-abs(z));
  return x * (mix(e, vec4(1.0), greaterThanEqual(z, vec4(0.0))) / (1.0 + e)); // as 06_activation.wgsl, to the bit
}

// putGated is put with GATED. The activation sees C0 and C1 as they are stored.
void putGated(uint i, uint row, uint quad) {
  const uint HALF_QUADS = PART / 4;
  uint quads = products[0].quads, stage = gl_SubgroupID * STAGE;
  [[unroll]] for (uint j = 0; j < FN; j++)
    coopMatStore(sum[i * FN + j], near, stage + j * XN / 4, STEP_C, gl_CooperativeMatrixLayoutRowMajor);
  subgroupBarrier();
  [[unroll]] for (uint e = 0; e < PUTS / 2; e++) {
    uint n = e * LANES + gl_SubgroupInvocationID, from = stage + n / HALF_QUADS * STEP_C + n % HALF_QUADS;
    uint y = row + n / HALF_QUADS, x = quad + n % HALF_QUADS, at = y * quads + x;
    if (y < m && x < quads) {
      vec4 v = uintBitsToFloat(near[from]);
      KEEP_GATED(h0, c0, 0)
      vec4 gate = v;
      v = uintBitsToFloat(near[from + HALF_QUADS]);
      KEEP_GATED(h1, c1, 1)
      v *= activate(gate);
      KEEP_GATED(h2, c2, 2)
    }
  }
  subgroupBarrier();
}

void main() {
  // Tiles in bands of BAND rows, so that those which run at the same time share what
  // they read in the cache.
  const uint BAND = 8;
  uint id = gl_WorkGroupID.x, first = id / (BAND * tilesN) * BAND;
  uint rows = min(tilesM - first, BAND), within = id % (BAND * tilesN);
  uint row = (first + within % rows) * BM, tile = within / rows, product = 0;
  if (GROUP > 1 && tile >= products[0].tilesN) {
    tile -= products[0].tilesN;
    product = 1;
    if (GROUP > 2 && tile >= products[1].tilesN) {
      tile -= products[1].tilesN;
      product = 2;
    }
  }
  uint col = tile * COLS;
  uint subRow = gl_SubgroupID / (BN / WN) * WM, subCol = gl_SubgroupID % (BN / WN) * WN;

  [[unroll]] for (uint i = 0; i < FM * FN; i++) sum[i] = SUM(0.0);
  begin(product, row, col);
  uint left = products[product].slices;
  fetch();
  keep();
  barrier();
  [[dont_unroll]] for (;;) {
    left--;
    atA += stepA;
    atB += stepB;
    if (PAIRS > 1 && left == 0 && which < PAIRS - 1) {
      begin(which + 1, row, col);
      left = products[which].slices;
    }
    bool more = left > 0;
    if (more) fetch();
    multiply(subRow, subCol);
    barrier();
    if (!more) break;
    keep();
    barrier();
  }
  // Written out: a loop that NVIDIA's driver finds too long to unroll would move all sums
  // to memory, and products would take four times as long.
#define PUT(i) \
  if (i < FM) { \
    if (GATED) putGated(i % FM, row + subRow + i * XM, (col + subCol / 2) / 4); \
    else if (TURNED != 0 && (TURNED >> product & 1u) != 0) putTurned(i % FM, product, row + subRow + i * XM, (col + subCol) / 4); \
    else put(i % FM, product, row + subRow + i * XM, (col + subCol) / 4); \
  }
  PUT(0) PUT(1) PUT(2) PUT(3) PUT(4) PUT(5) PUT(6) PUT(7)
}
