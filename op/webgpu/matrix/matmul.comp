// A matrix product on the GPU's matrix units: C = Aᵀ·B, + C or + R.
//
// A is stored (K, M) and B (K, N), both in 16-bit floats (bfloat16 when compiled
// with -DBF16), padded with zeros to whole tiles, so that no load needs a check.
// This layout is the fastest of the four, and the launcher has to convert its
// operands anyway; it turns them where needed. Sums are float32.
//
// A workgroup computes a tile of BM × BN; each of its subgroups a part of WM × WN
// in fragments of XM × XN × XK, the shape that the device's units multiply. Slices
// of BK along K go through workgroup memory: while one is multiplied, the next is
// on its way from memory to registers.
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
layout(constant_id = 0) const uint THREADS = 128; // those of a subgroup for each part
layout(local_size_x_id = 0) in;

const uint FM = WM / XM; // fragments of a subgroup along M and N
const uint FN = WN / XN;

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

// Slices in workgroup memory, with 16 bytes between rows so that the rows of a
// fragment fall into different banks.
const uint ROW_A = BM / 8, ROW_B = BN / 8;
const uint STEP_A = ROW_A + 1, STEP_B = ROW_B + 1;
shared uvec4 sliceA[BK * STEP_A];
shared uvec4 sliceB[BK * STEP_B];

const uint LOADS_A = BM * BK / 8 / THREADS; // of each thread for a slice
const uint LOADS_B = BN * BK / 8 / THREADS;
uvec4 nextA[LOADS_A];
uvec4 nextB[LOADS_B];

#define SUM coopmat<float, gl_ScopeSubgroup, XM, XN, gl_MatrixUseAccumulator>
#define PART_A coopmat<HALF, gl_ScopeSubgroup, XM, XK, gl_MatrixUseA>
#define PART_B coopmat<HALF, gl_ScopeSubgroup, XK, XN, gl_MatrixUseB>

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

  SUM sum[FM * FN];
  [[unroll]] for (uint i = 0; i < FM; i++)
    [[unroll]] for (uint j = 0; j < FN; j++) {
      uint at = cAt + i * XM * strideC + j * XN;
      if (start == 1) coopMatLoad(sum[i * FN + j], r, at, strideC, gl_CooperativeMatrixLayoutRowMajor);
      else if (start == 2) coopMatLoad(sum[i * FN + j], c, at, strideC, gl_CooperativeMatrixLayoutRowMajor);
      else sum[i * FN + j] = SUM(0.0);
    }

  uint k = part * slices * BK;
  uint atA = k * strideA + row / 8, stepA = BK * strideA;
  uint atB = k * strideB + col / 8, stepB = BK * strideB;
  fetch(atA, atB);
  keep();
  barrier();
  [[dont_unroll]] for (uint s = 1;; s++) {
    bool more = s < slices;
    atA += stepA;
    atB += stepB;
    if (more) fetch(atA, atB);
    [[unroll]] for (uint kk = 0; kk < BK; kk += XK) {
      PART_A fa[FM];
      [[unroll]] for (uint i = 0; i < FM; i++)
        coopMatLoad(fa[i], sliceA, kk * STEP_A + (subRow + i * XM) / 8, STEP_A, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint j = 0; j < FN; j++) {
        PART_B fb;
        coopMatLoad(fb, sliceB, kk * STEP_B + (subCol + j * XN) / 8, STEP_B, gl_CooperativeMatrixLayoutRowMajor);
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
      coopMatStore(sum[i * FN + j], c, cAt + i * XM * strideC + j * XN, strideC, gl_CooperativeMatrixLayoutRowMajor);
}
