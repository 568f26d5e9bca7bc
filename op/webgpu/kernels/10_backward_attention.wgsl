// 10_backward_attention: undoes attention_forward without a T×T buffer. Scores
// are computed again tile by tile; with P = exp(S − lse) and
// delta = Σ_d dout·out of a row (Dao et al., 2022):
//   dV = Pᵀ·dO,  dS = P∘(dO·Vᵀ − delta),  dQ = dS·K·scale,  dK = dSᵀ·Q·scale.
// Two kernels, so that each output has one owner: dQ by tiles of queries, dK and
// dV by tiles of keys. Scores are kept times log2(e), as in the forward pass.
const D: u32 = 64u;           // head size
const DQ: u32 = 16u;          // quads of a head, ceil(D/4)
const STRIDE: u32 = 17u;      // row of a tile in workgroup memory, odd: no bank conflicts

// The workgroup's own tile has OWN = 4·OG rows, the tiles it walks over OTHER =
// TG·SI rows. Threads: OG·TG; for scores a thread takes 4 own and SI other rows,
// for sums 4 own rows and DJ quads of D.
const OG: u32 = 8u;           // groups of 4 own rows
const TG: u32 = 16u;          // threads per group
const SI: u32 = 2u;           // other rows per thread
const DJ: u32 = 1u;           // ceil(DQ/TG)
const SUMS: u32 = 4u;         // 4·DJ
const PAIRS: u32 = 8u;        // 4·SI
const DU: u32 = 1u;           // quads of D written out at a time, divides DQ
const RU: u32 = 1u;           // other rows written out at a time, divides OTHER
const HAS_DOC: bool = false;

const OWN: u32 = 4u * OG;
const OTHER: u32 = TG * SI;
const THREADS: u32 = OG * TG;
const LOG2E: f32 = 1.4426950408889634;

struct BackwardDims {
  b: u32,
  t: u32,
  h: u32,
  kvh: u32,
  first: u32,    // first workgroup of this dispatch
  scale: f32,
}

// --- KERNEL: attention_backward_delta ---
// stats (B, H, T) = (lse·log2 e, delta). out, dout (B, T, H, D), lse (B, H, T). 16
// threads per row, 16 rows per workgroup, 1-D dispatch over ceil(B·T·H/16).
@group(0) @binding(0) var<storage, read> out: array<f32>;
@group(0) @binding(1) var<storage, read> dout: array<f32>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read_write> stats: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> dims: BackwardDims;
var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = flat_wg(wid, nwg) * 16u + lid / 16u;   // (b·T + t)·H + h
  let rows = dims.b * dims.t * dims.h;
  var sum = 0.0;
  if (row < rows) {
    for (var d = lid % 16u; d < D; d += 16u) {
      sum = fma(out[row * D + d], dout[row * D + d], sum);
    }
  }
  sums[lid] = sum;
  workgroupBarrier();
  if (lid % 16u == 0u && row < rows) {
    var delta = 0.0;
    for (var i = 0u; i < 16u; i++) {
      delta += sums[lid + i];
    }
    let h = row % dims.h;
    let t = row / dims.h % dims.t;
    let b = row / dims.h / dims.t;
    let to = (b * dims.h + h) * dims.t + t;
    stats[to] = vec2<f32>(lse[to] * LOG2E, delta);
  }
}

// --- KERNEL: attention_backward_dq ---
// dq (B, T, H, D), written. q, dout (B, T, H, D), k, v (B, T, KVH, D), stats
// (B, H, T), doc_start (B, T). Own rows: queries; other rows: keys, in order.
// 1-D dispatch over B·H·ceil(T/OWN), the long rows first. Workgroup memory:
// (2·(OWN + OTHER)·STRIDE + OTHER·OG)·16 bytes.
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read> dout: array<f32>;
@group(0) @binding(4) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
@group(0) @binding(6) var<storage, read_write> dq: array<f32>;
@group(0) @binding(7) var<uniform> dims: BackwardDims;

var<workgroup> qt: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> dot_: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> kt: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> vt: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> dst: array<vec4<f32>, OTHER * OG>;   // dS: per key, 4 queries of each group

