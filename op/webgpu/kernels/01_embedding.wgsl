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

// --- KERNEL: embedding_backward ---
// dw[tokens[n], c] += dout[n, c], in order of n, without atomics on floats.
// tokens (N), dout (N, C), dw (V, C), added to.
//
// One workgroup for each pair of a position n and a block of WG channels (1-D
// dispatch over N·ceil(C/WG)). The workgroup of a token's first position owns
// the token's row: it walks over the later positions, WG at a time, marks the
// equal ones in a bit mask and adds their rows one by one. The others stop.
// One channel per thread.
@group(0) @binding(0) var<storage, read> tokens: array<i32>;
@group(0) @binding(1) var<storage, read> dout: array<f32>;
@group(0) @binding(2) var<storage, read_write> dw: array<f32>;
@group(0) @binding(3) var<uniform> dims: EmbeddingDims;

var<workgroup> earlier: atomic<u32>;
var<workgroup> stop: u32;
var<workgroup> equal: array<atomic<u32>, 8>;   // WG bits

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let blocks = (dims.c + WG - 1u) / WG;
  let item = flat_wg(wid, nwg);
  let first = item / blocks;
  let c = (item % blocks) * WG + lid;
  if (first >= dims.n) {
    return;
  }
  let token = tokens[first];
  if (token < 0 || u32(token) >= dims.v) {
    return;
  }
  if (lid == 0u) {
    atomicStore(&earlier, 0u);
  }
  workgroupBarrier();
  var seen = 0u;
  for (var n = lid; n < first; n += WG) {
    if (tokens[n] == token) {
      seen = 1u;
    }
  }
  atomicOr(&earlier, seen);
  workgroupBarrier();
  if (lid == 0u) {
    stop = atomicLoad(&earlier);
  }
  if (workgroupUniformLoad(&stop) != 0u) {
    return;
  }
  var sum = 0.0;
  let at = u32(token) * dims.c + c;
  if (c < dims.c) {
    sum = dw[at];
  }
  let chunks = (dims.n - first + WG - 1u) / WG;
  for (var chunk = 0u; chunk < chunks; chunk++) {
    let base = first + chunk * WG;
    if (lid < 8u) {
      atomicStore(&equal[lid], 0u);
    }
    workgroupBarrier();
    if (base + lid < dims.n && tokens[base + lid] == token) {
      atomicOr(&equal[lid >> 5u], 1u << (lid & 31u));
    }
    workgroupBarrier();
    for (var word = 0u; word < 8u; word++) {
      var bits = atomicLoad(&equal[word]);
      while (bits != 0u) {
        let n = base + word * 32u + firstTrailingBit(bits);
        bits &= bits - 1u;
        if (c < dims.c) {
          sum += dout[n * dims.c + c];
        }
      }
    }
    workgroupBarrier();
  }
  if (c < dims.c) {
    dw[at] = sum;
  }
}
