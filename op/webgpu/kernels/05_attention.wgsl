// 05_attention: causal softmax(Q·Kᵀ·scale)·V and its gradients by tiles, without a
// T×T buffer (Dao et al., 2022), for grouped-query heads (Ainslie et al., 2023) and
// documents. attention_forward keeps the logarithm of each row's sum, LSE; with
// P = exp(S − LSE) and delta = Σ_d dout·out of a row (attention_backward_delta),
//   dV = Pᵀ·dO,  dS = P∘(dO·Vᵀ − delta),  dQ = dS·K·scale,  dK = dSᵀ·Q·scale.
// Two backward kernels, so that each output has one owner: dQ by tiles of queries,
// dK and dV by tiles of keys. Scores are kept times log2(e), so that exp is exp2.
//
// All three kernels work alike, and this preamble is their common part. A
// workgroup has a tile of OWN rows (queries for out and dQ, keys for dK and dV) and
// walks over tiles of OTHER rows. A thread takes RO own rows and
//   - for scores RX other rows. Slices of SQ quads of D go through workgroup memory,
//     as in a matrix product, the next on its way in registers;
//   - for sums DJ quads of D. PART other rows at a time go through workgroup memory,
//     with them the weights that were made of the scores.
// With RO 8 and RX 4 a vec4 read from workgroup memory feeds 11 fma. Only tiles at the
// diagonal, and with documents all, look at what is hidden.
//
// Workgroup memory: (TILE + PART·OQ)·16 bytes. Constants are replaced by the
// launcher's choice; loops marked "unroll" are written out by it.
const D: u32 = 64u;           // head size
const DQ: u32 = 16u;          // quads of a head, ceil(D/4)
const VEC: bool = false;      // D is a multiple of 4: tensors are read and written in vec4s
const HAS_DOC: bool = false;

const OG: u32 = 8u;           // threads side by side along own rows
const TG: u32 = 16u;          // threads side by side along other rows, or quads of D
const RO: u32 = 8u;           // own rows per thread, a multiple of 4
const RX: u32 = 4u;           // other rows per thread
const PI: u32 = 2u;           // of these in one part of the sums, divides RX
const SQ: u32 = 4u;           // quads of D in a slice
const SU: u32 = 1u;           // of these written out at a time, divides SQ
const RU: u32 = 1u;           // rows of a part written out at a time, divides PART
const TILE: u32 = 640u;       // max((OWN + OTHER)·SS, PART·DQ)
const STAGED: u32 = 4u;       // max(OC + XC, PC)

const OWN: u32 = OG * RO;
const OTHER: u32 = TG * RX;
const THREADS: u32 = OG * TG;
const TL: u32 = 2u - TG % 2u;           // neighbours with the same own rows
const PART: u32 = TG * PI;
const PARTS: u32 = RX / PI;
const SLICES: u32 = (DQ + SQ - 1u) / SQ;
const SS: u32 = SQ + 1u - SQ % 2u;      // row of a slice, odd: no bank conflicts
const DJ: u32 = (DQ + TG - 1u) / TG;    // quads of D per thread
const RQ: u32 = RO / 4u;
const OQ: u32 = OWN / 4u;
const PAIRS: u32 = RO * RX;             // scores per thread
const SUMS: u32 = RO * DJ;              // vec4s of sums per thread
const OC: u32 = (OWN * SQ + THREADS - 1u) / THREADS;    // quads on their way per thread:
const XC: u32 = (OTHER * SQ + THREADS - 1u) / THREADS;  // of own rows, of other rows,
const PC: u32 = (PART * DQ + THREADS - 1u) / THREADS;   // of a part

const LOG2E: f32 = 1.4426950408889634;
const LN2: f32 = 0.6931471805599453;

// What `scores` has on its way when it is done.
const THEN_SLICE: u32 = 2u;    // slice 0 of the second product; else a part of tensor 0 or 1

struct AttentionDims {
  b: u32,
  t: u32,
  h: u32,
  kvh: u32,
  first: u32,    // first workgroup of this dispatch
  scale: f32,
}

