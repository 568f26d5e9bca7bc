// Causal attention on matrix units: out (B, T, H, D) = softmax(q·kᵀ·scale)·v and
// lse (B, H, T); see attention.glsl for how, 05_attention.wgsl for the plain twin.
// q (B, T, H, D), k, v (B, T, KVH, D), doc_start (B, T).
//
// Own rows: queries; other rows: keys, in order. Weights are
// exp2(score − mark), where a row's mark is its largest score at the time when it
// was set. It is set anew, and what was summed scaled, when a score is more than
// LIMIT above it: seldom after the first strip. A row's result depends on no other
// row, and on STRIP alone of the sizes of tiles. 1-D dispatch over B·H·ceil(T/TILE),
// the long rows first.
#version 460
#extension GL_GOOGLE_include_directive : require
#define SLOT_DIMS 6
#define STAGE_WIDTH STRIP
#define STAGE_ROWS ROWS
#ifdef NV_CONVERT
#define SPARE_AFTER
#endif
#include "attention.glsl"

layout(set = 0, binding = 0) readonly buffer Q_ { uvec4 q[]; };
layout(set = 0, binding = 1) readonly buffer K_ { uvec4 k[]; };
layout(set = 0, binding = 2) readonly buffer V_ { uvec4 v[]; };
layout(set = 0, binding = 3) readonly buffer Doc_ { int doc_start[]; }; // not read unless HAS_DOC
layout(set = 0, binding = 4) buffer Out_ { float out_[]; };
layout(set = 0, binding = 4) buffer Halves_ { uvec4 halves[]; }; // out with HALF_RESULT
layout(set = 0, binding = 5) buffer LSE_ { float lse[]; };

shared float seen[TILE];   // the first key that a query sees
shared float mark[TILE];   // in powers of two, as scores are; in m alone with NV_CONVERT
shared float factor[TILE]; // what sums of a row are multiplied with

const float LIMIT = 10; // 2^10 times a row's sum of weights stays far below f16's 65504

uint mine, mineLast; // the subgroup's first row and last row in T
LEFT qf[OWN * KD];
SUM s[OWN * NS]; // scores of a strip, in powers of two
SUM o[OWN * ND]; // Σ weight·v
SUM l[OWN];      // Σ weight, by classes of columns
SUM m[OWN];      // the marks

void scores(uint strip) {
  [[unroll]] for (uint i = 0; i < OWN * NS; i++) s[i] = SUM(0.0);
  [[unroll]] for (uint d = 0; d < KD; d++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      RIGHT kf;
      coopMatLoad(kf, near, TILE0 + (strip + j * XN) * STEP + d * (XK / 8), STEP, BY_COLUMNS);
      [[unroll]] for (uint r = 0; r < OWN; r++) s[r * NS + j] = coopMatMulAdd(qf[r * KD + d], kf, s[r * NS + j]);
    }
  [[unroll]] for (uint i = 0; i < OWN * NS; i++)
    EACH(c) s[i][c] *= scale * LOG2E;
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

// raise sets the marks of rows that need it to the largest of their scores, and scales
// what was summed.
#ifdef NV_CONVERT
float larger(const in float x, const in float y) { return max(x, y); }
#endif
void raise() {
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    SUM top = s[r * NS], f;
    [[unroll]] for (uint j = 1; j < NS; j++)
      EACH(i) top[i] = max(top[i], s[r * NS + j][i]);
#ifdef NV_CONVERT
    coopMatReduceNV(top, top, gl_CooperativeMatrixReduceRowNV, larger);
    EACH(i) {
      float old = m[r][i], now = top[i] - old > LIMIT ? top[i] : old;
      m[r][i] = now;
      f[i] = exp2(old - now);
    }
#else
    SPARE_STORE(top);
    SYNC;
    for (uint row = lane; row < XM; row += LANES) {
      vec4 best = spareQuad(row, 0);
      for (uint j = 1; j < XN / 4; j++) best = max(best, spareQuad(row, j));
      float most = max(max(best.x, best.y), max(best.z, best.w));
      uint at = sub * ROWS + r * XM + row;
      float old = mark[at], now = most - old > LIMIT ? most : old;
      mark[at] = now;
      factor[at] = exp2(old - now);
    }
    SYNC;
    ROW_VECTOR(m[r], mark, sub * ROWS + r * XM);
    ROW_VECTOR(f, factor, sub * ROWS + r * XM);
#endif
    l[r] = l[r] * f;
    [[unroll]] for (uint n = 0; n < ND; n++) o[r * ND + n] = o[r * ND + n] * f;
  }
}

