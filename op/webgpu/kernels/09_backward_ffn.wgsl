// 09_backward_ffn: undoes 06_activation. out = act(gate)·up, so
//   dup = dout·act(gate),  dgate = dout·up·act'(gate).

// first_of_four is the first of a thread's four elements.
fn first_of_four(wid: vec3<u32>, nwg: vec3<u32>, lid: u32) -> u32 {
  return flat_wg(wid, nwg) * 4u * WG + lid;
}

// silu_pair is (silu x, silu' x), silu' = σ·(1 + x·(1 − σ)).
fn silu_pair(x: f32) -> vec2<f32> {
  let e = exp(-abs(x));
  let big = 1.0 / (1.0 + e);       // σ(|x|)
  let small = e * big;             // 1 − σ(|x|), without cancellation
  let s = select(small, big, x >= 0.0);
  let rest = select(big, small, x >= 0.0);
  return vec2<f32>(x * s, s * (1.0 + x * rest));
}

// gelu_pair is (gelu x, gelu' x): gelu = x·σ(2u), gelu' = σ + x·σ·(1 − σ)·2u'.
fn gelu_pair(x: f32) -> vec2<f32> {
  let u2 = 1.5957691216057308 * (x + 0.044715 * x * x * x);
  let e = exp(-abs(u2));
  let big = 1.0 / (1.0 + e);
  let small = e * big;
  let s = select(small, big, u2 >= 0.0);
  let slope = 1.5957691216057308 * (1.0 + 0.134145 * x * x);
  return vec2<f32>(x * s, s + x * big * small * slope);
}

// both is the activation of x and its slope, as glu_backward_mixed takes them.
const GELU: bool = false;
fn both(x: f32) -> vec2<f32> {
  if (GELU) {
    return gelu_pair(x);
  }
  return silu_pair(x);
}

// --- KERNEL: swiglu_backward ---
// gate, up, dout, dgate, dup (n), four elements per thread, WG apart, so
// that several loads are on their way. 1-D dispatch over ceil(n/4).
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read> dout: array<f32>;
@group(0) @binding(3) var<storage, read_write> dgate: array<f32>;
@group(0) @binding(4) var<storage, read_write> dup: array<f32>;
@group(0) @binding(5) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  for (var u = 0u; u < 4u; u++) { // unroll
    let i = at + u * WG;
    if (i < n) {
      let act = silu_pair(gate[i]);
      let d = dout[i];
      dgate[i] = d * up[i] * act.y;
      dup[i] = d * act.x;
    }
  }
}

// --- KERNEL: swiglu_backward_inplace ---
// As swiglu_backward; dx holds dout and becomes dup, or with TO_GATE dgate.
const TO_GATE: bool = false;
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
@group(0) @binding(3) var<storage, read_write> other: array<f32>;
@group(0) @binding(4) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var act = array<vec2<f32>, 4>();
  var d = vec4<f32>();
  var y = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      act[k] = silu_pair(gate[at + k * WG]);
      d[k] = dx[at + k * WG];
      y[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      let g = d[k] * y[k] * act[k].y;
      let u = d[k] * act[k].x;
      dx[at + k * WG] = select(u, g, TO_GATE);
      other[at + k * WG] = select(g, u, TO_GATE);
    }
  }
}

// --- KERNEL: geglu_backward ---
// gate, up, dout, dgate, dup (n), four elements per thread, WG apart, so
// that several loads are on their way. 1-D dispatch over ceil(n/4).
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read> dout: array<f32>;
@group(0) @binding(3) var<storage, read_write> dgate: array<f32>;
@group(0) @binding(4) var<storage, read_write> dup: array<f32>;
@group(0) @binding(5) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  for (var u = 0u; u < 4u; u++) { // unroll
    let i = at + u * WG;
    if (i < n) {
      let act = gelu_pair(gate[i]);
      let d = dout[i];
      dgate[i] = d * up[i] * act.y;
      dup[i] = d * act.x;
    }
  }
}

// --- KERNEL: geglu_backward_inplace ---
// As geglu_backward; dx holds dout and becomes dup, or with TO_GATE dgate.
const TO_GATE: bool = false;
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
@group(0) @binding(3) var<storage, read_write> other: array<f32>;
@group(0) @binding(4) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = first_of_four(wid, nwg, lid);
  var act = array<vec2<f32>, 4>();
  var d = vec4<f32>();
  var y = vec4<f32>();
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      act[k] = gelu_pair(gate[at + k * WG]);
      d[k] = dx[at + k * WG];
      y[k] = up[at + k * WG];
    }
  }
  for (var k = 0u; k < 4u; k++) { // unroll
    if (at + k * WG < n) {
      let g = d[k] * y[k] * act[k].y;
      let u = d[k] * act[k].x;
      dx[at + k * WG] = select(u, g, TO_GATE);
      other[at + k * WG] = select(g, u, TO_GATE);
    }
  }
}