// Rows are a tile's rows in two tensors of equal shape, told apart by `which`.
struct Rows {
  base: u32,     // element of row 0
  stride: u32,   // elements between rows
  first: u32,    // first row of the tile
  last: u32,     // stands in for rows after it
}

// Slices: own rows, then other rows, SS vec4s each. Parts: rows of DQ vec4s.
var<workgroup> tile: array<vec4<f32>, TILE>;
// Weights of a part: for each other row, 4 own rows of each og, OG apart, and so on.
var<workgroup> weights: array<vec4<f32>, PART * OQ>;

// A thread's place along own and along other rows. Neighbours share their own rows, and
// the next two their other rows: NVIDIA's hardware then reads vec4s for half a subgroup
// at a time, otherwise for a quarter.
fn own_group(lid: u32) -> u32 { return lid / TL % OG; }
fn other_group(lid: u32) -> u32 { return lid % TL + TL * (lid / (TL * OG)); }

fn row_at(rows: Rows, r: u32) -> u32 {
  return rows.base + min(rows.first + r, rows.last) * rows.stride;
}

// ask_slice reads a slice of both tiles into registers, put_slice stores it.
fn ask_slice(which: u32, own: Rows, other: Rows, slice: u32, lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < OC; c++) { // unroll
    let e = lid + c * THREADS;
    (*stage)[c] = own_quad(which, row_at(own, e / SQ), slice * SQ + e % SQ);
  }
  for (var c = 0u; c < XC; c++) { // unroll
    let e = lid + c * THREADS;
    (*stage)[OC + c] = other_quad(which, row_at(other, e / SQ), slice * SQ + e % SQ);
  }
}

fn put_slice(lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < OC; c++) { // unroll
    let e = lid + c * THREADS;
    if (OWN * SQ % THREADS == 0u || e < OWN * SQ) {
      tile[e / SQ * SS + e % SQ] = (*stage)[c];
    }
  }
  for (var c = 0u; c < XC; c++) { // unroll
    let e = lid + c * THREADS;
    if (OTHER * SQ % THREADS == 0u || e < OTHER * SQ) {
      tile[(OWN + e / SQ) * SS + e % SQ] = (*stage)[OC + c];
    }
  }
}

// ask_part and put_part do the same for part rows of the other tile.
fn ask_part(which: u32, other: Rows, part: u32, lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < PC; c++) { // unroll
    let e = lid + c * THREADS;
    (*stage)[c] = other_quad(which, row_at(other, part * PART + e / DQ), e % DQ);
  }
}

fn put_part(lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < PC; c++) { // unroll
    let e = lid + c * THREADS;
    if (PART * DQ % THREADS == 0u || e < PART * DQ) {
      tile[e] = (*stage)[c];
    }
  }
}

// dots adds a slice's part to the scores of own rows og + OG·j and other rows
// tg + TG·i.
fn dots(og: u32, tg: u32, s: ptr<function, array<f32, PAIRS>>) {
  var y = array<vec4<f32>, RX>();
  for (var q0 = 0u; q0 < SQ; q0 += SU) {
    for (var qu = 0u; qu < SU; qu++) { // unroll
      let q = q0 + qu;
      for (var i = 0u; i < RX; i++) { // unroll
        y[i] = tile[(OWN + tg + TG * i) * SS + q];
      }
      for (var j = 0u; j < RO; j++) { // unroll
        let x = tile[(og + OG * j) * SS + q];
        for (var i = 0u; i < RX; i++) { // unroll
          (*s)[i * RO + j] = fma(x.x, y[i].x, fma(x.y, y[i].y, fma(x.z, y[i].z, fma(x.w, y[i].w, (*s)[i * RO + j]))));
        }
      }
    }
  }
}

