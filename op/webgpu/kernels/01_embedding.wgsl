// 01_embedding: token ids to rows of the embedding table and back.
struct EmbeddingDims {
  n: u32,   // N rows (tokens)
  c: u32,   // C channels
  v: u32,   // V rows of the table
}

// An id outside of the table would read foreign memory: its row becomes NaN, so
// that the loss shows it. The bits go through a runtime value (v has fewer than
// 2^31 rows), because a constant NaN is an error in WGSL.
fn not_a_number(v: u32) -> f32 {
  return bitcast<f32>(0x7fc00000u | (v >> 31u));
}

// --- KERNEL: embedding_forward ---
// out[n, c] = w[tokens[n], c]. tokens (N), w (V, C), out (N, C).
// One element per thread, 1-D dispatch over N·C.
@group(0) @binding(0) var<storage, read> tokens: array<i32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> dims: EmbeddingDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.n * dims.c) {
    return;
  }
  let token = u32(tokens[i / dims.c]);
  if (token >= dims.v) {
    out[i] = not_a_number(dims.v);
    return;
  }
  out[i] = w[token * dims.c + i % dims.c];
}

// --- KERNEL: embedding_forward_w16 ---
// As embedding_forward; w is f16, out f32.
@group(0) @binding(0) var<storage, read> tokens: array<i32>;
@group(0) @binding(1) var<storage, read> w: array<f16>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> dims: EmbeddingDims;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (i >= dims.n * dims.c) {
    return;
  }
  let token = u32(tokens[i / dims.c]);
  if (token >= dims.v) {
    out[i] = not_a_number(dims.v);
    return;
  }
  out[i] = f32(w[token * dims.c + i % dims.c]);
}

// --- KERNEL: embedding_forward_vec ---
// As embedding_forward, and with W16 as embedding_forward_w16, for C a multiple of 4.
// A thread copies STEPS vec4s, WG from each other, so that several loads are on their
// way: 1-D dispatch over ceil(N·C/4 / (WG·STEPS)) workgroups.
const W16: bool = false;
const STEPS: u32 = 4u;
// #if W16
alias Weights = vec4<f16>;
// #else
alias Weights = vec4<f32>;
// #endif
@group(0) @binding(0) var<storage, read> tokens: array<i32>;
@group(0) @binding(1) var<storage, read> w: array<Weights>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> dims: EmbeddingDims;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let first = flat_wg(wid, nwg) * WG * STEPS + lid;
  let c4 = dims.c / 4u;
  let all = dims.n * c4;
  var token = array<u32, STEPS>();
  var row = array<vec4<f32>, STEPS>();
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (first + k * WG < all) {
      token[k] = u32(tokens[(first + k * WG) / c4]);
    }
  }
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (token[k] < dims.v) {
      row[k] = vec4<f32>(w[token[k] * c4 + (first + k * WG) % c4]);
    } else {
      row[k] = vec4<f32>(not_a_number(dims.v));
    }
  }
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (first + k * WG < all) {
      out[first + k * WG] = row[k];
    }
  }
}

// --- KERNEL: embedding_backward ---
// dw[tokens[n], c] += dout[n, c], without atomics on floats; the order of each sum
// follows from the token ids alone. tokens (N), dout (N, C), dw (V, C), added to.
//
// A workgroup owns a slice of the vocabulary (slices, a power of two, by a hash of
// the id) and LANES items of the rows, an item being one channel or, with VEC, four.
// 1-D dispatch over ceil(C/(LANES·item))·slices. It walks over the tokens, TURN at a
// time: mark those of the slice in a bit mask, list their positions in order, sort
// the list by id, and add up the rows of equal ids. Its WG/LANES teams take equal
// pieces of the list. A run of equal ids that goes over several pieces is summed
// by each team in its own piece; the team that has its beginning adds these up.
const VEC: bool = false;
const LANES: u32 = 32u;
const TURN: u32 = 8192u;      // 32 bits for each of the WG threads
const LISTED: u32 = 512u;     // most positions in the list, a multiple of WG
const TEAMS: u32 = WG / LANES;
const AHEAD: u32 = 4u;        // rows of a team on their way at a time
// #if VEC
alias Item = vec4<f32>;
// #else
alias Item = f32;
// #endif
struct SliceDims {
  n: u32,        // N rows (tokens)
  items: u32,    // items of a row
  v: u32,        // V
  slices: u32,
}
@group(0) @binding(0) var<storage, read> tokens: array<i32>;
@group(0) @binding(1) var<storage, read> dout: array<Item>;
@group(0) @binding(2) var<storage, read_write> dw: array<Item>;
@group(0) @binding(3) var<uniform> dims: SliceDims;

