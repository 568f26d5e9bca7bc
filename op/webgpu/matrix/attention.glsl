// What the attention kernels for matrix units share: sizes, types, and how operands
// get from memory into fragments.
//
// Queries, keys, values, the output and its gradient are 16-bit floats in memory (f16,
// or bfloat16 when compiled with -DBF16); weights are rounded to 16 bits where they
// enter a product; sums, softmax and everything else are float32. Results are float32
// or, with HALF_RESULT, 16 bits where a product reads them. A workgroup has SUBGROUPS subgroups; each owns OWN fragments of rows and
// keeps their sums in registers, while tiles of OTHER rows of the other side go
// through workgroup memory and are taken in strips of STRIP. The sums that a
// subgroup computes become the left factor of its next product: in registers with
// -DNV_CONVERT (VK_NV_cooperative_matrix2), else through memory of its own.
//
// Which row and column a component of a fragment has is the driver's affair. Where
// it matters, fragments are loaded with row and column numbers, component by
// component beside the others. Sums that live through the loop are only touched as whole
// fragments, and in loops that are all unrolled: otherwise NVIDIA's driver keeps their
// array in memory, which costs more than the products.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#ifdef NV_CONVERT
#extension GL_NV_cooperative_matrix2 : require
#endif
#ifdef BF16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#define HALF2 bf16vec2
#else
#define HALF float16_t
#define HALF2 f16vec2
#endif

layout(constant_id = 0) const uint THREADS = 128; // LANES of every subgroup
layout(constant_id = 1) const uint LANES = 32;
layout(constant_id = 2) const uint XM = 16; // the device multiplies (XM, XK) × (XK, XN)
layout(constant_id = 3) const uint XN = 16;
layout(constant_id = 4) const uint XK = 16;
layout(constant_id = 5) const uint D = 64; // head size, a multiple of XN and XK
layout(constant_id = 6) const uint OWN = 1;
layout(constant_id = 7) const uint OTHER = 64;
layout(constant_id = 8) const uint STRIP = 32; // a part of OTHER, a multiple of XN and XK
layout(constant_id = 9) const bool HAS_DOC = false;
layout(constant_id = 10) const bool EARLY = true; // fetch a tile while the one before is in use
layout(constant_id = 11) const bool LOCKSTEP = false; // a subgroup's threads always go together
layout(constant_id = 12) const bool HALF_RESULT = false;
layout(constant_id = 13) const bool TURNED = false; // T is a multiple of XM, D/2 one of XN
layout(local_size_x_id = 0) in;

const uint SUBGROUPS = THREADS / LANES;
const uint ROWS = OWN * XM;         // of a subgroup
const uint TILE = SUBGROUPS * ROWS; // of a workgroup
const uint DO = D / 8;      // uvec4 of eight 16-bit numbers in a row
const uint ND = D / XN;     // fragments along D as columns,
const uint KD = D / XK;     // and as the inner dimension
const uint NS = STRIP / XN; // fragments along a strip, likewise
const uint KS = STRIP / XK;
const float LOG2E = 1.4426950408889634;
const float LN2 = 0.6931471805599453;
const float HUGE = 3e38;

#define SUM coopmat<float, gl_ScopeSubgroup, XM, XN, gl_MatrixUseAccumulator>
#define LEFT coopmat<HALF, gl_ScopeSubgroup, XM, XK, gl_MatrixUseA>
#define RIGHT coopmat<HALF, gl_ScopeSubgroup, XK, XN, gl_MatrixUseB>
#define BY_ROWS gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMNS gl_CooperativeMatrixLayoutColumnMajor
const uint PARTS = XM * XN / LANES; // components of a SUM in a thread
#define EACH(i) [[unroll]] for (uint i = 0; i < PARTS; i++)

// SYNC orders a subgroup's accesses to its own workgroup memory. Mesa's llvmpipe,
// whose threads go in lockstep, takes a subgroup's barrier for the workgroup's.
#define SYNC \
  if (LOCKSTEP) subgroupMemoryBarrierShared(); \
  else controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease)