// scores multiplies own by other rows. Slice 0 is on its way at the start; at the
// end what `then` says.
fn scores(which: u32, then: u32, own: Rows, other: Rows, lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>, s: ptr<function, array<f32, PAIRS>>) {
  for (var n = 0u; n < PAIRS; n++) { // unroll
    (*s)[n] = 0.0;
  }
  for (var slice = 0u; slice < SLICES; slice++) {
    workgroupBarrier();
    put_slice(lid, stage);
    workgroupBarrier();
    if (slice + 1u < SLICES) {
      ask_slice(which, own, other, slice + 1u, lid, stage);
    } else if (then == THEN_SLICE) {
      ask_slice(1u, own, other, 0u, lid, stage);
    } else {
      ask_part(then, other, 0u, lid, stage);
    }
    dots(own_group(lid), other_group(lid), s);
  }
}

// sums adds a part's rows, each times its weights, to the sums: own row
// og + OG·(4·g + n), quad tg + TG·m in sum[(m·RQ + g)·4 + n].
fn sums(og: u32, tg: u32, sum: ptr<function, array<vec4<f32>, SUMS>>) {
  var w = array<vec4<f32>, RQ>();
  for (var r0 = 0u; r0 < PART; r0 += RU) {
    for (var ru = 0u; ru < RU; ru++) { // unroll
      let r = r0 + ru;
      for (var g = 0u; g < RQ; g++) { // unroll
        w[g] = weights[r * OQ + og + OG * g];
      }
      for (var m = 0u; m < DJ; m++) { // unroll
        if (DQ % TG == 0u || tg + TG * m < DQ) {
          let x = tile[r * DQ + tg + TG * m];
          for (var g = 0u; g < RQ; g++) { // unroll
            (*sum)[(m * RQ + g) * 4u + 0u] = fma(vec4<f32>(w[g].x), x, (*sum)[(m * RQ + g) * 4u + 0u]);
            (*sum)[(m * RQ + g) * 4u + 1u] = fma(vec4<f32>(w[g].y), x, (*sum)[(m * RQ + g) * 4u + 1u]);
            (*sum)[(m * RQ + g) * 4u + 2u] = fma(vec4<f32>(w[g].z), x, (*sum)[(m * RQ + g) * 4u + 2u]);
            (*sum)[(m * RQ + g) * 4u + 3u] = fma(vec4<f32>(w[g].w), x, (*sum)[(m * RQ + g) * 4u + 3u]);
          }
        }
      }
    }
  }
}

// --- KERNEL: attention_forward ---
// q, out (B, T, H, D), k, v (B, T, KVH, D), lse (B, H, T), doc_start (B, T): query t
// sees keys doc_start[b, t] … t; not falling in t. Own rows: queries; other rows:
// keys, in order, from the tile's first document to its last row. 1-D dispatch over
// B·H·ceil(T/OWN), the long rows first.
//
// Weights are exp2(s − top). A row's top is the maximum at first; it rises only when a
// score is SLACK above it, which is seldom, because a weight in float32 may as well
// be above 1. Only then do the threads of a row look at each other's scores.
// #if VEC
@group(0) @binding(0) var<storage, read> q_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_: array<vec4<f32>>;
// #else
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
// #endif
@group(0) @binding(3) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
// #if VEC
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
// #else
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
// #endif
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> dims: AttentionDims;

const SLACK: f32 = 8.0;
const NO_TOP: f32 = -1e38;     // of a row without a key so far; exp2(NEG_INF − NO_TOP) is 0
var<workgroup> raised: atomic<u32>;   // the last turn in which a row's top rises

fn own_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  return q_[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  x.x = q_[e];
  if (4u * quad + 1u < D) { x.y = q_[e + 1u]; }
  if (4u * quad + 2u < D) { x.z = q_[e + 2u]; }
  if (4u * quad + 3u < D) { x.w = q_[e + 3u]; }
  return x;
  // #endif
}

fn other_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  if (which == 0u) {
    return k_[at / 4u + quad];
  }
  return v_[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  if (which == 0u) {
    x.x = k_[e];
    if (4u * quad + 1u < D) { x.y = k_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = k_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = k_[e + 3u]; }
  } else {
    x.x = v_[e];
    if (4u * quad + 1u < D) { x.y = v_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = v_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = v_[e + 3u]; }
  }
  return x;
  // #endif
}

