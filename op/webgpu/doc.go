// Package webgpu is the backend that runs every operation of package op as a
// hand-written WGSL kernel on a GPU: natively through Vulkan, Metal or
// DirectX 12, and in a browser.
//
// What it does: it keeps tensors in device memory, picks a kernel variant for
// each call (f16 or f32 weights, subgroups or none, tile shape, vectorised or
// not), compiles it once, and records a dispatch. It does not check shapes
// (op.Runner has done that), knows no model, and never chooses a device.
//
// Open call.go first: every launcher is a few lines on top of it. Then
// kernels.go (from kernel files to pipelines), matmul.go with tiles.go and
// tuner.go, attention.go, and the kernels themselves in kernels/*.wgsl, which
// are numbered in the order of a training step.
//
// # Determinism
//
// There are no float atomics. Every output element has one owner, or is summed
// in two fixed passes, so the same calls on the same device and driver give the
// same bits. The tuner chooses only among tile shapes that add in the same
// order; whether a product is split along K depends on its shape alone.
//
// # Steady state
//
// After the first step of a shape nothing is compiled or allocated: pipelines
// and bind groups are found again, scratch memory is kept, and the few numbers
// that change with every step go through one small buffer (dynamic.go).
package webgpu
