// The gradient of attention's queries on matrix units: dq (B, T, H, D) =
// scale·Σ_keys ds·k with ds = p·(dout·v − delta) and p = exp2(score − lse); see
// attention.glsl for how, 05_attention.wgsl for the plain twin. q, dout
// (B, T, H, D), k, v (B, T, KVH, D), lse (B, H, T), doc_start (B, T). What out
// (B, T, H, D) is for: delta = Σ_d dout·out of a row, which is written to stats
// (B, H, T), behind lse·log2(e), for attention_dkdv. With TURNED, dq is turned back by
// the angles (T, D) of RoPE.
//
// Own rows: queries and their dout; other rows: keys, in order. 1-D dispatch over B·H·ceil(T/TILE), the long rows first.
#version 460
#extension GL_GOOGLE_include_directive : require
#define SLOT_DIMS 10
#define STAGE_WIDTH STRIP
#define STAGE_ROWS ROWS
#define SPARE_AFTER
#include "attention.glsl"

layout(set = 0, binding = 0) readonly buffer Q_ { uvec4 q[]; };
layout(set = 0, binding = 1) readonly buffer K_ { uvec4 k[]; };
layout(set = 0, binding = 2) readonly buffer V_ { uvec4 v[]; };
layout(set = 0, binding = 3) readonly buffer DOut_ { uvec4 dout[]; };
layout(set = 0, binding = 4) readonly buffer Out_ { uvec4 out_[]; };
layout(set = 0, binding = 5) readonly buffer LSE_ { float lse[]; };
layout(set = 0, binding = 6) readonly buffer Doc_ { int doc_start[]; }; // not read unless HAS_DOC
layout(set = 0, binding = 7) readonly buffer Angles_ { float angles[]; }; // not read unless TURNED
layout(set = 0, binding = 8) buffer DQ_ { float dq[]; };
layout(set = 0, binding = 8) buffer Halves_ { uvec4 halves[]; }; // dq with TURNED and HALF_RESULT
layout(set = 0, binding = 9) writeonly buffer Stats_ { vec2 stats[]; };

shared float seen[TILE];    // the first key that a query sees
shared float minusLSE[TILE];
shared float minusDelta[TILE];

uint mine, mineLast; // the subgroup's first row and last row in T

float dots(uvec4 x, uvec4 y) {
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < 4; i++) sum += dot(widen(x[i]), widen(y[i]));
  return sum;
}

// KEEP_DOTS writes the sums of the products of eight pairs each.
#define KEEP_DOTS(tile, left, right) \
  [[unroll]] for (uint i = 0; i < LOADS; i++) { \
    uint e = i * THREADS + lid; \
    if (OTHER * DO % THREADS == 0 || e < OTHER * DO) \
      near[tile + e / DO * STEP + e % DO].x = floatBitsToUint(dots(left[i], right[i])); \
  }

LEFT qf[OWN * KD];
LEFT of[OWN * KD];
SUM s[OWN * NS];  // score − lse of a strip, then ds
SUM dp[OWN * NS]; // dout·v − delta
SUM g[OWN * ND];  // Σ ds·k
SUM startS[OWN];  // −lse,
SUM startP[OWN];  // −delta

void products(uint strip) {
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      s[r * NS + j] = SUM(0.0);
      dp[r * NS + j] = startP[r];
    }
  [[unroll]] for (uint d = 0; d < KD; d++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      RIGHT kf, vf;
      uint at = (strip + j * XN) * STEP + d * (XK / 8);
      coopMatLoad(kf, near, TILE0 + at, STEP, BY_COLUMNS);
      coopMatLoad(vf, near, TILE1 + at, STEP, BY_COLUMNS);
      [[unroll]] for (uint r = 0; r < OWN; r++) {
        s[r * NS + j] = coopMatMulAdd(qf[r * KD + d], kf, s[r * NS + j]);
        dp[r * NS + j] = coopMatMulAdd(of[r * KD + d], vf, dp[r * NS + j]);
      }
    }
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++)
      EACH(i) s[r * NS + j][i] = s[r * NS + j][i] * (scale * LOG2E) + startS[r][i];
}