fn store_out(at: u32, quad: u32, x: vec4<f32>) {
  if (DQ % TG != 0u && quad >= DQ) {
    return;
  }
  // #if VEC
  out[at / 4u + quad] = x;
  // #else
  let e = at + 4u * quad;
  out[e] = x.x;
  if (4u * quad + 1u < D) { out[e + 1u] = x.y; }
  if (4u * quad + 2u < D) { out[e + 2u] = x.z; }
  if (4u * quad + 3u < D) { out[e + 3u] = x.w; }
  // #endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = dims.first + flat_wg(wid, nwg);
  let heads = dims.b * dims.h;
  let tiles = (dims.t + OWN - 1u) / OWN;
  if (item >= heads * tiles) {
    return;
  }
  let row0 = (tiles - 1u - item / heads) * OWN;
  let last_row = min(row0 + OWN, dims.t) - 1u;
  let b = item % heads / dims.h;
  let h = item % dims.h;
  let kv = h / (dims.h / dims.kvh);
  let pre = dims.scale * LOG2E;
  let og = own_group(lid);
  let tg = other_group(lid);
  var row_first = array<u32, RO>();
  var first_key = 0u;
  if (HAS_DOC) {
    first_key = u32(doc_start[b * dims.t + row0]);
    for (var j = 0u; j < RO; j++) { // unroll
      row_first[j] = u32(doc_start[b * dims.t + min(row0 + og + OG * j, last_row)]);
    }
  }
  let own = Rows((b * dims.t * dims.h + h) * D, dims.h * D, row0, last_row);
  var other = Rows((b * dims.t * dims.kvh + kv) * D, dims.kvh * D, first_key / OTHER * OTHER, last_row);
  var stage = array<vec4<f32>, STAGED>();
  var s = array<f32, PAIRS>();
  var o = array<vec4<f32>, SUMS>();
  var sum = array<f32, RO>();
  var top = array<f32, RO>();
  for (var j = 0u; j < RO; j++) { // unroll
    top[j] = NO_TOP;
  }
  if (lid == 0u) {
    atomicStore(&raised, 0u);
  }
  ask_slice(0u, own, other, 0u, lid, &stage);
  for (var turn = 1u; other.first <= last_row; turn++) {
    scores(0u, 1u, own, other, lid, &stage, &s);
    for (var n = 0u; n < PAIRS; n++) { // unroll
      s[n] *= pre;
    }
    if (HAS_DOC || other.first + OTHER > row0 + 1u) {
      for (var i = 0u; i < RX; i++) { // unroll
        let key = other.first + tg + TG * i;
        for (var j = 0u; j < RO; j++) { // unroll
          s[i * RO + j] = select(s[i * RO + j], NEG_INF, key > row0 + og + OG * j || (HAS_DOC && key < row_first[j]));
        }
      }
    }
    var rises = false;
    for (var g = 0u; g < RQ; g++) { // unroll
      var high = vec4<f32>(NEG_INF);
      for (var i = 0u; i < RX; i++) { // unroll
        high = max(high, vec4<f32>(s[i * RO + g * 4u], s[i * RO + g * 4u + 1u], s[i * RO + g * 4u + 2u], s[i * RO + g * 4u + 3u]));
      }
      weights[tg * OQ + og + OG * g] = high;
      for (var n = 0u; n < 4u; n++) { // unroll
        rises = rises || high[n] > top[g * 4u + n] + SLACK;
      }
    }
    if (rises) {
      atomicStore(&raised, turn);
    }
    workgroupBarrier();
    if (atomicLoad(&raised) == turn) {
      for (var g = 0u; g < RQ; g++) { // unroll
        var high = vec4<f32>(NEG_INF);
        for (var t = 0u; t < TG; t++) {
          high = max(high, weights[t * OQ + og + OG * g]);
        }
        for (var n = 0u; n < 4u; n++) { // unroll
          if (high[n] > top[g * 4u + n] + SLACK) {
            let shrink = exp2(top[g * 4u + n] - high[n]);
            top[g * 4u + n] = high[n];
            sum[g * 4u + n] *= shrink;
            for (var m = 0u; m < DJ; m++) { // unroll
              o[(m * RQ + g) * 4u + n] *= shrink;
            }
          }
        }
      }
    }
    for (var i = 0u; i < RX; i++) { // unroll
      for (var j = 0u; j < RO; j++) { // unroll
        s[i * RO + j] = exp2(s[i * RO + j] - top[j]);
        sum[j] += s[i * RO + j];
      }
    }
    var next = other;
    next.first += OTHER;
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = vec4<f32>(
            s[(part * PI + i) * RO + g * 4u], s[(part * PI + i) * RO + g * 4u + 1u],
            s[(part * PI + i) * RO + g * 4u + 2u], s[(part * PI + i) * RO + g * 4u + 3u]);
        }
      }
      workgroupBarrier();
      if (part + 1u < PARTS) {
        ask_part(1u, other, part + 1u, lid, &stage);
      } else {
        ask_slice(0u, own, next, 0u, lid, &stage);
      }
      sums(og, tg, &o);
    }
    other = next;
  }
  // The sums of a row's threads.
  workgroupBarrier();
  for (var g = 0u; g < RQ; g++) { // unroll
    weights[tg * OQ + og + OG * g] = vec4<f32>(sum[g * 4u], sum[g * 4u + 1u], sum[g * 4u + 2u], sum[g * 4u + 3u]);
  }
  workgroupBarrier();
  for (var g = 0u; g < RQ; g++) { // unroll
    var whole = vec4<f32>();
    for (var t = 0u; t < TG; t++) {
      whole += weights[t * OQ + og + OG * g];
    }
    for (var n = 0u; n < 4u; n++) { // unroll
      let row = row0 + og + OG * (g * 4u + n);
      if (row <= last_row) {
        for (var m = 0u; m < DJ; m++) { // unroll
          store_out(own.base + row * own.stride, tg + TG * m, o[(m * RQ + g) * 4u + n] / whole[n]);
        }
        if (tg == 0u) {
          lse[(b * dims.h + h) * dims.t + row] = (top[g * 4u + n] + log2(whole[n])) * LN2;
        }
      }
    }
  }
}