// ROW_VECTOR loads a fragment whose row i is full of v[at + i], COLUMN_VECTOR one
// whose column j is full of v[at + j].
#define ROW_VECTOR(fragment, v, at) coopMatLoad(fragment, v, at, 0, BY_COLUMNS)
#define COLUMN_VECTOR(fragment, v, at) coopMatLoad(fragment, v, at, 0, BY_ROWS)

layout(set = 0, binding = SLOT_DIMS) uniform Dims {
  uint b, t, h, kvh;
  uint first; // item of the first workgroup of this dispatch
  float scale;
};

// Rows in workgroup memory have 16 bytes between them, so that the rows of a
// fragment fall into different banks.
const uint STEP = DO + 1;            // uvec4 of a tile's row
const uint SPARE_STEP = XN / 4 + 1;  // uvec4 of a row of spare memory
const uint STAGE_STEP = (STAGE_WIDTH > XK ? STAGE_WIDTH : XK) + 8; // HALF of a row of stage

const uint NUMBERS = XM > XN ? XM : XN;
shared float number[NUMBERS];                           // number[i] = i
// The two tiles, and spare memory: a SUM for each subgroup. Where it is only needed when
// the tiles are not any more (SPARE_AFTER), it takes their place: how many workgroups
// run at the same time on a multiprocessor depends on this memory.
const uint TILES = 2 * OTHER * STEP, SPARES = SUBGROUPS * XM * SPARE_STEP;
#ifdef SPARE_AFTER
const uint SPARE = 0;
shared uvec4 near[TILES > SPARES ? TILES : SPARES];
#else
const uint SPARE = TILES;
shared uvec4 near[TILES + SPARES];
#endif
const uint TILE0 = 0, TILE1 = OTHER * STEP; // where in near the tiles begin
#ifndef NV_CONVERT
shared HALF stage[SUBGROUPS * STAGE_ROWS * STAGE_STEP]; // left factors of each subgroup
#endif

uint lid, lane, sub;
uint spareAt, stageAt; // the subgroup's part of the spare memory, and of stage
uint place[PARTS];     // of a component in stage

void findPlaces() {
  lid = gl_LocalInvocationIndex;
  lane = gl_SubgroupInvocationID;
  sub = gl_SubgroupID;
  spareAt = SPARE + sub * XM * SPARE_STEP;
  if (lid < NUMBERS) number[lid] = float(lid);
  barrier();
#ifndef NV_CONVERT
  stageAt = sub * STAGE_ROWS * STAGE_STEP;
  SUM row, column;
  ROW_VECTOR(row, number, 0);
  COLUMN_VECTOR(column, number, 0);
  EACH(i) place[i] = stageAt + uint(row[i]) * STAGE_STEP + uint(column[i]);
#endif
}

// nearest rounds to 16 bits, where a conversion would not: to the nearest, by
// splitting (Dekker, 1971). NVIDIA's driver cuts bits off for bfloat16.
#ifdef BF16
#define NEAREST(T) \
  T nearest(T x) { \
    precise T c = x * 65537.0; \
    precise T low = c - x; \
    precise T high = c - low; \
    return high; \
  }
#else
#define NEAREST(T) \
  T nearest(T x) { return x; }
#endif
NEAREST(float)
NEAREST(vec4)

spirv_instruction(id = 124) uint bits(HALF2 x); // OpBitcast

uvec4 eight(vec4 x, vec4 y) {
  x = nearest(x);
  y = nearest(y);
  return uvec4(bits(HALF2(x.xy)), bits(HALF2(x.zw)), bits(HALF2(y.xy)), bits(HALF2(y.zw)));
}

// widen gives the two numbers in 32 bits.
vec2 widen(uint pair) {
#ifdef BF16
  return vec2(uintBitsToFloat(pair << 16), uintBitsToFloat(pair & 0xffff0000u));
#else
  return unpackHalf2x16(pair);
#endif
}

// FETCH reads a tile of OTHER rows from `row` on into registers, those after `last`
// as copies of it; KEEP writes it to workgroup memory. Strides are in uvec4.
const uint LOADS = (OTHER * DO + THREADS - 1) / THREADS; // of a thread
#define FETCH(next, source, base, stride, row, last) \
  [[unroll]] for (uint i = 0; i < LOADS; i++) { \
    uint e = i * THREADS + lid; \
    next[i] = source[base + min(row + e / DO, last) * stride + e % DO]; \
  }
