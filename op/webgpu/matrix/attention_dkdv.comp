// The gradients of attention's keys and values on matrix units: dv (B, T, KVH, D) =
// Σ p·dout and dk = scale·Σ ds·q, over all queries that see a key, of all heads that
// read its head; p and ds as in attention_dq. See attention.glsl for how,
// 05_attention.wgsl for the plain twin. q, dout (B, T, H, D), k, v
// (B, T, KVH, D), stats (B, H, T): lse·log2(e) and delta, doc_start (B, T).
//
// Own rows: keys and values; other rows: queries and their dout, head after head,
// each in order. Queries before the tile or of later
// documents are not visited. Everything is transposed: scores have a row for each
// key. 1-D dispatch over B·KVH·ceil(T/TILE).
#version 460
#extension GL_GOOGLE_include_directive : require
#define SLOT_DIMS 9
#define STAGE_WIDTH STRIP
#define STAGE_ROWS (2 * ROWS)
#define SPARE_AFTER
#include "attention.glsl"

layout(set = 0, binding = 0) readonly buffer Q_ { uvec4 q[]; };
layout(set = 0, binding = 1) readonly buffer K_ { uvec4 k[]; };
layout(set = 0, binding = 2) readonly buffer V_ { uvec4 v[]; };
layout(set = 0, binding = 3) readonly buffer DOut_ { uvec4 dout[]; };
layout(set = 0, binding = 4) readonly buffer Stats_ { vec2 stats[]; };
layout(set = 0, binding = 5) readonly buffer Doc_ { int doc_start[]; }; // not read unless HAS_DOC
layout(set = 0, binding = 6) readonly buffer Angles_ { float angles[]; }; // not read unless TURNED
layout(set = 0, binding = 7) buffer DK_ { float dk[]; };
layout(set = 0, binding = 7) buffer HalvesK_ { uvec4 halvesK[]; }; // dk with TURNED and HALF_RESULT
layout(set = 0, binding = 8) buffer DV_ { float dv[]; };
layout(set = 0, binding = 8) buffer Halves_ { uvec4 halves[]; }; // dv with HALF_RESULT

shared float seen[OTHER]; // the first key that a query sees
shared float minusLSE[OTHER];
shared float minusDelta[OTHER];

uint mine; // the subgroup's first row
LEFT kf[OWN * KD];
LEFT vf[OWN * KD];
SUM s[OWN * NS];  // score − lse of a strip, then p
SUM dp[OWN * NS]; // dout·v − delta, then ds
SUM gk[OWN * ND]; // Σ ds·q
SUM gv[OWN * ND]; // Σ p·dout

void products(uint strip) {
  [[unroll]] for (uint j = 0; j < NS; j++) {
    SUM delta;
    COLUMN_VECTOR(delta, minusDelta, strip + j * XN);
    [[unroll]] for (uint r = 0; r < OWN; r++) {
      s[r * NS + j] = SUM(0.0);
      dp[r * NS + j] = delta;
    }
  }
  [[unroll]] for (uint d = 0; d < KD; d++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      RIGHT qf, of;
      uint at = (strip + j * XN) * STEP + d * (XK / 8);
      coopMatLoad(qf, near, TILE0 + at, STEP, BY_COLUMNS);
      coopMatLoad(of, near, TILE1 + at, STEP, BY_COLUMNS);
      [[unroll]] for (uint r = 0; r < OWN; r++) {
        s[r * NS + j] = coopMatMulAdd(kf[r * KD + d], qf, s[r * NS + j]);
        dp[r * NS + j] = coopMatMulAdd(vf[r * KD + d], of, dp[r * NS + j]);
      }
    }
  [[unroll]] for (uint j = 0; j < NS; j++) {
    SUM lse;
    COLUMN_VECTOR(lse, minusLSE, strip + j * XN);
    [[unroll]] for (uint r = 0; r < OWN; r++)
      EACH(i) s[r * NS + j][i] = s[r * NS + j][i] * (scale * LOG2E) + lse[i];
  }
}