// --- KERNEL: attention_backward_dq ---
// dq (B, T, H, D), written. q, dout (B, T, H, D), k, v (B, T, KVH, D), stats
// (B, H, T) = (lse·log2 e, delta), doc_start (B, T). Own rows: queries; other rows:
// keys, in order. 1-D dispatch over B·H·ceil(T/OWN), the long rows first.
// #if VEC
@group(0) @binding(0) var<storage, read> q_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> dout: array<vec4<f32>>;
// #else
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read> dout: array<f32>;
// #endif
@group(0) @binding(4) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
// #if VEC
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;
// #else
@group(0) @binding(6) var<storage, read_write> dq: array<f32>;
// #endif
@group(0) @binding(7) var<uniform> dims: AttentionDims;

fn own_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  if (which == 0u) {
    return q_[at / 4u + quad];
  }
  return dout[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  if (which == 0u) {
    x.x = q_[e];
    if (4u * quad + 1u < D) { x.y = q_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = q_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = q_[e + 3u]; }
  } else {
    x.x = dout[e];
    if (4u * quad + 1u < D) { x.y = dout[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = dout[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = dout[e + 3u]; }
  }
  return x;
  // #endif
}

fn other_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  if (which == 0u) {
    return k_[at / 4u + quad];
  }
  return v_[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  if (which == 0u) {
    x.x = k_[e];
    if (4u * quad + 1u < D) { x.y = k_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = k_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = k_[e + 3u]; }
  } else {
    x.x = v_[e];
    if (4u * quad + 1u < D) { x.y = v_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = v_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = v_[e + 3u]; }
  }
  return x;
  // #endif
}

fn store_dq(at: u32, quad: u32, x: vec4<f32>) {
  if (DQ % TG != 0u && quad >= DQ) {
    return;
  }
  // #if VEC
  dq[at / 4u + quad] = x;
  // #else
  let e = at + 4u * quad;
  dq[e] = x.x;
  if (4u * quad + 1u < D) { dq[e + 1u] = x.y; }
  if (4u * quad + 2u < D) { dq[e + 2u] = x.z; }
  if (4u * quad + 3u < D) { dq[e + 3u] = x.w; }
  // #endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = dims.first + flat_wg(wid, nwg);
  let heads = dims.b * dims.h;
  let tiles = (dims.t + OWN - 1u) / OWN;
  if (item >= heads * tiles) {
    return;
  }
  let row0 = (tiles - 1u - item / heads) * OWN;
  let last_row = min(row0 + OWN, dims.t) - 1u;
  let b = item % heads / dims.h;
  let h = item % dims.h;
  let kv = h / (dims.h / dims.kvh);
  let pre = dims.scale * LOG2E;
  let og = own_group(lid);
  let tg = other_group(lid);
  var row_stats = array<vec2<f32>, RO>();
  var row_first = array<u32, RO>();
  for (var j = 0u; j < RO; j++) { // unroll
    let row = min(row0 + og + OG * j, last_row);
    row_stats[j] = stats[(b * dims.h + h) * dims.t + row];
    if (HAS_DOC) {
      row_first[j] = u32(doc_start[b * dims.t + row]);
    }
  }
  var first_key = 0u;
  if (HAS_DOC) {
    first_key = u32(doc_start[b * dims.t + row0]);
  }
  let own = Rows((b * dims.t * dims.h + h) * D, dims.h * D, row0, last_row);
  var other = Rows((b * dims.t * dims.kvh + kv) * D, dims.kvh * D, first_key / OTHER * OTHER, last_row);
  var stage = array<vec4<f32>, STAGED>();
  var s = array<f32, PAIRS>();
  var dp = array<f32, PAIRS>();
  var sum = array<vec4<f32>, SUMS>();
  ask_slice(0u, own, other, 0u, lid, &stage);
  while (other.first <= last_row) {
    scores(0u, THEN_SLICE, own, other, lid, &stage, &s);
    scores(1u, 0u, own, other, lid, &stage, &dp);
    for (var i = 0u; i < RX; i++) { // unroll
      for (var j = 0u; j < RO; j++) { // unroll
        dp[i * RO + j] = exp2(fma(s[i * RO + j], pre, -row_stats[j].x)) * (dp[i * RO + j] - row_stats[j].y);
      }
    }
    if (HAS_DOC || other.first + OTHER > row0 + 1u) {
      for (var i = 0u; i < RX; i++) { // unroll
        let key = other.first + tg + TG * i;
        for (var j = 0u; j < RO; j++) { // unroll
          dp[i * RO + j] = select(dp[i * RO + j], 0.0, key > row0 + og + OG * j || (HAS_DOC && key < row_first[j]));
        }
      }
    }
    var next = other;
    next.first += OTHER;
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = vec4<f32>(
            dp[(part * PI + i) * RO + g * 4u], dp[(part * PI + i) * RO + g * 4u + 1u],
            dp[(part * PI + i) * RO + g * 4u + 2u], dp[(part * PI + i) * RO + g * 4u + 3u]);
        }
      }
      workgroupBarrier();
      if (part + 1u < PARTS) {
        ask_part(0u, other, part + 1u, lid, &stage);
      } else {
        ask_slice(0u, own, next, 0u, lid, &stage);
      }
      sums(og, tg, &sum);
    }
    other = next;
  }
  for (var g = 0u; g < RQ; g++) { // unroll
    for (var n = 0u; n < 4u; n++) { // unroll
      let row = row0 + og + OG * (g * 4u + n);
      if (row <= last_row) {
        for (var m = 0u; m < DJ; m++) { // unroll
          store_dq(own.base + row * own.stride, tg + TG * m, sum[(m * RQ + g) * 4u + n] * dims.scale);
        }
      }
    }
  }
}