// --- KERNEL: glu_backward_mixed_vec ---
// As swiglu_backward, or with GELU as geglu_backward, for n a multiple of 4, where
// gate and up (IN16), dout (DOUT16), dgate and dup (OUT16), or all, are pairs of
// 16-bit floats. STEPS vec4s per thread, WG apart, 1-D dispatch over
// ceil(n/(4·STEPS)); n in vec4s.
const IN16: bool = false;
const DOUT16: bool = false;
const OUT16: bool = false;
const STEPS: u32 = 2u;
// #if IN16
alias In = vec2<u32>;
// #else
alias In = vec4<f32>;
// #endif
// #if DOUT16
alias DOut = vec2<u32>;
// #else
alias DOut = vec4<f32>;
// #endif
// #if OUT16
alias Out = vec2<u32>;
// #else
alias Out = vec4<f32>;
// #endif
@group(0) @binding(0) var<storage, read> gate: array<In>;
@group(0) @binding(1) var<storage, read> up: array<In>;
@group(0) @binding(2) var<storage, read> dout: array<DOut>;
@group(0) @binding(3) var<storage, read_write> dgate: array<Out>;
@group(0) @binding(4) var<storage, read_write> dup: array<Out>;
@group(0) @binding(5) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = flat_wg(wid, nwg) * STEPS * WG + lid;
  var a = array<In, STEPS>();
  var b = array<In, STEPS>();
  var c = array<DOut, STEPS>();
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (at + k * WG < n) {
      a[k] = gate[at + k * WG];
      b[k] = up[at + k * WG];
      c[k] = dout[at + k * WG];
    }
  }
  for (var k = 0u; k < STEPS; k++) { // unroll
    if (at + k * WG < n) {
      let x = wide(a[k]);
      // #if DOUT16
      let d = unquad(c[k]);
      // #else
      let d = c[k];
      // #endif
      let p = both(x.x);
      let q = both(x.y);
      let r = both(x.z);
      let s = both(x.w);
      dgate[at + k * WG] = narrow(d * wide(b[k]) * vec4<f32>(p.y, q.y, r.y, s.y));
      dup[at + k * WG] = narrow(d * vec4<f32>(p.x, q.x, r.x, s.x));
    }
  }
}

fn wide(v: In) -> vec4<f32> {
  // #if IN16
  return unquad(v);
  // #else
  return v;
  // #endif
}

fn narrow(v: vec4<f32>) -> Out {
  // #if OUT16
  return quad(v);
  // #else
  return v;
  // #endif
}

// --- KERNEL: glu_backward_mixed ---
// As glu_backward_mixed_vec for any n, in elements: two per thread, 1-D dispatch over
// ceil(n/2); with an odd n the other half of a result's last word stays as it is.
const IN16: bool = false;
const DOUT16: bool = false;
const OUT16: bool = false;
// #if IN16
alias In = u32;
// #else
alias In = f32;
// #endif
// #if DOUT16
alias DOut = u32;
// #else
alias DOut = f32;
// #endif
// #if OUT16
alias Out = u32;
// #else
alias Out = f32;
// #endif
@group(0) @binding(0) var<storage, read> gate: array<In>;
@group(0) @binding(1) var<storage, read> up: array<In>;
@group(0) @binding(2) var<storage, read> dout: array<DOut>;
@group(0) @binding(3) var<storage, read_write> dgate: array<Out>;
@group(0) @binding(4) var<storage, read_write> dup: array<Out>;
@group(0) @binding(5) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (2u * i >= n) {
    return;
  }
  let last = 2u * i + 1u == n;   // of which there is one element alone
  let second = min(2u * i + 1u, n - 1u);
  // #if IN16
  let x = unpair(gate[i]);
  let y = unpair(up[i]);
  // #else
  let x = vec2<f32>(gate[2u * i], gate[second]);
  let y = vec2<f32>(up[2u * i], up[second]);
  // #endif
  // #if DOUT16
  let d = unpair(dout[i]);
  // #else
  let d = vec2<f32>(dout[2u * i], dout[second]);
  // #endif
  let p = both(x.x);
  let q = both(x.y);
  let g = d * y * vec2<f32>(p.y, q.y);
  let u = d * vec2<f32>(p.x, q.x);
  // #if OUT16
  if (last) {
    dgate[i] = pair(g.x, 0.0) | (dgate[i] & 0xffff0000u);
    dup[i] = pair(u.x, 0.0) | (dup[i] & 0xffff0000u);
  } else {
    dgate[i] = pair(g.x, g.y);
    dup[i] = pair(u.x, u.y);
  }
  // #else
  dgate[2u * i] = g.x;
  dup[2u * i] = u.x;
  if (!last) {
    dgate[2u * i + 1u] = g.y;
    dup[2u * i + 1u] = u.y;
  }
  // #endif
}