// hide lowers the scores of queries that do not see a key.
void hide(uint row0, uint strip) {
  SUM row, column, least;
  ROW_VECTOR(row, number, 0);
  COLUMN_VECTOR(column, number, 0);
  [[unroll]] for (uint j = 0; j < NS; j++) {
    if (HAS_DOC) COLUMN_VECTOR(least, seen, strip + j * XN);
    [[unroll]] for (uint r = 0; r < OWN; r++) {
      float ahead = float(int(mine + r * XM) - int(row0 + strip + j * XN)), at = float(mine + r * XM);
      EACH(i)
        if (row[i] - column[i] + ahead > 0.0 || HAS_DOC && row[i] + at < least[i]) s[r * NS + j][i] = -HUGE;
    }
  }
}

// gather adds p·dout and ds·q of a strip.
void gather(uint strip) {
#ifdef NV_CONVERT
  LEFT left[2 * OWN * KS];
#endif
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      EACH(i) {
        float p = exp2(s[r * NS + j][i]), ds = nearest(p * dp[r * NS + j][i]);
        p = nearest(p);
#ifdef NV_CONVERT
        s[r * NS + j][i] = p;
        dp[r * NS + j][i] = ds;
      }
      left[r * KS + j] = LEFT(s[r * NS + j]);
      left[(OWN + r) * KS + j] = LEFT(dp[r * NS + j]);
#else
        stage[place[i] + r * XM * STAGE_STEP + j * XN] = HALF(p);
        stage[place[i] + (OWN + r) * XM * STAGE_STEP + j * XN] = HALF(ds);
      }
#endif
    }
#ifndef NV_CONVERT
  SYNC;
#endif
  [[unroll]] for (uint c = 0; c < KS; c++) {
    LEFT pf[OWN], df[OWN];
    [[unroll]] for (uint r = 0; r < OWN; r++) {
#ifdef NV_CONVERT
      pf[r] = left[r * KS + c];
      df[r] = left[(OWN + r) * KS + c];
#else
      coopMatLoad(pf[r], stage, stageAt + r * XM * STAGE_STEP + c * XK, STAGE_STEP, BY_ROWS);
      coopMatLoad(df[r], stage, stageAt + (OWN + r) * XM * STAGE_STEP + c * XK, STAGE_STEP, BY_ROWS);
#endif
    }
    [[unroll]] for (uint n = 0; n < ND; n++) {
      RIGHT qf, of;
      uint at = (strip + c * XK) * STEP + n * (XN / 8);
      coopMatLoad(of, near, TILE1 + at, STEP, BY_ROWS);
      coopMatLoad(qf, near, TILE0 + at, STEP, BY_ROWS);
      [[unroll]] for (uint r = 0; r < OWN; r++) {
        gv[r * ND + n] = coopMatMulAdd(pf[r], of, gv[r * ND + n]);
        gk[r * ND + n] = coopMatMulAdd(df[r], qf, gk[r * ND + n]);
      }
    }
  }
#ifndef NV_CONVERT
  SYNC;
#endif
}

