// 05_attention: causal softmax(Q·Kᵀ·scale)·V by tiles with an online softmax (Dao
// et al., 2022), grouped-query heads (Ainslie et al., 2023), document mask; and
// the one-query form for decoding. Scores are kept times log2(e), so that exp is
// exp2. Constants are replaced by the launcher's choice; loops marked "unroll"
// are written out by it.
const D: u32 = 64u;           // head size
const DQ: u32 = 16u;          // quads of a head, ceil(D/4)

const LOG2E: f32 = 1.4426950408889634;
const LN2: f32 = 0.6931471805599453;

// --- KERNEL: attention_forward ---
// q, out (B, T, H, D), k, v (B, T, KVH, D), lse (B, H, T), doc_start (B, T): query t
// sees keys doc_start[b, t] … t; not falling in t.
//
// A thread owns one query row: its q (in registers, or with Q_SHARED in workgroup
// memory), its running maximum, sum and output. ROWS rows per workgroup share
// tiles of KEYS keys and values in workgroup memory and read them together, CHUNK
// keys at a time. Tiles after the last row or before the first row's document are
// not visited. 1-D dispatch over B·H·ceil(T/ROWS), the long rows first.
// Workgroup memory: (2·KEYS + ROWS if Q_SHARED)·DQ·16 bytes.
const ROWS: u32 = 64u;        // queries (threads) per workgroup
const KEYS: u32 = 16u;        // keys per tile, a multiple of CHUNK
const CHUNK: u32 = 4u;        // keys between two looks at the maximum
const HAS_DOC: bool = false;
const Q_SHARED: bool = false;
const Q_SLOTS: u32 = 1u;      // DQ·ROWS with Q_SHARED, else 1
struct AttentionDims {
  b: u32,
  t: u32,
  h: u32,
  kvh: u32,
  first: u32,    // first workgroup of this dispatch
  scale: f32,
}
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> dims: AttentionDims;

var<workgroup> kt: array<vec4<f32>, KEYS * DQ>;
var<workgroup> vt: array<vec4<f32>, KEYS * DQ>;
var<workgroup> qt: array<vec4<f32>, Q_SLOTS>;

