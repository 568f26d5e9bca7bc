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
// walks over tiles of OTHER rows. A thread takes 4·RQ own rows and
//   - for scores 4·XQ other rows. Slices of SQ quads of D go through workgroup memory,
//     turned so that a vec4 has four rows; the next is on its way in registers;
//   - for sums DJ quads of D. PART other rows at a time go through workgroup memory,
//     with them the weights that were made of the scores.
// With RQ 2 and XQ 1 a vec4 read from workgroup memory feeds 11 fma. Only tiles at the
// diagonal, and with documents all, look at what is hidden.
//
// Own row n of quad g of a thread is og + OG·(4·g + n) of the tile, other row i is
// tg + TG·i. Scores and weights are vec4s of four own rows: s[i·RQ + g].
//
// Workgroup memory: (TILE + PART·OQ)·16 bytes. Constants are replaced by the
// launcher's choice; loops marked "unroll" are written out by it.
const D: u32 = 64u;           // head size
const DQ: u32 = 16u;          // quads of a head, ceil(D/4)
const VEC: bool = false;      // D is a multiple of 4: tensors are read and written in vec4s
const HAS_DOC: bool = false;

const OG: u32 = 8u;           // threads side by side along own rows
const TG: u32 = 16u;          // threads side by side along other rows, or quads of D
const RQ: u32 = 2u;           // quads of own rows per thread
const XQ: u32 = 1u;           // quads of other rows per thread
const PI: u32 = 2u;           // other rows of a thread in one part of the sums, divides 4·XQ
const SQ: u32 = 4u;           // quads of D in a slice
const KU: u32 = 1u;           // steps along a slice written out at a time, divides 4·SQ
const RU: u32 = 1u;           // rows of a part written out at a time, divides PART
const TILE: u32 = 528u;       // max(4·SQ·SS, PART·DQ)
const STAGED: u32 = 4u;       // max(4·BC, PC)

const OQ: u32 = OG * RQ;                // quads of the own tile's rows
const OWN: u32 = 4u * OQ;
const TQ: u32 = TG * XQ;                // quads of the other tile's rows
const OTHER: u32 = 4u * TQ;
const RX: u32 = 4u * XQ;
const THREADS: u32 = OG * TG;
const TL: u32 = 2u - TG % 2u;           // neighbours with the same own rows
const PART: u32 = TG * PI;
const PARTS: u32 = RX / PI;
const SLICES: u32 = (DQ + SQ - 1u) / SQ;
const SS: u32 = OQ + TQ + 1u - (OQ + TQ) % 2u;   // row of a slice, odd: no bank conflicts
const DJ: u32 = (DQ + TG - 1u) / TG;    // quads of D per thread
const PAIRS: u32 = RX * RQ;             // vec4s of scores per thread
const SUMS: u32 = 4u * RQ * DJ;         // vec4s of sums per thread
const BLOCKS: u32 = (OQ + TQ) * SQ;     // 4×4 blocks of a slice, those of own rows first
const BC: u32 = (BLOCKS + THREADS - 1u) / THREADS;      // per thread
const PC: u32 = (PART * DQ + THREADS - 1u) / THREADS;   // quads of a part per thread
const QLOW: u32 = 2u - SQ % 2u;         // blocks side by side along D

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
  part: u32,     // PART, kept from the driver, which would write out all of `sums`
}

// Rows are a tile's rows in two tensors of equal shape, told apart by `which`.
struct Rows {
  base: u32,     // element of row 0
  stride: u32,   // elements between rows
  first: u32,    // first row of the tile
  last: u32,     // stands in for rows after it
}

// Slices: for each d the quads of own rows, then those of other rows. Parts: rows of
// DQ vec4s.
var<workgroup> tile: array<vec4<f32>, TILE>;
// Weights of a part: for each other row the quads of own rows.
var<workgroup> weights: array<vec4<f32>, PART * OQ>;

// A thread's place along own and along other rows. Neighbours share their own rows, and
// the next two their other rows: NVIDIA's hardware then reads vec4s for half a subgroup
// at a time, otherwise for a quarter.
fn own_group(lid: u32) -> u32 { return lid / TL % OG; }
fn other_group(lid: u32) -> u32 { return lid % TL + TL * (lid / (TL * OG)); }

fn row_at(rows: Rows, r: u32) -> u32 {
  return rows.base + min(rows.first + r, rows.last) * rows.stride;
}

// Block is a 4×4 block of a slice: quad q of D, quad `rows` of one tile's rows.
struct Block {
  q: u32,
  rows: u32,
}

