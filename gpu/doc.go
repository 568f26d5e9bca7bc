// Package gpu is the thin device layer of Tezgah: it finds a GPU, opens it
// within its limits, and runs WGSL compute kernels on it. Natively it speaks
// Vulkan through gpu/vulkan, or Vulkan, Metal and DirectX 12 through
// github.com/gogpu/wgpu's hardware layer; compiled to js/wasm it speaks the
// browser's WebGPU. No type of these shows in the exported API, so the layers
// above compile unchanged for all.
//
// It knows nothing of tensors or models: it moves bytes and starts kernels.
// Open device.go first, then dispatch.go. Platform code is behind the small
// interface in driver.go: direct.go, native*.go and js*.go implement it.
//
// # API
//
//	Adapters() ([]AdapterInfo, error)
//	Open(Options) (*Device, error)
//	NewRehearsal(AdapterInfo, Limits, Features) *Device        checks and counts, does nothing
//
//	(*Device).NewBuffer(label, sizeBytes) (*Buffer, error)     zeroed
//	(*Buffer).Release(), Size(), Label()
//	(*Device).Upload(buf, offset, bytes) error
//	(*Device).Download(buf, offset, bytes) error
//	(*Device).DownloadAll(...Read) error                       one wait for several
//	(*Device).Copy(dst, dstOffset, src, srcOffset, n) error
//	(*Device).Clear(buf, offset, n) error
//
//	(*Device).NewPipeline(label, wgsl) (*Pipeline, error)      cached by source
//	(*Device).NewModule(label, Module) (*Pipeline, error)                 SPIR-V
//	(*Device).Dispatch(p, x, y, z, ...Binding) error
//	(*Device).Dispatch1D(p, workgroups, ...Binding) error
//	Buf(b), Range(b, offset, n), Uniform(bytes), UniformOf(&params)
//
//	(*Device).Submit() error    hand what was recorded to the GPU
//	(*Device).Wait() error      Submit, then wait until it is done
//	(*Device).StartTiming(n) error, Timed() int, StopTiming() ([]KernelTime, error)
//	(*Device).Info(), Limits(), Features(), Notice(), Memory(), FreeBytes(), Lost(), Close()
//	(*Device).LoadCache(name, &v) bool, SaveCache(name, v) error
//
// Everything happens in the order it was called: an Upload between two
// dispatches is seen by the second alone, and a dispatch sees all that earlier
// dispatches wrote. Nothing needs a barrier or a flush from the caller.
//
// Dispatches are recorded and handed over in batches, so an error of the GPU
// itself may come back from a later Dispatch, Submit, Wait or Download. Every
// error says which buffer or kernel it is about, and wraps one of ErrNoAdapter,
// ErrLost, ErrOutOfMemory, ErrValidation or ErrShader; ErrUnusable comes with the
// first where a user should hear of it.
//
// # Uniforms
//
// A uniform's contents are passed with the dispatch. They are kept by content:
// the second step with the same numbers finds the same device memory and the
// same bind group, so a training step costs the host a few microseconds per
// dispatch. A number that changes every step and that many dispatches read is
// better put into one small Buffer, bound to the uniform, and uploaded once.
//
// # Kernels
//
// A kernel is a WGSL module with one @compute entry point and buffers in
// group 0 with bindings 0, 1, 2, …; binding i takes the i-th Binding of the
// dispatch. Storage offsets must be multiples of Limits.StorageAlign (at most
// 256), uniform ones of 256. WebGPU forbids binding one buffer both as
// read and as read_write in one dispatch, even where the ranges are apart, and
// two writable ranges that overlap; gpu refuses both on every platform.
// Subgroup sizes may differ between kernels on some GPUs: a kernel asks
// @builtin(subgroup_size), Features.SubgroupSize only says what a probe saw.
//
// A Device is not safe for concurrent use; Lost is.
package gpu
