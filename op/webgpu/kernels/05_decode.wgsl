// 05_decode: attention of one query per sequence over the keys and values kept so
// far, and the upkeep of those. Scores are kept times log2(e), so that exp is exp2.
const D: u32 = 64u;           // head size
const DQ: u32 = 16u;          // quads of a head, ceil(D/4)

const LOG2E: f32 = 1.4426950408889634;

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