// hide lowers the scores of keys that a query does not see.
void hide(uint key) {
  SUM row, column, least;
  ROW_VECTOR(row, number, 0);
  COLUMN_VECTOR(column, number, 0);
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    if (HAS_DOC) ROW_VECTOR(least, seen, sub * ROWS + r * XM);
    [[unroll]] for (uint j = 0; j < NS; j++) {
      float ahead = float(int(key + j * XN) - int(mine + r * XM)), at = float(key + j * XN);
      EACH(i)
        if (column[i] - row[i] + ahead > 0.0 || HAS_DOC && column[i] + at < least[i]) s[r * NS + j][i] = -HUGE;
    }
  }
}

// gather adds ds·k of a strip.
void gather(uint strip) {
#ifdef NV_CONVERT
  LEFT ds[OWN * KS];
#endif
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
#ifdef NV_CONVERT
      EACH(i) s[r * NS + j][i] = nearest(exp2(s[r * NS + j][i]) * dp[r * NS + j][i]);
      ds[r * KS + j] = LEFT(s[r * NS + j]);
#else
      EACH(i) stage[place[i] + r * XM * STAGE_STEP + j * XN] = HALF(nearest(exp2(s[r * NS + j][i]) * dp[r * NS + j][i]));
#endif
    }
#ifndef NV_CONVERT
  SYNC;
#endif
  [[unroll]] for (uint c = 0; c < KS; c++) {
    LEFT left[OWN];
    [[unroll]] for (uint r = 0; r < OWN; r++) {
#ifdef NV_CONVERT
      left[r] = ds[r * KS + c];
#else
      coopMatLoad(left[r], stage, stageAt + r * XM * STAGE_STEP + c * XK, STAGE_STEP, BY_ROWS);
#endif
    }
    [[unroll]] for (uint n = 0; n < ND; n++) {
      RIGHT kf;
      coopMatLoad(kf, near, TILE0 + (strip + c * XK) * STEP + n * (XN / 8), STEP, BY_ROWS);
      [[unroll]] for (uint r = 0; r < OWN; r++) g[r * ND + n] = coopMatMulAdd(left[r], kf, g[r * ND + n]);
    }
  }
#ifndef NV_CONVERT
  SYNC;
#endif
}

