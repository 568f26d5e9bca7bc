// Causal attention on matrix units: out (B, T, H, D) = softmax(q·kᵀ·scale)·v and
// lse (B, H, T); see attention.glsl for how, 05_attention.wgsl for the plain twin.
// q (B, T, H, D), k, v (B, T, KVH, D), doc_start (B, T).
//
// Own rows: queries, times scale·log2(e); other rows: keys, in order. Weights are
// exp2(score − mark),
// where a row's mark is the largest score at the time it was set. It is set anew,
// and what was summed scaled, when a score is more than LIMIT above it: seldom after
// the first tile. 1-D dispatch over B·H·ceil(T/TILE), the long rows first.
#version 460
#extension GL_GOOGLE_include_directive : require
#define SLOT_DIMS 6
#define STRIP OTHER // marks change between tiles only
#define STAGE_WIDTH STRIP
#define STAGE_ROWS ROWS
#include "attention.glsl"

layout(set = 0, binding = 0) readonly buffer Q_ { vec4 q[]; };
layout(set = 0, binding = 1) readonly buffer K_ { vec4 k[]; };
layout(set = 0, binding = 2) readonly buffer V_ { vec4 v[]; };
layout(set = 0, binding = 3) readonly buffer Doc_ { int doc_start[]; }; // not read unless HAS_DOC
layout(set = 0, binding = 4) buffer Out_ { float out_[]; };
layout(set = 0, binding = 5) buffer LSE_ { float lse[]; };

shared uvec4 kt[OTHER * STEP];
shared uvec4 vt[OTHER * STEP];
shared float seen[TILE];   // the first key that a query sees
shared float mark[TILE];   // in powers of two, as scores are
shared float factor[TILE]; // what sums of a row are multiplied with

const float LIMIT = 10; // 2^10 times a row's sum of weights stays far below f16's 65504

uint mine, mineLast; // the subgroup's first row and last row in T
LEFT qf[OWN * KD];
SUM s[OWN * NS]; // scores of a tile
SUM o[OWN * ND]; // Σ weight·v
SUM l[OWN];      // Σ weight, by classes of columns
SUM m[OWN];      // the marks
#ifdef NV_CONVERT
LEFT p[OWN * KS]; // weights
#endif

void scores() {
  [[unroll]] for (uint i = 0; i < OWN * NS; i++) s[i] = SUM(0.0);
  [[unroll]] for (uint d = 0; d < KD; d++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      RIGHT kf;
      coopMatLoad(kf, kt, j * XN * STEP + d * (XK / 8), STEP, BY_COLUMNS);
      [[unroll]] for (uint r = 0; r < OWN; r++) s[r * NS + j] = coopMatMulAdd(qf[r * KD + d], kf, s[r * NS + j]);
    }
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

// raise sets the marks to the largest scores so far.
void raise() {
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    SUM top = s[r * NS];
    [[unroll]] for (uint j = 1; j < NS; j++)
      EACH(i) top[i] = max(top[i], s[r * NS + j][i]);
    coopMatStore(top, spare, spareAt, SPARE_STEP, BY_ROWS);
    SYNC;
    for (uint row = lane; row < XM; row += LANES) {
      float best = spare[spareAt + row * SPARE_STEP];
      for (uint j = 1; j < XN; j++) best = max(best, spare[spareAt + row * SPARE_STEP + j]);
      uint at = sub * ROWS + r * XM + row;
      float old = mark[at], now = max(old, best);
      mark[at] = now;
      factor[at] = exp2(old - now);
    }
    SYNC;
    SUM f;
    ROW_VECTOR(m[r], mark, sub * ROWS + r * XM);
    ROW_VECTOR(f, factor, sub * ROWS + r * XM);
    EACH(i) l[r][i] *= f[i];
    [[unroll]] for (uint n = 0; n < ND; n++)
      EACH(i) o[r * ND + n][i] *= f[i];
  }
}

