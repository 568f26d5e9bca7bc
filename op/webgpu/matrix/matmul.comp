// Matrix products on the GPU's matrix units: C = op(A)·op(B), + C or + R.
//
// A and B hold 16-bit floats (f16 here; matrix.go rewrites the compiled module
// for bfloat16), padded with zeros to whole tiles, so that no load needs a
// check. Sums are float32. A workgroup computes a tile of BM × BN; each of its
// subgroups, of 32 threads, a part of WM × WN in fragments of 16 × 16. Slices of
// BK along K go through workgroup memory: while one is multiplied, the next is
// on its way from memory to registers.
//
// Compiled three times: with TRANS_A (A is stored (K, M)), with TRANS_B (B is
// stored (N, K)), and with neither.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 1) const uint BM = 128;
layout(constant_id = 2) const uint BN = 128;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 64;
layout(constant_id = 5) const uint WN = 64;
layout(local_size_x_id = 0) in; // THREADS

const uint THREADS = BM / WM * (BN / WN) * 32;
const uint FM = WM / 16; // fragments of a subgroup along M and N
const uint FN = WN / 16;

layout(set = 0, binding = 0) readonly buffer A_ { uvec4 a[]; }; // eight 16-bit floats each
layout(set = 0, binding = 1) readonly buffer B_ { uvec4 b[]; };
layout(set = 0, binding = 2) readonly buffer R_ { float r[]; }; // what C starts from
layout(set = 0, binding = 3) buffer C_ { float c[]; };
layout(set = 0, binding = 4) uniform Dims {
  uint tilesM, tilesN; // of C
  uint strideA, strideB; // of rows, in uvec4
  uint strideC;        // in floats
  uint slices;         // of BK, of one part along K
  uint start;          // 0: from zero, 1: from R, 2: from C
  uint partC;          // floats between the results of two parts along K
};

// Slices in workgroup memory: rows along K or across it, with 16 bytes between
// rows so that the fragments' rows fall into different banks.
#ifdef TRANS_A
const uint ROWS_A = BK, ROW_A = BM / 8;
#else
const uint ROWS_A = BM, ROW_A = BK / 8;
#endif
#ifdef TRANS_B
const uint ROWS_B = BN, ROW_B = BK / 8;
#else
const uint ROWS_B = BK, ROW_B = BN / 8;
#endif
const uint STEP_A = ROW_A + 1, STEP_B = ROW_B + 1;
shared uvec4 sliceA[ROWS_A * STEP_A];
shared uvec4 sliceB[ROWS_B * STEP_B];

const uint LOADS_A = BM * BK / 8 / THREADS; // of each thread for a slice
const uint LOADS_B = BN * BK / 8 / THREADS;
uvec4 nextA[LOADS_A];
uvec4 nextB[LOADS_B];

#define FRAGMENT(T, USE) coopmat<T, gl_ScopeSubgroup, 16, 16, USE>

// fetch reads a slice into registers, keep writes it to workgroup memory.
void fetch(uint atA, uint atB) {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    nextA[i] = a[atA + e / ROW_A * strideA + e % ROW_A];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    nextB[i] = b[atB + e / ROW_B * strideB + e % ROW_B];
  }
}

void keep() {
  [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    sliceA[e / ROW_A * STEP_A + e % ROW_A] = nextA[i];
  }
  [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
    uint e = i * THREADS + gl_LocalInvocationIndex;
    sliceB[e / ROW_B * STEP_B + e % ROW_B] = nextB[i];
  }
}

void main() {
  // Tiles in groups of GROUP rows, so that those which run at the same time
  // share what they read in the cache.
  const uint GROUP = 8;
  uint id = gl_WorkGroupID.x, group = id / (GROUP * tilesN), first = group * GROUP;
  uint rows = min(tilesM - first, GROUP), within = id % (GROUP * tilesN);
  uint row = (first + within % rows) * BM, col = within / rows * BN;
  uint part = gl_WorkGroupID.z;

  uint sub = gl_SubgroupID, subRow = sub / (BN / WN) * WM, subCol = sub % (BN / WN) * WN;
  uint cAt = part * partC + (row + subRow) * strideC + col + subCol;

  FRAGMENT(float, gl_MatrixUseAccumulator) sum[FM * FN];
  [[unroll]] for (uint i = 0; i < FM; i++)
    [[unroll]] for (uint j = 0; j < FN; j++) {
      uint at = cAt + i * 16 * strideC + j * 16;
      if (start == 1) coopMatLoad(sum[i * FN + j], r, at, strideC, gl_CooperativeMatrixLayoutRowMajor);
      else if (start == 2) coopMatLoad(sum[i * FN + j], c, at, strideC, gl_CooperativeMatrixLayoutRowMajor);
      else sum[i * FN + j] = FRAGMENT(float, gl_MatrixUseAccumulator)(0.0);
    }

  uint k = part * slices * BK;
#ifdef TRANS_A
  uint atA = k * strideA + row / 8, stepA = BK * strideA;
#else
  uint atA = row * strideA + k / 8, stepA = BK / 8;
#endif
#ifdef TRANS_B
  uint atB = col * strideB + k / 8, stepB = BK / 8;
#else
  uint atB = k * strideB + col / 8, stepB = BK * strideB;
#endif
  fetch(atA, atB);
  keep();
  barrier();
  [[dont_unroll]] for (uint s = 1;; s++) {
    bool more = s < slices;
    atA += stepA;
    atB += stepB;
    if (more) fetch(atA, atB);
    [[unroll]] for (uint kk = 0; kk < BK; kk += 16) {
      FRAGMENT(float16_t, gl_MatrixUseA) fa[FM];
      [[unroll]] for (uint i = 0; i < FM; i++)
#ifdef TRANS_A
        coopMatLoad(fa[i], sliceA, kk * STEP_A + (subRow + i * 16) / 8, STEP_A, gl_CooperativeMatrixLayoutColumnMajor);
#else
        coopMatLoad(fa[i], sliceA, (subRow + i * 16) * STEP_A + kk / 8, STEP_A, gl_CooperativeMatrixLayoutRowMajor);
#endif
      [[unroll]] for (uint j = 0; j < FN; j++) {
        FRAGMENT(float16_t, gl_MatrixUseB) fb;
#ifdef TRANS_B
        coopMatLoad(fb, sliceB, (subCol + j * 16) * STEP_B + kk / 8, STEP_B, gl_CooperativeMatrixLayoutColumnMajor);
#else
        coopMatLoad(fb, sliceB, kk * STEP_B + (subCol + j * 16) / 8, STEP_B, gl_CooperativeMatrixLayoutRowMajor);
#endif
        [[unroll]] for (uint i = 0; i < FM; i++) sum[i * FN + j] = coopMatMulAdd(fa[i], fb, sum[i * FN + j]);
      }
    }
    if (!more) break;
    barrier();
    keep();
    barrier();
  }
  [[unroll]] for (uint i = 0; i < FM; i++)
    [[unroll]] for (uint j = 0; j < FN; j++)
      coopMatStore(sum[i * FN + j], c, cAt + i * 16 * strideC + j * 16, strideC, gl_CooperativeMatrixLayoutRowMajor);
}