void main() {
  uint item = first + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  uint heads = b * kvh, tiles = (t + TILE - 1) / TILE;
  if (item >= heads * tiles) return;
  findPlaces();
  uint key0 = item / heads * TILE, last = min(key0 + TILE, t) - 1;
  uint sequence = item % heads / kvh, kv = item % kvh, share = h / kvh;
  uint kvBase = (sequence * t * kvh + kv) * DO, kvStride = kvh * DO, qStride = h * DO;
  mine = key0 + sub * ROWS;
  uvec4 nextQ[LOADS], nextO[LOADS];
  OWN_FRAGMENTS(kf, TILE0, nextQ, k, kvBase, kvStride, key0, last)
  OWN_FRAGMENTS(vf, TILE1, nextO, v, kvBase, kvStride, key0, last)
  [[unroll]] for (uint i = 0; i < OWN * ND; i++) {
    gk[i] = SUM(0.0);
    gv[i] = SUM(0.0);
  }
  // Queries from row0 on, of head after head; a head ends where the documents
  // after the tile's keys begin.
  uint start = key0 / OTHER * OTHER, row0 = start, head = kv * share, heads1 = head + share;
  uint qBase = (sequence * t * h + head) * DO;
  FETCH(nextQ, q, qBase, qStride, row0, t - 1)
  FETCH(nextO, dout, qBase, qStride, row0, t - 1)
  [[dont_unroll]] for (;;) {
    KEEP(TILE0, nextQ)
    KEEP(TILE1, nextO)
    for (uint i = lid; i < OTHER; i += THREADS) {
      uint row = row0 + i;
      vec2 st = row < t ? stats[(sequence * h + head) * t + row] : vec2(1e30, 0.0);
      minusLSE[i] = -st.x;
      minusDelta[i] = -st.y;
      if (HAS_DOC) seen[i] = float(doc_start[sequence * t + min(row, t - 1)]);
    }
    barrier();
    uint now = row0;
    row0 += OTHER;
    if (row0 >= t || HAS_DOC && uint(doc_start[sequence * t + row0]) > last) {
      row0 = start;
      head++;
      qBase += DO;
    }
    bool more = head < heads1;
    if (EARLY && more) {
      FETCH(nextQ, q, qBase, qStride, row0, t - 1)
      FETCH(nextO, dout, qBase, qStride, row0, t - 1)
    }
    [[unroll]] for (uint strip = 0; strip < OTHER; strip += STRIP)
      if (now + strip + STRIP > mine && now + strip < t && mine <= last) {
        products(strip);
        if (now + strip < mine + ROWS - 1 || HAS_DOC && seen[strip + STRIP - 1] > float(mine)) hide(now, strip);
        gather(strip);
      }
    if (!more) break;
    if (!EARLY) {
      FETCH(nextQ, q, qBase, qStride, row0, t - 1)
      FETCH(nextO, dout, qBase, qStride, row0, t - 1)
    }
    barrier();
  }
  barrier(); // the tiles become spare memory
  // Written out, as in attention_dq.
#define FINISH(n) \
  if (n < ND) { \
    SUM whole = gv[r * ND + n % ND]; \
    STORE(whole, dv, halves, to + n * XN, 8 * kvStride, mine + r * XM) \
  } \
  if (!TURNED && n < ND) { \
    SUM whole = gk[r * ND + n % ND] * scale; \
    STORE_ROWS(whole, dk, to + n * XN, 8 * kvStride, mine + r * XM) \
  }
#define FINISH_TURNED(n) \
  if (TURNED && n < ND / 2) { \
    SUM left = gk[r * ND + n % ND] * scale, right = gk[r * ND + (n + ND / 2) % ND] * scale; \
    TURN_BACK(left, right, mine + r * XM, n * XN) \
    STORE(left, dk, halvesK, to + n * XN, 8 * kvStride, mine + r * XM) \
    STORE(right, dk, halvesK, to + n * XN + D / 2, 8 * kvStride, mine + r * XM) \
  }
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    uint to = 8 * (kvBase + (mine + r * XM) * kvStride);
    FINISH(0) FINISH(1) FINISH(2) FINISH(3) FINISH(4) FINISH(5) FINISH(6) FINISH(7)
    FINISH(8) FINISH(9) FINISH(10) FINISH(11) FINISH(12) FINISH(13) FINISH(14) FINISH(15)
    FINISH_TURNED(0) FINISH_TURNED(1) FINISH_TURNED(2) FINISH_TURNED(3) FINISH_TURNED(4) FINISH_TURNED(5) FINISH_TURNED(6) FINISH_TURNED(7)
  }
}
