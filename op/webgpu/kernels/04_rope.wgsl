// 04_rope: rotary position embedding in the half-split form (Su et al., 2021):
// the pair (i, i + D/2) of every head turns by the angle of its position.
struct RopeDims {
  pairs: u32,   // B·T·H·D/2
  t: u32,       // T
  h: u32,       // H heads
  half: u32,    // D/2
}
struct RopePosition {
  pos0: u32,    // position of t = 0
}

// --- KERNEL: rope_forward ---
// x (B, T, H, D), turned in place; cos_sin (P, D): cos of the D/2 angles of a
// position, then their sin. One pair per thread, 1-D dispatch over the pairs.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> cos_sin: array<f32>;
@group(0) @binding(2) var<uniform> dims: RopeDims;
@group(0) @binding(3) var<uniform> position: RopePosition;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let p = flat_id(gid, nwg);
  if (p >= dims.pairs) {
    return;
  }
  let i = p % dims.half;
  let head = p / dims.half;                 // (b·T + t)·H + h
  let t = head / dims.h % dims.t;
  let at = head * 2u * dims.half + i;
  let row = (position.pos0 + t) * 2u * dims.half + i;
  let c = cos_sin[row];
  let s = cos_sin[row + dims.half];
  let a = x[at];
  let b = x[at + dims.half];
  x[at] = a * c - b * s;
  x[at + dims.half] = b * c + a * s;
}

// --- KERNEL: rope_backward ---
// As rope_forward with the angles negated: the gradient of a rotation is the
// rotation back.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> cos_sin: array<f32>;
@group(0) @binding(2) var<uniform> dims: RopeDims;
@group(0) @binding(3) var<uniform> position: RopePosition;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let p = flat_id(gid, nwg);
  if (p >= dims.pairs) {
    return;
  }
  let i = p % dims.half;
  let head = p / dims.half;
  let t = head / dims.h % dims.t;
  let at = head * 2u * dims.half + i;
  let row = (position.pos0 + t) * 2u * dims.half + i;
  let c = cos_sin[row];
  let s = cos_sin[row + dims.half];
  let a = x[at];
  let b = x[at + dims.half];
  x[at] = a * c + b * s;
  x[at + dims.half] = b * c - a * s;
}

// --- KERNEL: rope_to16 ---
// As rope_forward, or with INVERSE as rope_backward, of any D, to pairs of 16-bit
// floats: out (B, T, H, D); x is only read. One pair of out, which may lie in two
// halves of a head, per thread, 1-D dispatch over dims.pairs.
const INVERSE: bool = false;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read> cos_sin: array<f32>;
@group(0) @binding(3) var<uniform> dims: RopeDims;
@group(0) @binding(4) var<uniform> position: RopePosition;

// turned is element `at` of the result.
fn turned(at: u32) -> f32 {
  let d = 2u * dims.half;
  let i = at % d;
  let t = at / d / dims.h % dims.t;
  let row = (position.pos0 + t) * d + i % dims.half;
  let c = cos_sin[row];
  var s = cos_sin[row + dims.half];
  if (INVERSE) {
    s = -s;
  }
  if (i < dims.half) {
    return x[at] * c - x[at + dims.half] * s;
  }
  return x[at] * c + x[at - dims.half] * s;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let p = flat_id(gid, nwg);
  if (p < dims.pairs) {
    out[p] = pair(turned(2u * p), turned(2u * p + 1u));
  }
}

// --- KERNEL: rope_vec ---
// As rope_forward, or with INVERSE as rope_backward, for D a multiple of 8: a
// thread turns four pairs of each of HEADS heads by the same four angles. With OUT16
// the result goes to out, in pairs of 16-bit floats, and x is only read. With TWO a
// second tensor x2 (B, T, H2, D) follows, to out2, HEADS2 heads a thread.
// 1-D dispatch over B·T·(H/HEADS + H2/HEADS2)·HALF4 threads.
const INVERSE: bool = false;
const OUT16: bool = false;
const TWO: bool = false;
const HALF4: u32 = 8u;   // D/8
const H: u32 = 12u;      // heads
const HEADS: u32 = 1u;   // heads of a thread, a divisor of H
const H2: u32 = 0u;      // the same of x2
const HEADS2: u32 = 1u;
// #if OUT16
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> cos_sin: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> dims: RopeDims;
@group(0) @binding(4) var<uniform> position: RopePosition;

fn put(i: u32, v: vec4<f32>) {
  out[i] = quad(v);
}
// #if TWO
@group(0) @binding(5) var<storage, read> x2: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> out2: array<vec2<u32>>;

fn put2(i: u32, v: vec4<f32>) {
  out2[i] = quad(v);
}
// #endif
// #else
@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> cos_sin: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> dims: RopeDims;
@group(0) @binding(3) var<uniform> position: RopePosition;

fn put(i: u32, v: vec4<f32>) {
  x[i] = v;
}
// #if TWO
@group(0) @binding(4) var<storage, read_write> x2: array<vec4<f32>>;

fn put2(i: u32, v: vec4<f32>) {
  x2[i] = v;
}
// #endif
// #endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let p = flat_id(gid, nwg);
  let threads = dims.pairs / (4u * HEADS);
  if (p < threads) {
    turn(p);
    return;
  }
  // #if TWO
  let threads2 = dims.pairs / (4u * H) * (H2 / HEADS2);
  if (p - threads < threads2) {
    turn2(p - threads);
  }
  // #endif
}

// angles is where the angles of a position (b·T + t) begin in cos_sin, for the
// thread's four.
fn angles(at: u32, i: u32) -> u32 {
  return (position.pos0 + at % dims.t) * 2u * HALF4 + i;
}

// turn does thread p of x.
fn turn(p: u32) {
  let i = p % HALF4;
  let heads = p / HALF4;                       // (b·T + t)·(H/HEADS) + h/HEADS
  let at = heads * HEADS * 2u * HALF4 + i;
  let row = angles(heads / (H / HEADS), i);
  var a = array<vec4<f32>, HEADS>();
  var b = array<vec4<f32>, HEADS>();
  for (var k = 0u; k < HEADS; k++) { // unroll
    a[k] = x[at + k * 2u * HALF4];
    b[k] = x[at + k * 2u * HALF4 + HALF4];
  }
  let c = cos_sin[row];
  var s = cos_sin[row + HALF4];
  if (INVERSE) {
    s = -s;
  }
  for (var k = 0u; k < HEADS; k++) { // unroll
    put(at + k * 2u * HALF4, a[k] * c - b[k] * s);
    put(at + k * 2u * HALF4 + HALF4, b[k] * c + a[k] * s);
  }
}

// #if TWO
// turn2 does thread p of x2.
fn turn2(p: u32) {
  let i = p % HALF4;
  let heads = p / HALF4;
  let at = heads * HEADS2 * 2u * HALF4 + i;
  let row = angles(heads / (H2 / HEADS2), i);
  var a = array<vec4<f32>, HEADS2>();
  var b = array<vec4<f32>, HEADS2>();
  for (var k = 0u; k < HEADS2; k++) { // unroll
    a[k] = x2[at + k * 2u * HALF4];
    b[k] = x2[at + k * 2u * HALF4 + HALF4];
  }
  let c = cos_sin[row];
  var s = cos_sin[row + HALF4];
  if (INVERSE) {
    s = -s;
  }
  for (var k = 0u; k < HEADS2; k++) { // unroll
    put2(at + k * 2u * HALF4, a[k] * c - b[k] * s);
    put2(at + k * 2u * HALF4 + HALF4, b[k] * c + a[k] * s);
  }
}
// #endif
