// 00_shared: what every kernel sees. Assembled in front of each kernel, after
// the enable lines.
//
// Kernels that say "1-D dispatch" get one workgroup per item or one thread per
// element; more than MAX_WG_DIM workgroups arrive as a grid (MAX_WG_DIM, rows)
// and flat_id or flat_wg recovers the index. Surplus threads must do nothing.
//
// No kernel relies on workgroup memory being zero at its start.

const WG: u32 = 256u;                  // threads per workgroup of 1-D kernels; few have more
const MAX_WG_DIM: u32 = 65535u;        // workgroups per dimension of a dispatch
const NEG_INF: f32 = -3.4028234e38;    // identity of max; finite, so x - NEG_INF is no NaN
const F32_MAX: f32 = 3.4028234e38;

// flat_id is the thread's index in a 1-D dispatch of workgroups of WG threads.
fn flat_id(gid: vec3<u32>, nwg: vec3<u32>) -> u32 {
  return gid.x + gid.y * nwg.x * WG;
}

// flat_wg is the workgroup's index in a 1-D dispatch.
fn flat_wg(wid: vec3<u32>, nwg: vec3<u32>) -> u32 {
  return wid.x + wid.y * nwg.x;
}

// is_finite looks at the bits: compilers may assume that x == x.
fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

// nan_guard is x if it is finite, else 0.
fn nan_guard(x: f32) -> f32 {
  return select(0.0, x, is_finite(x));
}

// 16-bit floats lie in pairs, the first in the low half of a u32, so that kernels
// can write both types without a feature of the device. Rounding is to nearest,
// ties to even. NaN stays NaN; what is too large becomes an infinity.
const BF16: bool = false;   // the launcher's choice: bfloat16, else float16

// to_bf16 gives the 16 bits in the low half.
fn to_bf16(x: f32) -> u32 {
  let v = bitcast<u32>(x);
  if ((v & 0x7fffffffu) > 0x7f800000u) {
    return (v >> 16u) | 0x40u;   // rounding could turn a NaN into an infinity
  }
  return (v + 0x7fffu + ((v >> 16u) & 1u)) >> 16u;
}

fn pair(x: f32, y: f32) -> u32 {
  if (BF16) {
    return to_bf16(x) | (to_bf16(y) << 16u);
  }
  return pack2x16float(vec2<f32>(x, y));
}

fn quad(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(pair(v.x, v.y), pair(v.z, v.w));
}

// quad_number is quad for what is no NaN, in fewer steps.
fn quad_number(v: vec4<f32>) -> vec2<u32> {
  if (BF16) {
    let w = bitcast<vec4<u32>>(v);
    let r = w + 0x7fffu + ((w >> vec4<u32>(16u)) & vec4<u32>(1u));
    return (r.xz >> vec2<u32>(16u)) | (r.yw & vec2<u32>(0xffff0000u));
  }
  return quad(v);
}

// unpair and unquad are the way back, lossless.
fn unpair(w: u32) -> vec2<f32> {
  if (BF16) {
    return bitcast<vec2<f32>>(vec2<u32>(w << 16u, w & 0xffff0000u));
  }
  return unpack2x16float(w);
}

fn unquad(w: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpair(w.x), unpair(w.y));
}

// wg_reduce_sum and wg_reduce_max combine x over the WG threads of a workgroup
// and give every thread the result. All threads must call them; lid is the
// local index. They end with a barrier, so two in a row cannot race.
// wg_reduce_exp combines sums of exponentials: x is (m, Σexp(l − m)) of a thread's
// numbers l, the result that of all the workgroup's.
// #if SUBGROUPS
// Any subgroup size that divides WG, asked at run time because it may differ
// between kernels. Threads of a subgroup follow each other; the device layer's
// probe has checked that. Each subgroup combines the results of all.
var<workgroup> wg_scratch: array<f32, WG / 4u>;   // one value per subgroup of 4 or more

fn wg_reduce_sum(x: f32, lid: u32) -> f32 {
  let part = subgroupAdd(x);
  let size = subgroupAdd(1u);
  if ((lid & (size - 1u)) == 0u) {
    wg_scratch[lid / size] = part;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = lid & (size - 1u); i < WG / size; i += size) {
    total += wg_scratch[i];
  }
  total = subgroupAdd(total);
  workgroupBarrier();
  return total;
}

fn wg_reduce_max(x: f32, lid: u32) -> f32 {
  let part = subgroupMax(x);
  let size = subgroupAdd(1u);
  if ((lid & (size - 1u)) == 0u) {
    wg_scratch[lid / size] = part;
  }
  workgroupBarrier();
  var top = NEG_INF;
  for (var i = lid & (size - 1u); i < WG / size; i += size) {
    top = max(top, wg_scratch[i]);
  }
  top = subgroupMax(top);
  workgroupBarrier();
  return top;
}

// add_exp adds two sums of exponentials, of (m, Σexp(l − m)) each.
fn add_exp(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  let top = max(a.x, b.x);
  return vec2<f32>(top, a.y * exp(a.x - top) + b.y * exp(b.x - top));
}

var<workgroup> wg_exps: array<vec2<f32>, WG / 4u>;

fn sg_reduce_exp(x: vec2<f32>) -> vec2<f32> {
  let top = subgroupMax(x.x);
  return vec2<f32>(top, subgroupAdd(x.y * exp(x.x - top)));
}

fn wg_reduce_exp(x: vec2<f32>, lid: u32) -> vec2<f32> {
  let part = sg_reduce_exp(x);
  let size = subgroupAdd(1u);
  if ((lid & (size - 1u)) == 0u) {
    wg_exps[lid / size] = part;
  }
  workgroupBarrier();
  var whole = vec2<f32>(NEG_INF, 0.0);
  for (var i = lid & (size - 1u); i < WG / size; i += size) {
    whole = add_exp(whole, wg_exps[i]);
  }
  whole = sg_reduce_exp(whole);
  workgroupBarrier();
  return whole;
}
// #else
// The order is fixed: 16 strided sums of WG/16, then these 16 in turn.
var<workgroup> wg_scratch: array<f32, WG>;
var<workgroup> wg_partial: array<f32, 16>;

fn wg_reduce_sum(x: f32, lid: u32) -> f32 {
  wg_scratch[lid] = x;
  workgroupBarrier();
  if (lid < 16u) {
    var part = 0.0;
    for (var i = 0u; i < WG / 16u; i++) {
      part += wg_scratch[lid + 16u * i];
    }
    wg_partial[lid] = part;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < 16u; i++) {
    total += wg_partial[i];
  }
  workgroupBarrier();
  return total;
}

fn wg_reduce_max(x: f32, lid: u32) -> f32 {
  wg_scratch[lid] = x;
  workgroupBarrier();
  if (lid < 16u) {
    var part = NEG_INF;
    for (var i = 0u; i < WG / 16u; i++) {
      part = max(part, wg_scratch[lid + 16u * i]);
    }
    wg_partial[lid] = part;
  }
  workgroupBarrier();
  var top = NEG_INF;
  for (var i = 0u; i < 16u; i++) {
    top = max(top, wg_partial[i]);
  }
  workgroupBarrier();
  return top;
}

fn wg_reduce_exp(x: vec2<f32>, lid: u32) -> vec2<f32> {
  let top = wg_reduce_max(x.x, lid);
  return vec2<f32>(top, wg_reduce_sum(x.y * exp(x.x - top), lid));
}
// #endif