fn block_of(index: u32, quads: u32) -> Block {
  let rest = index / QLOW;
  return Block(index % QLOW + QLOW * (rest / quads), rest % quads);
}

// ask_slice reads a slice of both tiles into registers, put_slice stores it turned.
fn ask_slice(which: u32, own: Rows, other: Rows, slice: u32, lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < BC; c++) { // unroll
    let e = lid + c * THREADS;
    if (e < OQ * SQ) {
      let at = block_of(e, OQ);
      for (var n = 0u; n < 4u; n++) { // unroll
        (*stage)[c * 4u + n] = own_quad(which, row_at(own, at.rows % OG + OG * (4u * (at.rows / OG) + n)), slice * SQ + at.q);
      }
    } else {
      let at = block_of(e - OQ * SQ, TQ);
      for (var n = 0u; n < 4u; n++) { // unroll
        (*stage)[c * 4u + n] = other_quad(which, row_at(other, at.rows % TG + TG * (4u * (at.rows / TG) + n)), slice * SQ + at.q);
      }
    }
  }
}

fn put_slice(lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>) {
  for (var c = 0u; c < BC; c++) { // unroll
    let e = lid + c * THREADS;
    if (BLOCKS % THREADS == 0u || e < BLOCKS) {
      var at = block_of(e, OQ);
      if (e >= OQ * SQ) {
        at = block_of(e - OQ * SQ, TQ);
        at.rows += OQ;
      }
      let to = 4u * at.q * SS + at.rows;
      tile[to] = vec4<f32>((*stage)[c * 4u].x, (*stage)[c * 4u + 1u].x, (*stage)[c * 4u + 2u].x, (*stage)[c * 4u + 3u].x);
      tile[to + SS] = vec4<f32>((*stage)[c * 4u].y, (*stage)[c * 4u + 1u].y, (*stage)[c * 4u + 2u].y, (*stage)[c * 4u + 3u].y);
      tile[to + 2u * SS] = vec4<f32>((*stage)[c * 4u].z, (*stage)[c * 4u + 1u].z, (*stage)[c * 4u + 2u].z, (*stage)[c * 4u + 3u].z);
      tile[to + 3u * SS] = vec4<f32>((*stage)[c * 4u].w, (*stage)[c * 4u + 1u].w, (*stage)[c * 4u + 2u].w, (*stage)[c * 4u + 3u].w);
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

// dots adds a slice's part to the scores.
fn dots(og: u32, tg: u32, s: ptr<function, array<vec4<f32>, PAIRS>>) {
  var x = array<vec4<f32>, RQ>();
  for (var k0 = 0u; k0 < 4u * SQ; k0 += KU) {
    for (var ku = 0u; ku < KU; ku++) { // unroll
      let k = k0 + ku;
      for (var g = 0u; g < RQ; g++) { // unroll
        x[g] = tile[k * SS + og + OG * g];
      }
      for (var m = 0u; m < XQ; m++) { // unroll
        let y = tile[k * SS + OQ + tg + TG * m];
        for (var g = 0u; g < RQ; g++) { // unroll
          (*s)[m * 4u * RQ + g] = fma(vec4<f32>(y.x), x[g], (*s)[m * 4u * RQ + g]);
          (*s)[(m * 4u + 1u) * RQ + g] = fma(vec4<f32>(y.y), x[g], (*s)[(m * 4u + 1u) * RQ + g]);
          (*s)[(m * 4u + 2u) * RQ + g] = fma(vec4<f32>(y.z), x[g], (*s)[(m * 4u + 2u) * RQ + g]);
          (*s)[(m * 4u + 3u) * RQ + g] = fma(vec4<f32>(y.w), x[g], (*s)[(m * 4u + 3u) * RQ + g]);
        }
      }
    }
  }
}

// scores multiplies own by other rows. Slice 0 is on its way at the start; at the
// end what `then` says.
fn scores(which: u32, then: u32, own: Rows, other: Rows, lid: u32, stage: ptr<function, array<vec4<f32>, STAGED>>, s: ptr<function, array<vec4<f32>, PAIRS>>) {
  for (var n = 0u; n < PAIRS; n++) { // unroll
    (*s)[n] = vec4<f32>();
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

// own_rows are the four own rows of a quad of a thread.
fn own_rows(row0: u32, og: u32, g: u32) -> vec4<u32> {
  return vec4<u32>(row0 + og + OG * 4u * g) + vec4<u32>(0u, OG, 2u * OG, 3u * OG);
}

// sums adds a part's rows, each times its weights, to the sums: own row n of
// quad g and quad tg + TG·m of D are sum[(m·RQ + g)·4 + n].
fn sums(og: u32, tg: u32, sum: ptr<function, array<vec4<f32>, SUMS>>) {
  var w = array<vec4<f32>, RQ>();
  for (var r0 = 0u; r0 < dims.part; r0 += RU) {
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
  var row_first = array<vec4<u32>, RQ>();
  var first_key = 0u;
  if (HAS_DOC) {
    first_key = u32(doc_start[b * dims.t + row0]);
    for (var g = 0u; g < RQ; g++) { // unroll
      for (var n = 0u; n < 4u; n++) { // unroll
        row_first[g][n] = u32(doc_start[b * dims.t + min(own_rows(row0, og, g)[n], last_row)]);
      }
    }
  }
  let own = Rows((b * dims.t * dims.h + h) * D, dims.h * D, row0, last_row);
  var other = Rows((b * dims.t * dims.kvh + kv) * D, dims.kvh * D, first_key / OTHER * OTHER, last_row);
  var stage = array<vec4<f32>, STAGED>();
  var s = array<vec4<f32>, PAIRS>();
  var o = array<vec4<f32>, SUMS>();
  var sum = array<vec4<f32>, RQ>();
  var top = array<vec4<f32>, RQ>();
  for (var g = 0u; g < RQ; g++) { // unroll
    top[g] = vec4<f32>(NO_TOP);
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
        let key = vec4<u32>(other.first + tg + TG * i);
        for (var g = 0u; g < RQ; g++) { // unroll
          var hidden = key > own_rows(row0, og, g);
          if (HAS_DOC) {
            hidden = hidden | (key < row_first[g]);
          }
          s[i * RQ + g] = select(s[i * RQ + g], vec4<f32>(NEG_INF), hidden);
        }
      }
    }
    var rise = NEG_INF;
    for (var g = 0u; g < RQ; g++) { // unroll
      var high = vec4<f32>(NEG_INF);
      for (var i = 0u; i < RX; i++) { // unroll
        high = max(high, s[i * RQ + g]);
      }
      weights[tg * OQ + og + OG * g] = high;
      let above = high - top[g];
      rise = max(rise, max(max(above.x, above.y), max(above.z, above.w)));
    }
    if (rise > SLACK) {
      atomicStore(&raised, turn);
    }
    workgroupBarrier();
    if (atomicLoad(&raised) == turn) {
      for (var g = 0u; g < RQ; g++) { // unroll
        var high = vec4<f32>(NEG_INF);
        for (var t = 0u; t < TG; t++) {
          high = max(high, weights[t * OQ + og + OG * g]);
        }
        high = select(top[g], high, high - top[g] > vec4<f32>(SLACK));
        let shrink = exp2(top[g] - high);
        top[g] = high;
        sum[g] *= shrink;
        for (var m = 0u; m < DJ; m++) { // unroll
          for (var n = 0u; n < 4u; n++) { // unroll
            o[(m * RQ + g) * 4u + n] *= shrink[n];
          }
        }
      }
    }
    for (var i = 0u; i < RX; i++) { // unroll
      for (var g = 0u; g < RQ; g++) { // unroll
        s[i * RQ + g] = exp2(s[i * RQ + g] - top[g]);
        sum[g] += s[i * RQ + g];
      }
    }
    var next = other;
    next.first += OTHER;
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = s[(part * PI + i) * RQ + g];
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
    weights[tg * OQ + og + OG * g] = sum[g];
  }
  workgroupBarrier();
  for (var g = 0u; g < RQ; g++) { // unroll
    var whole = vec4<f32>();
    for (var t = 0u; t < TG; t++) {
      whole += weights[t * OQ + og + OG * g];
    }
    for (var n = 0u; n < 4u; n++) { // unroll
      let row = own_rows(row0, og, g)[n];
      if (row <= last_row) {
        for (var m = 0u; m < DJ; m++) { // unroll
          store_out(own.base + row * own.stride, tg + TG * m, o[(m * RQ + g) * 4u + n] / whole[n]);
        }
        if (tg == 0u) {
          lse[(b * dims.h + h) * dims.t + row] = (top[g][n] + log2(whole[n])) * LN2;
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
  var row_lse = array<vec4<f32>, RQ>();
  var row_delta = array<vec4<f32>, RQ>();
  var row_first = array<vec4<u32>, RQ>();
  for (var g = 0u; g < RQ; g++) { // unroll
    for (var n = 0u; n < 4u; n++) { // unroll
      let row = min(own_rows(row0, og, g)[n], last_row);
      let st = stats[(b * dims.h + h) * dims.t + row];
      row_lse[g][n] = st.x;
      row_delta[g][n] = st.y;
      if (HAS_DOC) {
        row_first[g][n] = u32(doc_start[b * dims.t + row]);
      }
    }
  }
  var first_key = 0u;
  if (HAS_DOC) {
    first_key = u32(doc_start[b * dims.t + row0]);
  }
  let own = Rows((b * dims.t * dims.h + h) * D, dims.h * D, row0, last_row);
  var other = Rows((b * dims.t * dims.kvh + kv) * D, dims.kvh * D, first_key / OTHER * OTHER, last_row);
  var stage = array<vec4<f32>, STAGED>();
  var s = array<vec4<f32>, PAIRS>();
  var dp = array<vec4<f32>, PAIRS>();
  var sum = array<vec4<f32>, SUMS>();
  ask_slice(0u, own, other, 0u, lid, &stage);
  while (other.first <= last_row) {
    scores(0u, THEN_SLICE, own, other, lid, &stage, &s);
    scores(1u, 0u, own, other, lid, &stage, &dp);
    for (var i = 0u; i < RX; i++) { // unroll
      for (var g = 0u; g < RQ; g++) { // unroll
        dp[i * RQ + g] = exp2(fma(s[i * RQ + g], vec4<f32>(pre), -row_lse[g])) * (dp[i * RQ + g] - row_delta[g]);
      }
    }
    if (HAS_DOC || other.first + OTHER > row0 + 1u) {
      for (var i = 0u; i < RX; i++) { // unroll
        let key = vec4<u32>(other.first + tg + TG * i);
        for (var g = 0u; g < RQ; g++) { // unroll
          var hidden = key > own_rows(row0, og, g);
          if (HAS_DOC) {
            hidden = hidden | (key < row_first[g]);
          }
          dp[i * RQ + g] = select(dp[i * RQ + g], vec4<f32>(), hidden);
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
          weights[(tg + TG * i) * OQ + og + OG * g] = dp[(part * PI + i) * RQ + g];
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
      let row = own_rows(row0, og, g)[n];
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
  var s = array<vec4<f32>, PAIRS>();
  var dp = array<vec4<f32>, PAIRS>();
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
      for (var g = 0u; g < RQ; g++) { // unroll
        s[i * RQ + g] = exp2(fma(s[i * RQ + g], vec4<f32>(pre), vec4<f32>(-row_stats[i].x)));
        dp[i * RQ + g] = s[i * RQ + g] * (dp[i * RQ + g] - row_stats[i].y);
      }
    }
    if (HAS_DOC || other.first < last_key || other.first + OTHER > dims.t) {
      for (var i = 0u; i < RX; i++) { // unroll
        let row = other.first + tg + TG * i;
        var row_first = 0u;
        if (HAS_DOC) {
          row_first = u32(doc_start[b * dims.t + min(row, other.last)]);
        }
        for (var g = 0u; g < RQ; g++) { // unroll
          let key = own_rows(key0, og, g);
          let hidden = (key > vec4<u32>(row)) | (key < vec4<u32>(row_first)) | vec4<bool>(row > other.last);
          s[i * RQ + g] = select(s[i * RQ + g], vec4<f32>(), hidden);
          dp[i * RQ + g] = select(dp[i * RQ + g], vec4<f32>(), hidden);
        }
      }
    }
    for (var part = 0u; part < PARTS; part++) { // unroll
      workgroupBarrier();
      put_part(lid, &stage);
      for (var i = 0u; i < PI; i++) { // unroll
        for (var g = 0u; g < RQ; g++) { // unroll
          weights[(tg + TG * i) * OQ + og + OG * g] = s[(part * PI + i) * RQ + g];
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
          weights[(tg + TG * i) * OQ + og + OG * g] = dp[(part * PI + i) * RQ + g];
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
      let key = own_rows(key0, og, g)[n];
      if (key <= last_key) {
        for (var m = 0u; m < DJ; m++) { // unroll
          store_dk(own.base + key * own.stride, tg + TG * m, sum_k[(m * RQ + g) * 4u + n] * dims.scale);
          store_dv(own.base + key * own.stride, tg + TG * m, sum_v[(m * RQ + g) * 4u + n]);
        }
      }
    }
  }
}