#define KEEP(tile, next) \
  [[unroll]] for (uint i = 0; i < LOADS; i++) { \
    uint e = i * THREADS + lid; \
    if (OTHER * DO % THREADS == 0 || e < OTHER * DO) near[tile + e / DO * STEP + e % DO] = next[i]; \
  }

// OWN_FRAGMENTS makes left factors of the subgroup's rows of a tensor, of which the
// workgroup's begin at row0; those after `last` become copies of it. It goes
// through a tile, in pieces; TAKE takes the fragments that are in a piece.
#define OWN_FRAGMENTS(fragments, tile, next, source, base, stride, row0, last) \
  [[unroll]] for (uint piece = 0; piece < TILE; piece += OTHER) { \
    FETCH(next, source, base, stride, row0 + piece, last) \
    KEEP(tile, next) \
    barrier(); \
    TAKE(fragments, tile, piece) \
    barrier(); \
  }
#define TAKE(fragments, tile, piece) \
  [[unroll]] for (uint r = 0; r < OWN; r++) { \
    uint at = sub * ROWS + r * XM - piece; \
    if (at < OTHER) \
      [[unroll]] for (uint c = 0; c < KD; c++) coopMatLoad(fragments[r * KD + c], near, tile + at * STEP + c * (XK / 8), STEP, BY_ROWS); \
  }

// SPARE_STORE writes a SUM to the subgroup's spare memory, spareQuad reads four
// numbers of a row of it.
#define SPARE_STORE(fragment) coopMatStore(fragment, near, spareAt, SPARE_STEP, BY_ROWS)
vec4 spareQuad(uint row, uint quad) { return uintBitsToFloat(near[spareAt + row * SPARE_STEP + quad]); }

// STORE_ROWS writes a SUM whose first row is row `row` of T; rows after T are left
// out.
#define STORE_ROWS(fragment, target, to, stride, row) \
  if (row + XM <= t) coopMatStore(fragment, target, to, stride, BY_ROWS); \
  else { \
    SYNC; \
    SPARE_STORE(fragment); \
    SYNC; \
    EACH(i) { \
      uint e = i * LANES + lane, y = e / XN, x = e % XN; \
      if (row + y < t) target[to + y * stride + x] = spareQuad(y, x / 4)[x % 4]; \
    } \
  }

// STORE_HALVES is STORE_ROWS in 16 bits.
const uint EIGHTS = (XM * XN / 8 + LANES - 1) / LANES; // of a thread
#define STORE_HALVES(fragment, target, to, stride, row) \
  { \
    SYNC; \
    SPARE_STORE(fragment); \
    SYNC; \
    [[unroll]] for (uint i = 0; i < EIGHTS; i++) { \
      uint e = i * LANES + lane, y = e / (XN / 8), x = e % (XN / 8); \
      if (y < XM && row + y < t) target[(to + y * stride) / 8 + x] = eight(spareQuad(y, 2 * x), spareQuad(y, 2 * x + 1)); \
    } \
  }

// STORE writes a SUM as results are.
#define STORE(fragment, target, halves, to, stride, row) \
  if (HALF_RESULT) STORE_HALVES(fragment, halves, to, stride, row) \
  else { \
    STORE_ROWS(fragment, target, to, stride, row) \
  }

// TURN_BACK turns pairs of columns of two SUMs, from row `row` of T and column `column`
// of a head's left half on, by minus RoPE's angles (04_rope.wgsl). No copy of a SUM is
// made: llvmpipe of Mesa 26 takes it for the SUM itself when that changes.
#define TURN_BACK(left, right, row, column) \
  if (row < t) { \
    SUM c, s; \
    coopMatLoad(c, angles, (row) * D + column, D, BY_ROWS); \
    coopMatLoad(s, angles, (row) * D + column + D / 2, D, BY_ROWS); \
    SUM back = left * c + right * s; \
    right = right * c - left * s; \
    left = back; \
  }