fn quad_q(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(q_[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = q_[e + 1u]; }
  if (4u * i + 2u < D) { x.z = q_[e + 2u]; }
  if (4u * i + 3u < D) { x.w = q_[e + 3u]; }
  return x;
}

fn quad_k(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(k_[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = k_[e + 1u]; }
  if (4u * i + 2u < D) { x.z = k_[e + 2u]; }
  if (4u * i + 3u < D) { x.w = k_[e + 3u]; }
  return x;
}

fn quad_v(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(v_[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = v_[e + 1u]; }
  if (4u * i + 2u < D) { x.z = v_[e + 2u]; }
  if (4u * i + 3u < D) { x.w = v_[e + 3u]; }
  return x;
}

@compute @workgroup_size(ROWS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = dims.first + flat_wg(wid, nwg);
  let heads = dims.b * dims.h;
  let tiles = (dims.t + ROWS - 1u) / ROWS;
  if (item >= heads * tiles) {
    return;
  }
  let tile = tiles - 1u - item / heads;
  let b = item % heads / dims.h;
  let h = item % dims.h;
  let kv = h / (dims.h / dims.kvh);
  let first_row = tile * ROWS;
  let last_row = min(first_row + ROWS, dims.t) - 1u;
  let row = min(first_row + lid, last_row);   // surplus threads repeat the last row
  let kv_stride = dims.kvh * D;
  let kv_base = (b * dims.t * dims.kvh + kv) * D;
  let q_at = ((b * dims.t + row) * dims.h + h) * D;

  var first_key = 0u;
  var my_first = 0u;
  if (HAS_DOC) {
    first_key = u32(doc_start[b * dims.t + first_row]);
    my_first = u32(doc_start[b * dims.t + row]);
  }

  var q = array<vec4<f32>, DQ>();
  var o = array<vec4<f32>, DQ>();
  let pre = dims.scale * LOG2E;
  for (var i = 0u; i < DQ; i++) { // unroll
    if (Q_SHARED) {
      qt[i * ROWS + lid] = quad_q(q_at, i) * pre;
    } else {
      q[i] = quad_q(q_at, i) * pre;
    }
  }
  var top = NEG_INF;
  var sum = 0.0;
  var s = array<f32, CHUNK>();
  for (var k0 = first_key / KEYS * KEYS; k0 <= last_row; k0 += KEYS) {
    workgroupBarrier();
    for (var e = lid; e < KEYS * DQ; e += ROWS) {
      let key = min(k0 + e / DQ, last_row);
      let at = kv_base + key * kv_stride;
      kt[e] = quad_k(at, e % DQ);
      vt[e] = quad_v(at, e % DQ);
    }
    workgroupBarrier();
    for (var c = 0u; c < KEYS; c += CHUNK) {
      if (k0 + c > row) {
        break;
      }
      for (var j = 0u; j < CHUNK; j++) { // unroll
        var dot4 = vec4<f32>();
        for (var i = 0u; i < DQ; i++) { // unroll
          if (Q_SHARED) {
            dot4 = fma(qt[i * ROWS + lid], kt[(c + j) * DQ + i], dot4);
          } else {
            dot4 = fma(q[i], kt[(c + j) * DQ + i], dot4);
          }
        }
        s[j] = (dot4.x + dot4.y) + (dot4.z + dot4.w);
      }
      var high = top;
      for (var j = 0u; j < CHUNK; j++) { // unroll
        let key = k0 + c + j;
        if (key > row || key < my_first) {
          s[j] = NEG_INF;
        }
        high = max(high, s[j]);
      }
      if (high > top) {
        let shrink = exp2(top - high);
        top = high;
        sum *= shrink;
        for (var i = 0u; i < DQ; i++) { // unroll
          o[i] *= shrink;
        }
      }
      for (var j = 0u; j < CHUNK; j++) { // unroll
        let key = k0 + c + j;
        let p = select(exp2(s[j] - top), 0.0, key > row || key < my_first);
        sum += p;
        for (var i = 0u; i < DQ; i++) { // unroll
          o[i] = fma(vec4<f32>(p), vt[(c + j) * DQ + i], o[i]);
        }
      }
    }
  }
  if (first_row + lid > last_row) {
    return;
  }
  for (var i = 0u; i < DQ; i++) { // unroll
    let y = o[i] / sum;
    out[q_at + 4u * i] = y.x;
    if (4u * i + 1u < D) { out[q_at + 4u * i + 1u] = y.y; }
    if (4u * i + 2u < D) { out[q_at + 4u * i + 2u] = y.z; }
    if (4u * i + 3u < D) { out[q_at + 4u * i + 3u] = y.w; }
  }
  lse[(b * dims.h + h) * dims.t + row] = (top + log2(sum)) * LN2;
}

// --- KERNEL: attention_decode ---
// One query per sequence over the first len slots of the caches: q (B, H, D),
// k_cache, v_cache (B, P, KVH, D). A workgroup takes SPAN slots of one head and
// writes its part of the softmax: parts (B·H, spans, D + 2) with the unscaled
// output, then maximum and sum. attention_decode_merge puts the parts together.
// Grid (spans, B·H, 1) of WG threads. In the first half 4 threads share a slot, in
// the second every thread takes a quad of D and every GROUPS-th slot.
const SPAN: u32 = 64u;                  // slots per workgroup, WG/4
const GROUPS: u32 = 16u;                // largest power of two ≤ WG/DQ and ≤ SPAN
struct DecodeDims {
  h: u32,
  kvh: u32,
  p: u32,        // slots P of the caches
  scale: f32,
}
struct DecodeLength {
  len: u32,
}
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;
@group(0) @binding(4) var<uniform> dims: DecodeDims;
@group(0) @binding(5) var<uniform> length: DecodeLength;

var<workgroup> dots: array<f32, 256>;
var<workgroup> weights: array<f32, 64>;
var<workgroup> outs: array<vec4<f32>, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let b = wid.y / dims.h;
  let h = wid.y % dims.h;
  let kv = h / (dims.h / dims.kvh);
  let base = (b * dims.p * dims.kvh + kv) * D;
  let stride = dims.kvh * D;
  let slot0 = wid.x * SPAN;
  let q_at = wid.y * D;

  let slot = slot0 + lid / 4u;
  var dot = 0.0;
  if (slot < length.len) {
    for (var d = lid % 4u; d < D; d += 4u) {
      dot = fma(q_[q_at + d], k_[base + slot * stride + d], dot);
    }
  }
  dots[lid] = dot;
  workgroupBarrier();
  var score = NEG_INF;
  if (lid < SPAN && slot0 + lid < length.len) {
    score = (dots[4u * lid] + dots[4u * lid + 1u] + dots[4u * lid + 2u] + dots[4u * lid + 3u])
      * dims.scale * LOG2E;
  }
  let top = wg_reduce_max(score, lid);
  var weight = 0.0;
  if (lid < SPAN && slot0 + lid < length.len) {
    weight = exp2(score - top);
  }
  if (lid < SPAN) {
    weights[lid] = weight;
  }
  let sum = wg_reduce_sum(weight, lid);

  let quad = lid % DQ;
  let group = lid / DQ;
  var o = vec4<f32>();
  if (group < GROUPS) {
    for (var i = group; i < SPAN && slot0 + i < length.len; i += GROUPS) {
      let at = base + (slot0 + i) * stride + 4u * quad;
      var v = vec4<f32>(v_[at], 0.0, 0.0, 0.0);
      if (4u * quad + 1u < D) { v.y = v_[at + 1u]; }
      if (4u * quad + 2u < D) { v.z = v_[at + 2u]; }
      if (4u * quad + 3u < D) { v.w = v_[at + 3u]; }
      o = fma(vec4<f32>(weights[i]), v, o);
    }
  }
  outs[lid] = o;
  workgroupBarrier();
  for (var s = GROUPS / 2u; s > 0u; s = s / 2u) {
    if (group < s) {
      outs[lid] += outs[lid + s * DQ];
    }
    workgroupBarrier();
  }
  let to = (wid.y * nwg.x + wid.x) * (D + 2u);
  if (lid < D) {
    let y = outs[lid / 4u];
    parts[to + lid] = select(select(y.z, y.w, lid % 4u == 3u), select(y.x, y.y, lid % 4u == 1u), lid % 4u < 2u);
  }
  if (lid == 0u) {
    parts[to + D] = top;
    parts[to + D + 1u] = sum;
  }
}

// --- KERNEL: attention_decode_merge ---
// out (B, H, D) from parts (B·H, spans, D + 2), spans in order. One element per
// thread, 1-D dispatch over B·H·D.
struct MergeDims {
  heads: u32,    // B·H
}
struct MergeSpans {
  spans: u32,
}
@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> dims: MergeDims;
@group(0) @binding(3) var<uniform> merge: MergeSpans;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.heads * D) {
    return;
  }
  let base = i / D * merge.spans * (D + 2u);
  var top = NEG_INF;
  for (var s = 0u; s < merge.spans; s++) {
    top = max(top, parts[base + s * (D + 2u) + D]);
  }
  var y = 0.0;
  var sum = 0.0;
  for (var s = 0u; s < merge.spans; s++) {
    let at = base + s * (D + 2u);
    let f = exp2(parts[at + D] - top);
    y = fma(f, parts[at + i % D], y);
    sum = fma(f, parts[at + D + 1u], sum);
  }
  out[i] = y / sum;
}

// --- KERNEL: kv_append ---
// Copies T rows of keys and values into the caches, from slot pos mod P on, going
// round at the end. k, v (B, T, KVH·D), caches (B, P, KVH·D). One element of each
// per thread, 1-D dispatch over B·T·KVH·D.
struct AppendDims {
  n: u32,        // B·T·KVH·D
  t: u32,
  p: u32,
  width: u32,    // KVH·D
}
struct AppendPosition {
  slot: u32,     // pos mod P
}
@group(0) @binding(0) var<storage, read> k_: array<f32>;
@group(0) @binding(1) var<storage, read> v_: array<f32>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<f32>;
@group(0) @binding(4) var<uniform> dims: AppendDims;
@group(0) @binding(5) var<uniform> position: AppendPosition;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.n) {
    return;
  }
  let row = i / dims.width;
  let slot = (position.slot + row % dims.t) % dims.p;
  let to = (row / dims.t * dims.p + slot) * dims.width + i % dims.width;
  k_cache[to] = k_[i];
  v_cache[to] = v_[i];
}
