// Package vulkan is a compute device straight on Vulkan 1.3, without windows,
// cgo or a layer between: adapters, memory, buffers, pipelines from SPIR-V,
// recorded dispatches with barriers only where data flows, transfers and
// timestamps. It enables exactly the features it uses, knows which matrix
// shapes the GPU multiplies, and keeps the driver's compiled pipelines on disk.
//
// It knows nothing of WGSL or of kernels; package gpu puts its checks and its
// WGSL compiler on top. The functions of Vulkan come from
// github.com/gogpu/wgpu/hal/vulkan/vk.
//
// Open instance.go first (adapters), then device.go, record.go (what runs when)
// and memory.go (who owns which bytes).
package vulkan
