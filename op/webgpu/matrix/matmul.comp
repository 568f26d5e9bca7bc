// A matrix product on the GPU's matrix units: C = A·B, + C or + R.
//
// A is stored (M, K), or (K, M) with TURNED; B is stored (K, N). Both are 16-bit
// floats (bfloat16 when compiled with -DBF16) whose rows are whole 16 bytes; K is a
// multiple of BK. M and N may be anything: what is loaded beyond them ends up in
// sums that nobody writes. Sums are float32.
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
layout(constant_id = 9) const bool TURNED = false;
layout(constant_id = 10) const bool HALF_RESULT = false; // C in 16 bits; mode is 0
layout(constant_id = 0) const uint THREADS = 128; // those of a subgroup for each part
layout(local_size_x_id = 0) in;

const uint FM = WM / XM; // fragments of a subgroup along M and N
const uint FN = WN / XN;
const uint SUBGROUPS = BM / WM * (BN / WN);
const uint LANES = THREADS / SUBGROUPS;

layout(set = 0, binding = 0) readonly buffer A_ { uvec4 a[]; }; // eight 16-bit floats each
layout(set = 0, binding = 1) readonly buffer B_ { uvec4 b[]; };
layout(set = 0, binding = 2) readonly buffer R_ { vec4 r[]; };
layout(set = 0, binding = 3) buffer C_ { vec4 c[]; };
layout(set = 0, binding = 3) buffer Halves_ { uvec2 halves[]; }; // C with HALF_RESULT
layout(set = 0, binding = 4) uniform Dims {
  uint tilesM, tilesN;
  uint strideA, strideB; // of rows, in uvec4
  uint strideC;          // of rows of C and R, in vec4
  uint slices;           // of BK, of one part along K
  uint mode;             // 0, 1: + C, or 2: + R
  uint partC;            // vec4s between the results of two parts along K
  uint m, quads;         // of C: rows, and vec4s of a row
};

// Workgroup memory holds slices of A and B, with 16 bytes between rows so that the
// rows of a fragment fall into different banks; and at the end a row of fragments
// for each subgroup, with 32 bytes between rows.
const uint ROW_A = (TURNED ? BM : BK) / 8, ROW_B = BN / 8;
const uint STEP_A = ROW_A + 1, STEP_B = ROW_B + 1;
const uint SLICE_A = (TURNED ? BK : BM) * STEP_A, SLICE_B = BK * STEP_B;
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

// rowA is the row of a slice of A that thread e's 16 bytes belong to. Where a row
// has only 64 bytes, eight threads write rows r and r + 4: those begin in
// different halves of the banks.
uint rowA(uint e) {
  uint row = e / ROW_A;
  if (!TURNED && ROW_A == 4) row = (row & ~7u) | (row & 1u) << 2 | (row >> 1 & 3u);
  return row;
}

// fetch reads a slice into registers, keep writes it to workgroup memory.
void fetch(uint atA, uint atB) {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    nextA[i] = a[atA + rowA(e) * strideA + e % ROW_A];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    nextB[i] = b[atB + e / ROW_B * strideB + e % ROW_B];
  }
}

void keep() {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    near[rowA(e) * STEP_A + e % ROW_A] = nextA[i];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    near[SLICE_A + e / ROW_B * STEP_B + e % ROW_B] = nextB[i];
  }
}

// multiply adds a slice's products to the sums of a subgroup.
void multiply(uint subRow, uint subCol) {
  [[unroll]] for (uint k = 0; k < BK; k += XK) {
    PART_A fa[FM];
    [[unroll]] for (uint i = 0; i < FM; i++) {
      uint row = subRow + i * XM;
      if (TURNED) coopMatLoad(fa[i], near, k * STEP_A + row / 8, STEP_A, gl_CooperativeMatrixLayoutColumnMajor);
      else coopMatLoad(fa[i], near, row * STEP_A + k / 8, STEP_A, gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint j = 0; j < FN; j++) {
      PART_B fb;
      coopMatLoad(fb, near, SLICE_A + k * STEP_B + (subCol + j * XN) / 8, STEP_B, gl_CooperativeMatrixLayoutRowMajor);
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

// put writes a row of fragments, which begins at (row, quad) of C. What is added is
// read before anything is written, all of it at once: C could be the same memory.
const uint PUTS = XM * QUADS / LANES; // vec4s of a thread
void put(uint i, uint row, uint quad) {
  vec4 old[PUTS];
  if (mode == 1)
    [[unroll]] for (uint e = 0; e < PUTS; e++) {
      uint at = e * LANES + gl_SubgroupInvocationID;
      old[e] = c[(row + at / QUADS) * strideC + quad + at % QUADS];
    }
  else if (mode == 2)
    [[unroll]] for (uint e = 0; e < PUTS; e++) {
      uint at = e * LANES + gl_SubgroupInvocationID;
      old[e] = r[(row + at / QUADS) * strideC + quad + at % QUADS];
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
    uint to = gl_WorkGroupID.z * partC + y * strideC + x;
    if (y < m && x < quads) {
      if (HALF_RESULT) halves[to] = uvec2(pair(v.xy), pair(v.zw));
      else c[to] = v;
    }
  }
  subgroupBarrier();
}

void main() {
  // Tiles in groups of GROUP rows, so that those which run at the same time
  // share what they read in the cache.
  const uint GROUP = 8;
  uint id = gl_WorkGroupID.x, group = id / (GROUP * tilesN), first = group * GROUP;
  uint rows = min(tilesM - first, GROUP), within = id % (GROUP * tilesN);
  uint row = (first + within % rows) * BM, col = within / rows * BN;
  uint subRow = gl_SubgroupID / (BN / WN) * WM, subCol = gl_SubgroupID % (BN / WN) * WN;

  [[unroll]] for (uint i = 0; i < FM * FN; i++) sum[i] = SUM(0.0);
  uint k = gl_WorkGroupID.z * slices * BK;
  uint atA = TURNED ? k * strideA + row / 8 : row * strideA + k / 8, stepA = TURNED ? BK * strideA : BK / 8;
  uint atB = k * strideB + col / 8, stepB = BK * strideB;
  fetch(atA, atB);
  keep();
  barrier();
  [[dont_unroll]] for (uint s = 1;; s++) {
    bool more = s < slices;
    atA += stepA;
    atB += stepB;
    if (more) fetch(atA, atB);
    multiply(subRow, subCol);
    barrier();
    if (!more) break;
    keep();
    barrier();
  }
  [[unroll]] for (uint i = 0; i < FM; i++) put(i, row + subRow + i * XM, (col + subCol) / 4);
}