fn quad_q(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(q_[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = q_[e + 1u]; }
  if (4u * i + 2u < D) { x.z = q_[e + 2u]; }
  if (4u * i + 3u < D) { x.w = q_[e + 3u]; }
  return x;
}

fn quad_dout(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(dout[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = dout[e + 1u]; }
  if (4u * i + 2u < D) { x.z = dout[e + 2u]; }
  if (4u * i + 3u < D) { x.w = dout[e + 3u]; }
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
  let q_base = (b * dims.t * dims.h + h) * D;
  let q_stride = dims.h * D;
  let kv_base = (b * dims.t * dims.kvh + kv) * D;
  let kv_stride = dims.kvh * D;
  let pre = dims.scale * LOG2E;

  for (var e = lid; e < OWN * DQ; e += THREADS) {
    let at = q_base + min(row0 + e / DQ, last_row) * q_stride;
    let to = e / DQ * STRIDE + e % DQ;
    qt[to] = quad_q(at, e % DQ);
    dot_[to] = quad_dout(at, e % DQ);
  }
  // For scores: own rows og + OG·j, other rows tg + TG·i.
  let og = lid % OG;
  let tg = lid / OG;
  var row_stats = array<vec2<f32>, 4>();
  var row_first = array<u32, 4>();
  for (var j = 0u; j < 4u; j++) { // unroll
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
  var acc = array<vec4<f32>, SUMS>();   // own row sg + OG·j, quad sd + TG·n
  let sg = lid / TG;
  let sd = lid % TG;
  var qk = array<f32, PAIRS>();
  var dp = array<f32, PAIRS>();
  var x = array<vec4<f32>, 4>();
  var y = array<vec4<f32>, 4>();
  for (var k0 = first_key / OTHER * OTHER; k0 <= last_row; k0 += OTHER) {
    workgroupBarrier();
    for (var e = lid; e < OTHER * DQ; e += THREADS) {
      let at = kv_base + min(k0 + e / DQ, last_row) * kv_stride;
      let to = e / DQ * STRIDE + e % DQ;
      kt[to] = quad_k(at, e % DQ);
      vt[to] = quad_v(at, e % DQ);
    }
    workgroupBarrier();
    for (var n = 0u; n < PAIRS; n++) { // unroll
      qk[n] = 0.0;
      dp[n] = 0.0;
    }
    for (var d0 = 0u; d0 < DQ; d0 += DU) {
      for (var du = 0u; du < DU; du++) { // unroll
        let d = d0 + du;
        for (var j = 0u; j < 4u; j++) { // unroll
          x[j] = qt[(og + OG * j) * STRIDE + d];
          y[j] = dot_[(og + OG * j) * STRIDE + d];
        }
        for (var i = 0u; i < SI; i++) { // unroll
          let k4 = kt[(tg + TG * i) * STRIDE + d];
          let v4 = vt[(tg + TG * i) * STRIDE + d];
          for (var j = 0u; j < 4u; j++) { // unroll
            qk[i * 4u + j] = fma(x[j].x, k4.x, fma(x[j].y, k4.y, fma(x[j].z, k4.z, fma(x[j].w, k4.w, qk[i * 4u + j]))));
            dp[i * 4u + j] = fma(y[j].x, v4.x, fma(y[j].y, v4.y, fma(y[j].z, v4.z, fma(y[j].w, v4.w, dp[i * 4u + j]))));
          }
        }
      }
    }
    for (var i = 0u; i < SI; i++) { // unroll
      let key = k0 + tg + TG * i;
      var ds = vec4<f32>();
      for (var j = 0u; j < 4u; j++) { // unroll
        let row = row0 + og + OG * j;
        let hidden = key > row || row > last_row || (HAS_DOC && key < row_first[j]);
        let p = exp2(fma(qk[i * 4u + j], pre, -row_stats[j].x));
        ds[j] = select(p * (dp[i * 4u + j] - row_stats[j].y) * dims.scale, 0.0, hidden);
      }
      dst[(tg + TG * i) * OG + og] = ds;
    }
    workgroupBarrier();
    for (var key0 = 0u; key0 < OTHER; key0 += RU) {
      for (var ru = 0u; ru < RU; ru++) { // unroll
        let key = key0 + ru;
        let ds = dst[key * OG + sg];
        for (var n = 0u; n < DJ; n++) { // unroll
          if (sd + TG * n < DQ) {
            let k4 = kt[key * STRIDE + sd + TG * n];
            acc[n * 4u + 0u] = fma(vec4<f32>(ds.x), k4, acc[n * 4u + 0u]);
            acc[n * 4u + 1u] = fma(vec4<f32>(ds.y), k4, acc[n * 4u + 1u]);
            acc[n * 4u + 2u] = fma(vec4<f32>(ds.z), k4, acc[n * 4u + 2u]);
            acc[n * 4u + 3u] = fma(vec4<f32>(ds.w), k4, acc[n * 4u + 3u]);
          }
        }
      }
    }
  }
  for (var n = 0u; n < DJ; n++) { // unroll
    for (var j = 0u; j < 4u; j++) { // unroll
      let row = row0 + sg + OG * j;
      let d = 4u * (sd + TG * n);
      let to = q_base + row * q_stride + d;
      if (row <= last_row) {
        if (d < D) { dq[to] = acc[n * 4u + j].x; }
        if (d + 1u < D) { dq[to + 1u] = acc[n * 4u + j].y; }
        if (d + 2u < D) { dq[to + 2u] = acc[n * 4u + j].z; }
        if (d + 3u < D) { dq[to + 3u] = acc[n * 4u + j].w; }
      }
    }
  }
}

// --- KERNEL: attention_backward_dkdv ---
// dk, dv (B, T, KVH, D), written. Own rows: keys; other rows: the queries of all
// heads that read this key head, head after head, each in order. Queries before
// the tile or of later documents are not visited. 1-D dispatch over
// B·KVH·ceil(T/OWN). Workgroup memory:
// (2·(OWN + OTHER)·STRIDE + 2·OTHER·OG + OTHER)·16 bytes.
@group(0) @binding(0) var<storage, read> q_: array<f32>;
@group(0) @binding(1) var<storage, read> k_: array<f32>;
@group(0) @binding(2) var<storage, read> v_: array<f32>;
@group(0) @binding(3) var<storage, read> dout: array<f32>;
@group(0) @binding(4) var<storage, read> stats: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> doc_start: array<i32>;   // not read unless HAS_DOC
@group(0) @binding(6) var<storage, read_write> dk: array<f32>;
@group(0) @binding(7) var<storage, read_write> dv: array<f32>;
@group(0) @binding(8) var<uniform> dims: BackwardDims;

var<workgroup> kt: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> vt: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> qt: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> dot_: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> pt: array<vec4<f32>, OTHER * OG>;    // P: per query, 4 keys of each group
var<workgroup> dst: array<vec4<f32>, OTHER * OG>;   // dS, likewise
var<workgroup> row_stats: array<vec2<f32>, OTHER>;
var<workgroup> row_first: array<u32, OTHER>;

fn quad_q(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(q_[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = q_[e + 1u]; }
  if (4u * i + 2u < D) { x.z = q_[e + 2u]; }
  if (4u * i + 3u < D) { x.w = q_[e + 3u]; }
  return x;
}

fn quad_dout(at: u32, i: u32) -> vec4<f32> {
  let e = at + 4u * i;
  var x = vec4<f32>(dout[e], 0.0, 0.0, 0.0);
  if (4u * i + 1u < D) { x.y = dout[e + 1u]; }
  if (4u * i + 2u < D) { x.z = dout[e + 2u]; }
  if (4u * i + 3u < D) { x.w = dout[e + 3u]; }
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
  let q_stride = dims.h * D;
  let kv_base = (b * dims.t * dims.kvh + kv) * D;
  let kv_stride = dims.kvh * D;
  let pre = dims.scale * LOG2E;

  for (var e = lid; e < OWN * DQ; e += THREADS) {
    let at = kv_base + min(key0 + e / DQ, last_key) * kv_stride;
    let to = e / DQ * STRIDE + e % DQ;
    kt[to] = quad_k(at, e % DQ);
    vt[to] = quad_v(at, e % DQ);
  }
  let og = lid % OG;
  let tg = lid / OG;
  let sg = lid / TG;
  let sd = lid % TG;
  var sum_k = array<vec4<f32>, SUMS>();
  var sum_v = array<vec4<f32>, SUMS>();
  var qk = array<f32, PAIRS>();
  var dp = array<f32, PAIRS>();
  var x = array<vec4<f32>, 4>();
  var y = array<vec4<f32>, 4>();
  for (var part = 0u; part < share; part++) {
    let h = kv * share + part;
    let q_base = (b * dims.t * dims.h + h) * D;
    for (var row0 = key0 / OTHER * OTHER; row0 < dims.t; row0 += OTHER) {
      if (HAS_DOC && u32(doc_start[b * dims.t + row0]) > last_key) {
        break;
      }
      workgroupBarrier();
      for (var e = lid; e < OTHER * DQ; e += THREADS) {
        let at = q_base + min(row0 + e / DQ, dims.t - 1u) * q_stride;
        let to = e / DQ * STRIDE + e % DQ;
        qt[to] = quad_q(at, e % DQ);
        dot_[to] = quad_dout(at, e % DQ);
      }
      for (var e = lid; e < OTHER; e += THREADS) {
        let row = min(row0 + e, dims.t - 1u);
        row_stats[e] = stats[(b * dims.h + h) * dims.t + row];
        if (HAS_DOC) {
          row_first[e] = u32(doc_start[b * dims.t + row]);
        }
      }
      workgroupBarrier();
      for (var n = 0u; n < PAIRS; n++) { // unroll
        qk[n] = 0.0;
        dp[n] = 0.0;
      }
      for (var d0 = 0u; d0 < DQ; d0 += DU) {
        for (var du = 0u; du < DU; du++) { // unroll
          let d = d0 + du;
          for (var j = 0u; j < 4u; j++) { // unroll
            x[j] = kt[(og + OG * j) * STRIDE + d];
            y[j] = vt[(og + OG * j) * STRIDE + d];
          }
          for (var i = 0u; i < SI; i++) { // unroll
            let q4 = qt[(tg + TG * i) * STRIDE + d];
            let o4 = dot_[(tg + TG * i) * STRIDE + d];
            for (var j = 0u; j < 4u; j++) { // unroll
              qk[i * 4u + j] = fma(x[j].x, q4.x, fma(x[j].y, q4.y, fma(x[j].z, q4.z, fma(x[j].w, q4.w, qk[i * 4u + j]))));
              dp[i * 4u + j] = fma(y[j].x, o4.x, fma(y[j].y, o4.y, fma(y[j].z, o4.z, fma(y[j].w, o4.w, dp[i * 4u + j]))));
            }
          }
        }
      }
      for (var i = 0u; i < SI; i++) { // unroll
        let at = tg + TG * i;
        let row = row0 + at;
        let st = row_stats[at];
        var p4 = vec4<f32>();
        var ds = vec4<f32>();
        for (var j = 0u; j < 4u; j++) { // unroll
          let key = key0 + og + OG * j;
          let hidden = key > row || row >= dims.t || (HAS_DOC && key < row_first[at]);
          let p = exp2(fma(qk[i * 4u + j], pre, -st.x));
          p4[j] = select(p, 0.0, hidden);
          ds[j] = select(p * (dp[i * 4u + j] - st.y) * dims.scale, 0.0, hidden);
        }
        pt[at * OG + og] = p4;
        dst[at * OG + og] = ds;
      }
      workgroupBarrier();
      for (var r0 = 0u; r0 < OTHER; r0 += RU) {
        for (var ru = 0u; ru < RU; ru++) { // unroll
          let row = r0 + ru;
          let p4 = pt[row * OG + sg];
          let ds = dst[row * OG + sg];
          for (var n = 0u; n < DJ; n++) { // unroll
            if (sd + TG * n < DQ) {
              let o4 = dot_[row * STRIDE + sd + TG * n];
              let q4 = qt[row * STRIDE + sd + TG * n];
              sum_v[n * 4u + 0u] = fma(vec4<f32>(p4.x), o4, sum_v[n * 4u + 0u]);
              sum_v[n * 4u + 1u] = fma(vec4<f32>(p4.y), o4, sum_v[n * 4u + 1u]);
              sum_v[n * 4u + 2u] = fma(vec4<f32>(p4.z), o4, sum_v[n * 4u + 2u]);
              sum_v[n * 4u + 3u] = fma(vec4<f32>(p4.w), o4, sum_v[n * 4u + 3u]);
              sum_k[n * 4u + 0u] = fma(vec4<f32>(ds.x), q4, sum_k[n * 4u + 0u]);
              sum_k[n * 4u + 1u] = fma(vec4<f32>(ds.y), q4, sum_k[n * 4u + 1u]);
              sum_k[n * 4u + 2u] = fma(vec4<f32>(ds.z), q4, sum_k[n * 4u + 2u]);
              sum_k[n * 4u + 3u] = fma(vec4<f32>(ds.w), q4, sum_k[n * 4u + 3u]);
            }
          }
        }
      }
    }
  }
  for (var n = 0u; n < DJ; n++) { // unroll
    for (var j = 0u; j < 4u; j++) { // unroll
      let key = key0 + sg + OG * j;
      let d = 4u * (sd + TG * n);
      let to = kv_base + key * kv_stride + d;
      if (key <= last_key) {
        if (d < D) {
          dk[to] = sum_k[n * 4u + j].x;
          dv[to] = sum_v[n * 4u + j].x;
        }
        if (d + 1u < D) {
          dk[to + 1u] = sum_k[n * 4u + j].y;
          dv[to + 1u] = sum_v[n * 4u + j].y;
        }
        if (d + 2u < D) {
          dk[to + 2u] = sum_k[n * 4u + j].z;
          dv[to + 2u] = sum_v[n * 4u + j].z;
        }
        if (d + 3u < D) {
          dk[to + 3u] = sum_k[n * 4u + j].w;
          dv[to + 3u] = sum_v[n * 4u + j].w;
        }
      }
    }
  }
}