void main() {
  uint item = first + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  uint heads = b * h, tiles = (t + TILE - 1) / TILE;
  if (item >= heads * tiles) return;
  findPlaces();
  uint row0 = (tiles - 1 - item / heads) * TILE, last = min(row0 + TILE, t) - 1;
  uint sequence = item % heads / h, head = item % h, kv = head / (h / kvh);
  uint qBase = (sequence * t * h + head) * DO, qStride = h * DO;
  uint kvBase = (sequence * t * kvh + kv) * DO, kvStride = kvh * DO;
  mine = row0 + sub * ROWS;
  mineLast = min(mine + ROWS - 1, last);

  // Keys from least on are seen by the subgroup's first row, from most on by all.
  uint firstKey = 0, least = 0, most = 0;
  if (HAS_DOC) {
    firstKey = uint(doc_start[sequence * t + row0]);
    least = uint(doc_start[sequence * t + min(mine, last)]);
    most = uint(doc_start[sequence * t + mineLast]);
  }
  if (HAS_DOC)
    for (uint i = lid; i < TILE; i += THREADS) seen[i] = float(doc_start[sequence * t + min(row0 + i, last)]);
  uvec4 nextK[LOADS], nextV[LOADS];
  OWN_FRAGMENTS(qf, TILE0, nextK, q, qBase, qStride, row0, last)
  [[unroll]] for (uint piece = 0; piece < TILE; piece += OTHER) {
    FETCH(nextV, dout, qBase, qStride, row0 + piece, last)
    FETCH(nextK, out_, qBase, qStride, row0 + piece, last)
    KEEP(TILE1, nextV)
    KEEP_DOTS(TILE0, nextV, nextK)
    barrier();
    TAKE(of, TILE1, piece)
    for (uint i = lid; i < min(OTHER, TILE - piece); i += THREADS) {
      float delta = 0.0;
      for (uint c = 0; c < DO; c++) delta += uintBitsToFloat(near[TILE0 + i * STEP + c].x);
      uint row = row0 + piece + i, at = (sequence * h + head) * t + row;
      vec2 st = row <= last ? vec2(lse[at] * LOG2E, delta) : vec2(0.0);
      minusLSE[piece + i] = -st.x;
      minusDelta[piece + i] = -st.y;
      if (row <= last) stats[at] = st;
    }
    barrier();
  }
  uint k0 = firstKey / OTHER * OTHER;
  FETCH(nextK, k, kvBase, kvStride, k0, last)
  FETCH(nextV, v, kvBase, kvStride, k0, last)
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    ROW_VECTOR(startS[r], minusLSE, sub * ROWS + r * XM);
    ROW_VECTOR(startP[r], minusDelta, sub * ROWS + r * XM);
    [[unroll]] for (uint n = 0; n < ND; n++) g[r * ND + n] = SUM(0.0);
  }
  [[dont_unroll]] for (;; k0 += OTHER) {
    KEEP(TILE0, nextK)
    KEEP(TILE1, nextV)
    barrier();
    bool more = k0 + OTHER <= last;
    if (EARLY && more) {
      FETCH(nextK, k, kvBase, kvStride, k0 + OTHER, last)
      FETCH(nextV, v, kvBase, kvStride, k0 + OTHER, last)
    }
    [[unroll]] for (uint strip = 0; strip < OTHER; strip += STRIP)
      if (k0 + strip <= mineLast && mine <= last && k0 + strip + STRIP > least) {
        products(strip);
        if (k0 + strip + STRIP > mine + 1 || k0 + strip < most) hide(k0 + strip);
        gather(strip);
      }
    if (!more) break;
    if (!EARLY) {
      FETCH(nextK, k, kvBase, kvStride, k0 + OTHER, last)
      FETCH(nextV, v, kvBase, kvStride, k0 + OTHER, last)
    }
    barrier();
  }
  barrier(); // the tiles become spare memory
  // Written out, because NVIDIA's driver does not unroll this loop and then keeps g in
  // memory from the start.
#define FINISH(n) \
  if (!TURNED && n < ND) { \
    SUM whole = g[r * ND + n % ND] * scale; \
    STORE_ROWS(whole, dq, to + n * XN, 8 * qStride, mine + r * XM) \
  }
#define FINISH_TURNED(n) \
  if (TURNED && n < ND / 2) { \
    SUM left = g[r * ND + n % ND] * scale, right = g[r * ND + (n + ND / 2) % ND] * scale; \
    TURN_BACK(left, right, mine + r * XM, n * XN) \
    STORE(left, dq, halves, to + n * XN, 8 * qStride, mine + r * XM) \
    STORE(right, dq, halves, to + n * XN + D / 2, 8 * qStride, mine + r * XM) \
  }
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    uint to = 8 * (qBase + (mine + r * XM) * qStride);
    FINISH(0) FINISH(1) FINISH(2) FINISH(3) FINISH(4) FINISH(5) FINISH(6) FINISH(7)
    FINISH(8) FINISH(9) FINISH(10) FINISH(11) FINISH(12) FINISH(13) FINISH(14) FINISH(15)
    FINISH_TURNED(0) FINISH_TURNED(1) FINISH_TURNED(2) FINISH_TURNED(3) FINISH_TURNED(4) FINISH_TURNED(5) FINISH_TURNED(6) FINISH_TURNED(7)
  }
}