const NONE: u32 = 0xffffffffu;   // no id: they are below 2^31

var<workgroup> marks: array<atomic<u32>, WG>;
var<workgroup> counts: array<u32, WG>;
var<workgroup> counts16: array<u32, 16>;
var<workgroup> found: u32;
var<workgroup> at_: array<u32, LISTED>;    // positions
var<workgroup> id_: array<u32, LISTED>;    // and their tokens
var<workgroup> carry: array<Item, WG>;     // a team's sum for a run begun before
var<workgroup> ends: array<u32, TEAMS>;    // 1: that run ends in the team's piece

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let group = flat_wg(wid, nwg);
  let slice = group & (dims.slices - 1u);
  let item = group / dims.slices * LANES + lid % LANES;
  for (var turn = 0u; turn < dims.n; turn += TURN) {
    mark(turn, slice, lid);
    let before = count_marks(lid);
    let all = workgroupUniformLoad(&found);
    for (var from_ = 0u; from_ < all; from_ += LISTED) {
      let n = min(LISTED, all - from_);
      list(turn, before, from_, lid);
      sort_list(n, lid);
      add_rows(n, item, lid);
    }
  }
}

// mark sets a bit for each position of the turn whose token is in the slice: bit i
// of word w is position turn + 32·w + i.
fn mark(turn: u32, slice: u32, lid: u32) {
  atomicStore(&marks[lid], 0u);
  workgroupBarrier();
  for (var first = 0u; first < TURN && turn + first < dims.n; first += 8u * WG) {
    var t = array<u32, 8>();
    for (var k = 0u; k < 8u; k++) { // unroll
      t[k] = NONE;
      if (turn + first + k * WG + lid < dims.n) {
        t[k] = u32(tokens[turn + first + k * WG + lid]);
      }
    }
    for (var k = 0u; k < 8u; k++) { // unroll
      if (t[k] < dims.v && (((t[k] * 0x9e3779b1u) >> 16u) & (dims.slices - 1u)) == slice) {
        let p = first + k * WG + lid;
        atomicOr(&marks[p >> 5u], 1u << (p & 31u));
      }
    }
  }
  workgroupBarrier();
}

// count_marks returns how many marks there are before the thread's word, and puts
// their number into found.
fn count_marks(lid: u32) -> u32 {
  counts[lid] = countOneBits(atomicLoad(&marks[lid]));
  workgroupBarrier();
  if (lid < 16u) {
    var sum = 0u;
    for (var i = 0u; i < 16u; i++) {
      sum += counts[lid * 16u + i];
    }
    counts16[lid] = sum;
  }
  workgroupBarrier();
  var before = 0u;
  for (var i = 0u; i < lid / 16u; i++) {
    before += counts16[i];
  }
  for (var i = lid / 16u * 16u; i < lid; i++) {
    before += counts[i];
  }
  if (lid == WG - 1u) {
    found = before + counts[lid];
  }
  workgroupBarrier();
  return before;
}

// list puts marks from_ to from_ + LISTED into the list, in order.
fn list(turn: u32, before: u32, from_: u32, lid: u32) {
  var bits = atomicLoad(&marks[lid]);
  var i = before;
  while (bits != 0u) {
    if (i >= from_ && i < from_ + LISTED) {
      let p = turn + lid * 32u + firstTrailingBit(bits);
      at_[i - from_] = p;
      id_[i - from_] = u32(tokens[p]);
    }
    bits &= bits - 1u;
    i++;
  }
  workgroupBarrier();
}

