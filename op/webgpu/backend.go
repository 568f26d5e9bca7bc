package webgpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/internal/wgsl"
	"tezgah/tensor"
)

// Options choose how the backend works. The zero value is right for use.
type Options struct {
	// Tune says when tile shapes are measured; see TuneMode. TEZGAH_TUNE
	// overrides it.
	Tune TuneMode
	// Tile fixes the tile shape of all matrix products by its name, such as
	// "128x128x16"; see Tiles. TEZGAH_TILE overrides it. Empty means that the
	// tuner or the static table decides.
	Tile string
	// MaxDispatchFLOPs bounds the work of one dispatch, so that it stays well
	// under the time after which systems reset a GPU. Zero means a guess by the
	// kind of adapter.
	MaxDispatchFLOPs float64
}

// Backend implements op.Backend, op.Fuser and op.Measurer on a gpu.Device.
type Backend struct {
	dev      *gpu.Device
	features wgsl.Features
	notice   string
	// rehearsal: the device does nothing, see Rehearse.
	rehearsal bool
	sources   *sync.Map // of a rehearsal and of those made of it: see source

	kernels  map[variant]*kernel
	compiled int // pipelines built

	users         int   // buffers given out by Alloc
	now, peak     int64 // bytes of buffers and scratch
	scratchBytes  int64
	scratch       [scratchKinds]*gpu.Buffer
	temps         []*gpu.Buffer // stand-ins for operands that cannot be bound as they are
	none          *gpu.Buffer   // bound where an optional input is absent
	numbers       *gpu.Buffer   // see dynamic.go
	numbersNow    [numberSlots][4]uint32
	numbersKnown  [numberSlots]bool
	optimizerSlot map[optimizerKey]int

	matrix matrixUnits

	// Fixed by benchmarks and tests, else nil.
	forward, backwardQ, backwardKV *attentionShape

	norm      *normShape
	loss      *lossShape
	lossRow   *rowShape // of no threads: the other kernels
	ropeHeads int       // 0: chosen; -1: the kernel of any D

	overhead time.Duration // of a submit and its wait, once measured

	call  call // the one being recorded
	tuner tuner
}

var (
	_ op.Backend  = (*Backend)(nil)
	_ op.Fuser    = (*Backend)(nil)
	_ op.Measurer = (*Backend)(nil)
	_ op.Rounder  = (*Backend)(nil)
	_ op.Timer    = (*Backend)(nil)

	_ op.Noticer   = (*Backend)(nil)
	_ op.Rehearser = (*Backend)(nil)
)

// New returns a backend on an open device, which it closes with Close. Errors:
// kernel files that do not fit together, a failed allocation.
func New(dev *gpu.Device, o Options) (*Backend, error) {
	if _, err := library(); err != nil {
		return nil, err
	}
	f := dev.Features()
	b := &Backend{
		dev:           dev,
		features:      wgsl.Features{F16: f.F16, Subgroups: f.Subgroups, SubgroupSize: f.SubgroupSize},
		notice:        dev.Notice(),
		kernels:       map[variant]*kernel{},
		optimizerSlot: map[optimizerKey]int{},
	}
	var err error
	if b.none, err = dev.NewBuffer("absent operand", 256); err != nil {
		return nil, err
	}
	if b.numbers, err = dev.NewBuffer("changing numbers", numberSlots*numberStride); err != nil {
		return nil, err
	}
	if err := b.tuner.init(b, o); err != nil {
		return nil, err
	}
	if err := b.checkHalf(); err != nil {
		return nil, err
	}
	b.findMatrixUnits()
	b.dropSlowUnits()
	return b, nil
}

// checkHalf compiles the kernels that use f16. One that a driver refuses turns
// f16 off for the backend, with a notice; training then goes on in f32.
func (b *Backend) checkHalf() error {
	const subject = "f16-kernels"
	known := ""
	if !b.features.F16 || b.dev.LoadCache(subject, &known) && known == "fine" {
		return nil
	}
	for _, k := range []*kernel{
		b.plain("cast_f32_to_f16"), b.plain("embedding_forward_w16"), b.plain("rmsnorm_forward_w16"),
		b.matmulKernel(matmulForm{half: true, vec: true, check: true}, b.tuner.smallest()),
		b.matvecKernel("matvec", 1, 8, true),
	} {
		_, err := b.pipeline(k, 0)
		var shader *gpu.ShaderError
		if errors.As(err, &shader) {
			b.refuseHalf(err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	_ = b.dev.SaveCache(subject, "fine")
	return nil
}

// refuseHalf goes on without f16.
func (b *Backend) refuseHalf(why error) {
	b.features.F16 = false
	b.notice = joinNotice(b.notice, fmt.Sprintf("NOTE: f16 weights are off, training runs in f32: %v", why))
	clear(b.kernels)
}

func joinNotice(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}

// Name returns "webgpu".
func (b *Backend) Name() string { return "webgpu" }

// Device names the adapter, its driver and the features in use.
func (b *Backend) Device() string {
	i := b.dev.Info()
	s := fmt.Sprintf("%s (%s, %s, %s)", i.Name, i.Kind, i.Backend, i.Driver)
	if b.features.F16 {
		s += " f16"
	}
	if b.features.Subgroups {
		s += fmt.Sprintf(" subgroups of %d", b.features.SubgroupSize)
	}
	return s
}

// Notice is what the user should be told about the device, "" if nothing.
func (b *Backend) Notice() string { return b.notice }

// Limits are the device's.
func (b *Backend) Limits() op.Limits {
	l := b.dev.Limits()
	return op.Limits{
		MaxBufferBytes:  int64(l.BufferSize),
		MaxBindingBytes: int64(l.BindingSize),
		F16:             b.features.F16,
		FreeBytes:       int64(b.dev.FreeBytes()),
	}
}

// Rounds is what RoundProducts has set.
func (b *Backend) Rounds() tensor.DType { return b.matrix.rounding }

// Flush hands recorded work to the GPU.
func (b *Backend) Flush() error { return b.dev.Submit() }

// Sync waits for all work and returns its first error.
func (b *Backend) Sync() error { return b.dev.Wait() }

// Close waits for the GPU, frees everything, and closes the device.
func (b *Backend) Close() error {
	err := b.dev.Wait()
	b.dev.Close()
	return err
}

// Compiled is the number of pipelines built so far: constant in steady state.
func (b *Backend) Compiled() int { return b.compiled }

// isHalf reports whether a tensor's elements are f16, isBrain bfloat16, is16 either.
func isHalf(t op.Tensor) bool  { return t.Buf.(*buffer).typ == tensor.F16 }
func isBrain(t op.Tensor) bool { return t.Buf.(*buffer).typ == tensor.BF16 }
func is16(t op.Tensor) bool    { return isHalf(t) || isBrain(t) }