// --- KERNEL: attention_backward_dkdv ---
// dk, dv (B, T, KVH, D), written. Own rows: keys; other rows: the queries of all
// heads that read this key head, head after head, each in order. Tiles of queries
// before the own keys or of later documents are not visited. 1-D dispatch over
// B·KVH·ceil(T/OWN).
// #if VEC
@group(0) @binding(0) var<storage, read> q_: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> dout: array<vec4<f32>>;
// #else
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read> dout: array<f32>;
// #endif
@group(0) @binding(4) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
// #if VEC
@group(0) @binding(6) var<storage, read_write> dk: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> dv: array<vec4<f32>>;
// #else
@group(0) @binding(6) var<storage, read_write> dk: array<f32>;
@group(0) @binding(7) var<storage, read_write> dv: array<f32>;
// #endif
@group(0) @binding(8) var<uniform> dims: AttentionDims;

fn own_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  if (which == 0u) {
    return k_[at / 4u + quad];
  }
  return v_[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  if (which == 0u) {
    x.x = k_[e];
    if (4u * quad + 1u < D) { x.y = k_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = k_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = k_[e + 3u]; }
  } else {
    x.x = v_[e];
    if (4u * quad + 1u < D) { x.y = v_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = v_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = v_[e + 3u]; }
  }
  return x;
  // #endif
}

