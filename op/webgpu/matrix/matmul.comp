// Matrix products on the GPU's matrix units: C = A·B, + C or + R. One dispatch may do
// several that share A, each with a B and a C of its own, side by side (GROUP > 1);
// or add several, each with an A, a B and a K of its own (PAIRS > 1): C = Σ A·B.
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
layout(constant_id = 13) const uint HALVES = 0; // bit i: product i has C in 16 bits; mode is 0
layout(constant_id = 0) const uint THREADS = 128; // those of a subgroup for each part
layout(local_size_x_id = 0) in;

const uint FM = WM / XM; // fragments of a subgroup along M and N
const uint FN = WN / XN;
const uint SUBGROUPS = BM / WM * (BN / WN);
const uint LANES = THREADS / SUBGROUPS;

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
  uint pad0, pad1, pad2;
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
#define FETCH(a, b) \
  { \
    [[unroll]] for (uint i = 0; i < LOADS_A; i++) { \
      uint e = i * THREADS + gl_LocalInvocationIndex; \
      nextA[i] = a[atA + spread(e, ROW_A) * strideA + e % ROW_A]; \
    } \
    [[unroll]] for (uint i = 0; i < LOADS_B; i++) { \
      uint e = i * THREADS + gl_LocalInvocationIndex; \
      nextB[i] = b[atB + spread(e, ROW_B) * strideB + e % ROW_B]; \
    } \
  }
void fetch() {
  if (PAIRS == 1 && GROUP == 1 || which == 0) FETCH(a0, b0)
  else if (PAIRS == 2 || GROUP == 2 || which == 1) FETCH(a1, b1)
  else FETCH(a2, b2)
}

void keep() {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    near[spread(e, ROW_A) * STEP_A + e % ROW_A] = nextA[i];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    near[SLICE_A + spread(e, ROW_B) * STEP_B + e % ROW_B] = nextB[i];
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

// pair rounds two numbers to 16 bits, to nearest, ties to even. A conversion would
// do for f16 only: NVIDIA's driver cuts bits off for bfloat16.
#ifdef BF16
uint near16(float x) {
  uint v = floatBitsToUint(x);
  if ((v & 0x7fffffffu) > 0x7f800000u) return v >> 16 | 0x40u; // NaN stays NaN
  return (v + 0x7fffu + (v >> 16 & 1u)) >> 16;
}
uint pair(vec2 x) { return near16(x.x) | near16(x.y) << 16; }
#else
uint pair(vec2 x) { return packHalf2x16(x); }
#endif

// Reading and writing C of a product of the group.
vec4 sumAt(uint product, uint at) {
  if (GROUP == 1 || product == 0) return c0[at];
  if (GROUP == 2 || product == 1) return c1[at];
  return c2[at];
}

#define WRITE(h, c, product) \
  { \
    if ((HALVES >> product & 1u) != 0) h[at] = uvec2(pair(v.xy), pair(v.zw)); \
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
  uint col = tile * BN;
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
  [[unroll]] for (uint i = 0; i < FM; i++) put(i, product, row + subRow + i * XM, (col + subCol) / 4);
}