// sort_list sorts n entries by id, equal ones by position: each thread counts the
// entries that come before its own, eight at a time. NONE, which fills up the list to
// eights, comes before none.
fn sort_list(n: u32, lid: u32) {
  if (lid < 8u && n + lid < LISTED) {
    id_[n + lid] = NONE;
  }
  workgroupBarrier();
  var at = array<u32, LISTED / WG>();
  var id = array<u32, LISTED / WG>();
  var place = array<u32, LISTED / WG>();
  for (var k = 0u; k < LISTED / WG; k++) { // unroll
    let e = lid + k * WG;
    if (e < n) {
      at[k] = at_[e];
      id[k] = id_[e];
    }
  }
  for (var first = 0u; lid < n && first < n; first += 8u) {
    var other = array<u32, 8>();
    for (var i = 0u; i < 8u; i++) { // unroll
      other[i] = id_[first + i];
    }
    for (var k = 0u; k < LISTED / WG; k++) { // unroll
      for (var i = 0u; i < 8u; i++) { // unroll
        place[k] += u32(other[i] < id[k] || (other[i] == id[k] && first + i < lid + k * WG));
      }
    }
  }
  workgroupBarrier();
  for (var k = 0u; k < LISTED / WG; k++) { // unroll
    if (lid + k * WG < n) {
      at_[place[k]] = at[k];
      id_[place[k]] = id[k];
    }
  }
  workgroupBarrier();
}

// id_at is the id of entry e of n, or NONE past the end.
fn id_at(e: u32, n: u32) -> u32 {
  if (e < n) {
    return id_[e];
  }
  return NONE;
}

// add_rows adds the rows of n sorted entries to dw.
fn add_rows(n: u32, item: u32, lid: u32) {
  let on = item < dims.items;
  let team = lid / LANES;
  let each = (n + TEAMS - 1u) / TEAMS;
  let begin = min(n, team * each);
  let end = min(n, begin + each);
  var carried = NONE;   // the run that began in an earlier piece
  if (begin > 0u && begin < end && id_[begin - 1u] == id_[begin]) {
    carried = id_[begin];
  }
  carry[lid] = Item();
  var ended = 0u;
  var sum = Item();
  var e = begin;
  while (e < end) {
    // Most of a frequent id's rows: one run that goes on, with nothing to write.
    if (e + 2u * AHEAD <= end && id_[e] == id_at(e + 2u * AHEAD, n)) {
      var rows = array<Item, 2u * AHEAD>();
      for (var k = 0u; k < 2u * AHEAD; k++) { // unroll
        if (on) {
          rows[k] = dout[at_[e + k] * dims.items + item];
        }
      }
      for (var k = 0u; k < 2u * AHEAD; k++) { // unroll
        sum += rows[k];
      }
      e += 2u * AHEAD;
      continue;
    }
    var row = array<Item, AHEAD>();
    var old = array<Item, AHEAD>();   // of dw, for runs that end here
    for (var k = 0u; k < AHEAD; k++) { // unroll
      if (on && e + k < end) {
        let id = id_[e + k];
        row[k] = dout[at_[e + k] * dims.items + item];
        if (id != id_at(e + k + 1u, n) && id != carried) {
          old[k] = dw[id * dims.items + item];
        }
      }
    }
    for (var k = 0u; k < AHEAD; k++) { // unroll
      if (e + k < end) {
        let id = id_[e + k];
        sum += row[k];
        if (id != id_at(e + k + 1u, n)) {
          if (id == carried) {
            carry[lid] = sum;
            ended = 1u;
          } else if (on) {
            dw[id * dims.items + item] = old[k] + sum;
          }
          sum = Item();
        }
      }
    }
    e += AHEAD;
  }
  let open = end > begin && id_[end - 1u] == id_at(end, n);   // the last run goes on
  let last = id_at(end, n);
  if (open && last == carried) {
    carry[lid] = sum;
  }
  if (lid % LANES == 0u) {
    ends[team] = ended;
  }
  workgroupBarrier();
  if (open && last != carried && on) {
    for (var next = team + 1u; next < TEAMS; next++) {
      sum += carry[next * LANES + lid % LANES];
      if (ends[next] != 0u) {
        break;
      }
    }
    dw[last * dims.items + item] += sum;
  }
  workgroupBarrier();
  storageBarrier();   // the next list may have the same ids
}