fn other_quad(which: u32, at: u32, quad: u32) -> vec4<f32> {
  if (DQ % SQ != 0u && quad >= DQ) {
    return vec4<f32>();
  }
  // #if VEC
  if (which == 0u) {
    return q_[at / 4u + quad];
  }
  return dout[at / 4u + quad];
  // #else
  let e = at + 4u * quad;
  var x = vec4<f32>();
  if (which == 0u) {
    x.x = q_[e];
    if (4u * quad + 1u < D) { x.y = q_[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = q_[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = q_[e + 3u]; }
  } else {
    x.x = dout[e];
    if (4u * quad + 1u < D) { x.y = dout[e + 1u]; }
    if (4u * quad + 2u < D) { x.z = dout[e + 2u]; }
    if (4u * quad + 3u < D) { x.w = dout[e + 3u]; }
  }
  return x;
  // #endif
}

fn store_dk(at: u32, quad: u32, x: vec4<f32>) {
  if (DQ % TG != 0u && quad >= DQ) {
    return;
  }
  // #if VEC
  dk[at / 4u + quad] = x;
  // #else
  let e = at + 4u * quad;
  dk[e] = x.x;
  if (4u * quad + 1u < D) { dk[e + 1u] = x.y; }
  if (4u * quad + 2u < D) { dk[e + 2u] = x.z; }
  if (4u * quad + 3u < D) { dk[e + 3u] = x.w; }
  // #endif
}

fn store_dv(at: u32, quad: u32, x: vec4<f32>) {
  if (DQ % TG != 0u && quad >= DQ) {
    return;
  }
  // #if VEC
  dv[at / 4u + quad] = x;
  // #else
  let e = at + 4u * quad;
  dv[e] = x.x;
  if (4u * quad + 1u < D) { dv[e + 1u] = x.y; }
  if (4u * quad + 2u < D) { dv[e + 2u] = x.z; }
  if (4u * quad + 3u < D) { dv[e + 3u] = x.w; }
  // #endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = dims.first + flat_wg(wid, nwg);
  let heads = dims.b * dims.kvh;
  let tiles = (dims.t + OWN - 1u) / OWN;
  if (item >= heads * tiles) {
    return;
  }
  let key0 = item / heads * OWN;
  let last_key = min(key0 + OWN, dims.t) - 1u;
  let b = item % heads / dims.kvh;
  let kv = item % dims.kvh;
  let share = dims.h / dims.kvh;   // query heads per key head
  let pre = dims.scale * LOG2E;
  let og = own_group(lid);
  let tg = other_group(lid);
  let first_row = key0 / OTHER * OTHER;
  var end_row = dims.t;            // queries from here on see none of the keys
  if (HAS_DOC) {
    end_row = first_row;
    while (end_row < dims.t && u32(doc_start[b * dims.t + min(end_row, dims.t - 1u)]) <= last_key) {
      end_row += OTHER;
    }
  }
  let own = Rows((b * dims.t * dims.kvh + kv) * D, dims.kvh * D, key0, last_key);
  var head = kv * share;
  var other = Rows((b * dims.t * dims.h + head) * D, dims.h * D, first_row, dims.t - 1u);
  var stage = array<vec4<f32>, STAGED>();
  var s = array<f32, PAIRS>();
  var dp = array<f32, PAIRS>();
  var sum_k = array<vec4<f32>, SUMS>();
  var sum_v = array<vec4<f32>, SUMS>();
  var row_stats = array<vec2<f32>, RX>();
  ask_slice(0u, own, other, 0u, lid, &stage);
  while (head < (kv + 1u) * share) {
    for (var i = 0u; i < RX; i++) { // unroll
      row_stats[i] = stats[(b * dims.h + head) * dims.t + min(other.first + tg + TG * i, other.last)];
    }
    scores(0u, THEN_SLICE, own, other, lid, &stage, &s);
    scores(1u, 1u, own, other, lid, &stage, &dp);
    for (var i = 0u; i < RX; i++) { // unroll
      for (var j = 0u; j < RO; j++) { // unroll
        s[i * RO + j] = exp2(fma(s[i * RO + j], pre, -row_stats[i].x));
        dp[i * RO + j] = s[i * RO + j] * (dp[i * RO + j] - row_stats[i].y);
      }
    }
    if (HAS_DOC || other.first < last_key || other.first + OTHER > dims.t) {
      for (var i = 0u; i < RX; i++) { // unroll
        let row = other.first + tg + TG * i;
        var row_first = 0u;
        if (HAS_DOC) {
          row_first = u32(doc_start[b * dims.t + min(row, other.last)]);
        }
        for (var j = 0u; j < RO; j++) { // unroll
          let key = key0 + og + OG * j;
          let hidden = key > row || row > other.last || key < row_first;
          s[i * RO + j] = select(s[i * RO + j], 0.0, hidden);
          dp[i * RO + j] = select(dp[i * RO + j], 0.0, hidden);
        }
      }
    }
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = vec4<f32>(
            s[(part * PI + i) * RO + g * 4u], s[(part * PI + i) * RO + g * 4u + 1u],
            s[(part * PI + i) * RO + g * 4u + 2u], s[(part * PI + i) * RO + g * 4u + 3u]);
        }
      }
      workgroupBarrier();
      if (part + 1u < PARTS) {
        ask_part(1u, other, part + 1u, lid, &stage);
      } else {
        ask_part(0u, other, 0u, lid, &stage);
      }
      sums(og, tg, &sum_v);
    }
    var next = other;
    next.first += OTHER;
    if (next.first >= end_row) {   // the next head; beyond the last it is not used
      head++;
      next.first = first_row;
      next.base = (b * dims.t * dims.h + min(head, dims.h - 1u)) * D;
    }
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = vec4<f32>(
            dp[(part * PI + i) * RO + g * 4u], dp[(part * PI + i) * RO + g * 4u + 1u],
            dp[(part * PI + i) * RO + g * 4u + 2u], dp[(part * PI + i) * RO + g * 4u + 3u]);
        }
      }
      workgroupBarrier();
      if (part + 1u < PARTS) {
        ask_part(0u, other, part + 1u, lid, &stage);
      } else {
        ask_slice(0u, own, next, 0u, lid, &stage);
      }
      sums(og, tg, &sum_k);
    }
    other = next;
  }
  for (var g = 0u; g < RQ; g++) { // unroll
    for (var n = 0u; n < 4u; n++) { // unroll
      let key = key0 + og + OG * (g * 4u + n);
      if (key <= last_key) {
        for (var m = 0u; m < DJ; m++) { // unroll
          store_dk(own.base + key * own.stride, tg + TG * m, sum_k[(m * RQ + g) * 4u + n] * dims.scale);
          store_dv(own.base + key * own.stride, tg + TG * m, sum_v[(m * RQ + g) * 4u + n]);
        }
      }
    }
  }
}
