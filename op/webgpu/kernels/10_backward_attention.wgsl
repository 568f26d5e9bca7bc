// 10_backward_attention: what the backward pass of attention (05_attention) begins
// with.
const D: u32 = 64u;           // head size
const LOG2E: f32 = 1.4426950408889634;

struct BackwardDims {
  b: u32,
  t: u32,
  h: u32,
  kvh: u32,
  first: u32,
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