// gather turns the scores of a strip into weights and adds the weighted values.
void gather(uint strip) {
  bool over = false;
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++)
      EACH(i) over = over || s[r * NS + j][i] - m[r][i] > LIMIT;
  if (subgroupAny(over)) raise();
#ifdef NV_CONVERT
  LEFT p[OWN * KS];
#endif
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      EACH(i) {
        float w = exp2(s[r * NS + j][i] - m[r][i]);
        l[r][i] += w;
#ifdef NV_CONVERT
        s[r * NS + j][i] = nearest(w);
      }
      p[r * KS + j] = LEFT(s[r * NS + j]);
#else
        stage[place[i] + r * XM * STAGE_STEP + j * XN] = HALF(nearest(w));
      }
#endif
    }
#ifndef NV_CONVERT
  SYNC;
#endif
  [[unroll]] for (uint c = 0; c < KS; c++) {
    LEFT left[OWN];
    [[unroll]] for (uint r = 0; r < OWN; r++) {
#ifdef NV_CONVERT
      left[r] = p[r * KS + c];
#else
      coopMatLoad(left[r], stage, stageAt + r * XM * STAGE_STEP + c * XK, STAGE_STEP, BY_ROWS);
#endif
    }
    [[unroll]] for (uint n = 0; n < ND; n++) {
      RIGHT vf;
      coopMatLoad(vf, near, TILE1 + (strip + c * XK) * STEP + n * (XN / 8), STEP, BY_ROWS);
      [[unroll]] for (uint r = 0; r < OWN; r++) o[r * ND + n] = coopMatMulAdd(left[r], vf, o[r * ND + n]);
    }
  }
#ifndef NV_CONVERT
  SYNC;
#endif
}

// finish divides by the sums of weights and writes out and lse; `row` is the
// subgroup's first row of lse, `to` where its first row of out begins.
void finish(uint row, uint to, uint stride) {
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    uint rows = sub * ROWS + r * XM;
    SYNC;
#ifdef NV_CONVERT
    SPARE_STORE(m[r]);
    SYNC;
    for (uint i = lane; i < XM; i += LANES) mark[rows + i] = spareQuad(i, 0).x;
    SYNC;
#endif
    SPARE_STORE(l[r]);
    SYNC;
    for (uint i = lane; i < XM; i += LANES) {
      float sum = 0.0;
      for (uint j = 0; j < XN / 4; j++) {
        vec4 four = spareQuad(i, j);
        sum += four.x + four.y + (four.z + four.w);
      }
      factor[rows + i] = 1.0 / sum;
      if (mine + r * XM + i < t) lse[row + r * XM + i] = mark[rows + i] * LN2 + log(sum);
    }
    SYNC;
    SUM f;
    ROW_VECTOR(f, factor, rows);
    [[unroll]] for (uint n = 0; n < ND; n++) {
      o[r * ND + n] = o[r * ND + n] * f;
      uint at = to + r * XM * stride + n * XN;
      STORE(o[r * ND + n], out_, halves, at, stride, mine + r * XM)
    }
  }
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
  for (uint i = lid; i < TILE; i += THREADS) {
    mark[i] = -1e30;
    if (HAS_DOC) seen[i] = float(doc_start[sequence * t + min(row0 + i, last)]);
  }
  uvec4 nextK[LOADS], nextV[LOADS];
  OWN_FRAGMENTS(qf, TILE0, nextK, q, qBase, qStride, row0, last)
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    l[r] = SUM(0.0);
    m[r] = SUM(-1e30);
    [[unroll]] for (uint n = 0; n < ND; n++) o[r * ND + n] = SUM(0.0);
  }
  uint k0 = firstKey / OTHER * OTHER;
  FETCH(nextK, k, kvBase, kvStride, k0, last)
  FETCH(nextV, v, kvBase, kvStride, k0, last)
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
        scores(strip);
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
#ifdef SPARE_AFTER
  barrier(); // the tiles become spare memory
#endif
  finish((sequence * h + head) * t + mine, 8 * (qBase + mine * qStride), 8 * qStride);
}
