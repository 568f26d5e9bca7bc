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

// --- KERNEL: glu_backward_to16_vec ---
// As swiglu_backward, or with GELU as geglu_backward, for n a multiple of 4: dgate
// and dup in pairs of 16-bit floats. Two vec4s per thread, WG apart, 1-D dispatch
// over ceil(n/8); n in vec4s.
const GELU: bool = false;
@group(0) @binding(0) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dout: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> dgate: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> dup: array<vec2<u32>>;
@group(0) @binding(5) var<uniform> n: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = flat_wg(wid, nwg) * 2u * WG + lid;
  var x = array<vec4<f32>, 2>();
  var y = array<vec4<f32>, 2>();
  var d = array<vec4<f32>, 2>();
  for (var k = 0u; k < 2u; k++) { // unroll
    if (at + k * WG < n) {
      x[k] = gate[at + k * WG];
      y[k] = up[at + k * WG];
      d[k] = dout[at + k * WG];
    }
  }
  for (var k = 0u; k < 2u; k++) { // unroll
    if (at + k * WG < n) {
      let a = both(x[k].x);
      let b = both(x[k].y);
      let c = both(x[k].z);
      let e = both(x[k].w);
      dgate[at + k * WG] = quad(d[k] * y[k] * vec4<f32>(a.y, b.y, c.y, e.y));
      dup[at + k * WG] = quad(d[k] * vec4<f32>(a.x, b.x, c.x, e.x));
    }
  }
}

// both is the activation of x and its slope.
fn both(x: f32) -> vec2<f32> {
  if (GELU) {
    return gelu_pair(x);
  }
  return silu_pair(x);
}

// --- KERNEL: glu_backward_to16 ---
// As glu_backward_to16_vec for any n, in elements: one pair per thread, 1-D dispatch
// over ceil(n/2); with an odd n the other half of the last word stays as it is.
const GELU: bool = false;
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read> dout: array<f32>;
@group(0) @binding(3) var<storage, read_write> dgate: array<u32>;
@group(0) @binding(4) var<storage, read_write> dup: array<u32>;
@group(0) @binding(5) var<uniform> n: u32;

// gradients is (dgate, dup) of element i.
fn gradients(i: u32) -> vec2<f32> {
  var act = silu_pair(gate[i]);
  if (GELU) {
    act = gelu_pair(gate[i]);
  }
  return vec2<f32>(dout[i] * up[i] * act.y, dout[i] * act.x);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = flat_id(gid, nwg);
  if (2u * i >= n) {
    return;
  }
  let a = gradients(2u * i);
  if (2u * i + 1u < n) {
    let b = gradients(2u * i + 1u);
    dgate[i] = pair(a.x, b.x);
    dup[i] = pair(a.y, b.y);
  } else {
    dgate[i] = pair(a.x, 0.0) | (dgate[i] & 0xffff0000u);
    dup[i] = pair(a.y, 0.0) | (dup[i] & 0xffff0000u);
  }
}