// weigh turns the scores of a tile into weights, and these into left factors.
void weigh() {
  bool over = false;
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++)
      EACH(i) over = over || s[r * NS + j][i] - m[r][i] > LIMIT;
  if (subgroupAny(over)) raise();
  [[unroll]] for (uint r = 0; r < OWN; r++)
    [[unroll]] for (uint j = 0; j < NS; j++) {
      EACH(i) {
        float w = exp2(s[r * NS + j][i] - m[r][i]);
        l[r][i] += w;
#ifdef NV_CONVERT
        s[r * NS + j][i] = w;
      }
      p[r * KS + j] = LEFT(s[r * NS + j]);
#else
        stage[place[i] + r * XM * STAGE_STEP + j * XN] = HALF(w);
      }
#endif
    }
}

// gather adds the weighted values of a tile.
void gather() {
  [[unroll]] for (uint c = 0; c < KS; c++) {
    LEFT pf[OWN];
    [[unroll]] for (uint r = 0; r < OWN; r++) {
#ifdef NV_CONVERT
      pf[r] = p[r * KS + c];
#else
      coopMatLoad(pf[r], stage, stageAt + r * XM * STAGE_STEP + c * XK, STAGE_STEP, BY_ROWS);
#endif
    }
    [[unroll]] for (uint n = 0; n < ND; n++) {
      RIGHT vf;
      coopMatLoad(vf, vt, c * XK * STEP + n * (XN / 8), STEP, BY_ROWS);
      [[unroll]] for (uint r = 0; r < OWN; r++) o[r * ND + n] = coopMatMulAdd(pf[r], vf, o[r * ND + n]);
    }
  }
}

// finish divides by the sums of weights and writes out and lse; `row` is the
// subgroup's first row of lse, `to` where its first row of out begins.
void finish(uint row, uint to, uint stride) {
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    coopMatStore(l[r], spare, spareAt, SPARE_STEP, BY_ROWS);
    SYNC;
    for (uint i = lane; i < XM; i += LANES) {
      float sum = 0.0;
      for (uint j = 0; j < XN; j++) sum += spare[spareAt + i * SPARE_STEP + j];
      uint at = sub * ROWS + r * XM + i;
      factor[at] = 1.0 / sum;
      if (mine + r * XM + i < t) lse[row + r * XM + i] = mark[at] * LN2 + log(sum);
    }
    SYNC;
    SUM f;
    ROW_VECTOR(f, factor, sub * ROWS + r * XM);
    [[unroll]] for (uint n = 0; n < ND; n++) {
      EACH(i) o[r * ND + n][i] *= f[i];
      STORE_ROWS(o[r * ND + n], out_, to + r * XM * stride + n * XN, stride, mine + r * XM)
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
  uint qBase = (sequence * t * h + head) * DQ, qStride = h * DQ;
  uint kvBase = (sequence * t * kvh + kv) * DQ, kvStride = kvh * DQ;
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
  vec4 next[2 * LOADS];
  OWN_FRAGMENTS(qf, kt, next, q, qBase, qStride, row0, last, (scale * LOG2E))
  [[unroll]] for (uint r = 0; r < OWN; r++) {
    l[r] = SUM(0.0);
    m[r] = SUM(-1e30);
    [[unroll]] for (uint n = 0; n < ND; n++) o[r * ND + n] = SUM(0.0);
  }
  uint k0 = firstKey / OTHER * OTHER;
  FETCH(next, k, kvBase, kvStride, k0, last)
  KEEP(kt, next, 1.0)
  [[dont_unroll]] for (;; k0 += OTHER) {
    bool more = k0 + OTHER <= last;
    if (EARLY) FETCH(next, v, kvBase, kvStride, k0, last)
    barrier(); // keys are there, values are free
    bool some = k0 <= mineLast && mine <= last && k0 + OTHER > least;
    if (some) {
      scores();
      if (k0 + OTHER > mine + 1 || k0 < most) hide(k0);
      weigh();
    }
    if (!EARLY) FETCH(next, v, kvBase, kvStride, k0, last)
    KEEP(vt, next, 1.0)
    barrier(); // values are there, keys are free
    if (EARLY && more) FETCH(next, k, kvBase, kvStride, k0 + OTHER, last)
    if (some) gather();
    if (!more) break;
    if (!EARLY) FETCH(next, k, kvBase, kvStride, k0 + OTHER, last)
    KEEP(kt, next, 1.0)
  }
  finish((sequence * h + head) * t + mine, 4 * (qBase + mine * qStride), 4 * qStride);
}
