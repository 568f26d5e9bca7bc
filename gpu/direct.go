//go:build (linux || windows) && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"tezgah/gpu/vulkan"
)

// The driver straight on Vulkan. It is preferred where there is a Vulkan 1.3
// driver: it enables exactly what kernels use, has timestamps and matrix units,
// knows the free memory, and allows buffers above 256 MiB.

var direct struct {
	sync.Once
	search
}

// directAdapters lists what gpu/vulkan can open and what it cannot.
func directAdapters() search {
	direct.Do(func() {
		defer func() {
			if r := recover(); r != nil {
				direct.probed = append(direct.probed, fmt.Sprintf("vulkan: the binding panicked: %v", r))
			}
		}()
		list, refused, err := vulkan.Adapters()
		direct.search = directSearch(list, refused, err)
	})
	return direct.copied()
}

// directSearch turns gpu/vulkan's answer into this package's.
func directSearch(list []vulkan.Adapter, refused []vulkan.Refused, err error) (s search) {
	if err != nil {
		s.without = err
		s.probed = append(s.probed, "vulkan: "+err.Error())
		return s
	}
	for _, r := range refused {
		s.refused = append(s.refused, refusal{r.Name, r.Why})
		s.probed = append(s.probed, fmt.Sprintf("vulkan: %s: %v", r.Name, r.Why))
	}
	s.probed = append(s.probed, fmt.Sprintf("vulkan: loaded, %d adapters", len(list)))
	for _, a := range list {
		s.found = append(s.found, adapter{handle: a, AdapterInfo: AdapterInfo{
			Name: a.Name, Vendor: a.Vendor, Kind: directKind(a.Kind), Backend: BackendVulkan, Driver: a.Driver,
			Limits: directLimits(a.Limits), Matrix: matrixShapes(a.Matrix), Matrix2: a.Matrix2,
		}})
	}
	return s
}

func directKind(k vulkan.Kind) Kind {
	switch k {
	case vulkan.Discrete:
		return Discrete
	case vulkan.Integrated:
		return Integrated
	case vulkan.Software:
		return Software
	}
	return Unknown
}

// maxDirectBuffer is what buffers are tested up to on Vulkan. Kernels count
// elements in 32 bits, so more would need care.
const maxDirectBuffer = 4<<30 - 4

func directLimits(l vulkan.Limits) Limits {
	return Limits{
		BufferSize:      min(l.BufferSize, maxDirectBuffer) &^ 3,
		BindingSize:     min(l.StorageRange, l.BufferSize, maxDirectBuffer) &^ 3,
		UniformSize:     l.UniformRange,
		StorageAlign:    l.StorageAlign,
		StorageBuffers:  l.StorageBuffers,
		UniformBuffers:  l.UniformBuffers,
		WorkgroupMemory: l.WorkgroupMemory,
		Invocations:     l.Invocations,
		WorkgroupSizeX:  l.WorkgroupSize[0],
		WorkgroupSizeY:  l.WorkgroupSize[1],
		Workgroups:      l.Workgroups,
	}
}

func matrixShapes(list []vulkan.MatrixShape) (out []MatrixShape) {
	for _, s := range list {
		out = append(out, MatrixShape{M: s.M, N: s.N, K: s.K, Input: s.Input})
	}
	return out
}

// directDriver puts WGSL and this package's errors on a vulkan.Device.
type directDriver struct {
	dev      *vulkan.Device
	name     string // adapter, backend, driver: for shader errors
	limits   Limits
	compiler sync.Mutex // of WGSL
}

func openDirect(a adapter, l Limits) (driver, error) {
	dev, err := vulkan.Open(a.handle.(vulkan.Adapter), vulkan.Options{CacheFile: a.filePath("pipelines", ".bin")})
	if err != nil {
		return nil, directError(err)
	}
	return &directDriver{dev: dev, limits: l, name: fmt.Sprintf("%s (%s, %s, %s)", a.Name, a.Backend, a.Driver, runtime.GOOS)}, nil
}

// directError sorts an error into ErrLost and ErrOutOfMemory.
func directError(err error) error {
	if err == nil {
		return nil // and make nothing for errors.As to fill
	}
	var e *vulkan.Error
	switch {
	case !errors.As(err, &e):
	case e.Lost():
		return fmt.Errorf("%w: %v", ErrLost, err)
	case e.OutOfMemory():
		return fmt.Errorf("%w: %v", ErrOutOfMemory, err)
	}
	return err
}

func (v *directDriver) newBuffer(_ string, size uint64, _ bool) (any, error) {
	b, err := v.dev.NewBuffer(size)
	if err != nil {
		return nil, directError(err)
	}
	return b, nil
}

func (v *directDriver) freeBuffer(b any) { v.dev.FreeBuffer(b.(*vulkan.Buffer)) }

func (v *directDriver) newPipeline(label, source, entry string, slots []Slot) (any, error) {
	v.compiler.Lock() // nobody says that naga may be used twice at once
	spirv, err := compileSPIRV(v.limits, source, entry, slots)
	v.compiler.Unlock()
	var p *vulkan.Pipeline
	if err == nil {
		p, err = v.dev.NewPipeline(vulkan.Module{Code: spirv, Entry: entry, Slots: directSlots(slots)})
	}
	if err != nil {
		if err = directError(err); isShaderFault(err) {
			err = newShaderError(label, v.name, source, err.Error())
		}
		return nil, err
	}
	return p, nil
}

// newModule makes a pipeline from SPIR-V.
func (v *directDriver) newModule(label string, m Module) (any, error) {
	p, err := v.dev.NewPipeline(vulkan.Module{Code: m.Code, Entry: m.Entry, Slots: directSlots(m.Slots), Constants: m.Constants, Subgroup: m.Subgroup})
	if err != nil {
		if err = directError(err); isShaderFault(err) {
			err = &ShaderError{Kernel: label, Driver: v.name, Message: err.Error(), Hint: "fallback: the kernels without matrix units"}
		}
		return nil, err
	}
	return p, nil
}

func directSlots(slots []Slot) []vulkan.Slot {
	out := make([]vulkan.Slot, len(slots))
	for i, s := range slots {
		out[i] = map[SlotKind]vulkan.Slot{ReadOnly: vulkan.ReadOnly, ReadWrite: vulkan.ReadWrite, UniformSlot: vulkan.Uniform}[s.Kind]
	}
	return out
}

func (v *directDriver) freePipeline(p any) { v.dev.FreePipeline(p.(*vulkan.Pipeline)) }

func (v *directDriver) newGroup(_ string, pipeline any, ranges []driverRange) (any, error) {
	list := make([]vulkan.Range, len(ranges))
	for i, r := range ranges {
		list[i] = vulkan.Range{Buffer: r.buffer.(*vulkan.Buffer), Offset: r.offset, Size: r.size}
	}
	g, err := v.dev.NewGroup(pipeline.(*vulkan.Pipeline), list)
	if err != nil {
		return nil, directError(err)
	}
	return g, nil
}

func (v *directDriver) freeGroup(g any) { v.dev.FreeGroup(g.(*vulkan.Group)) }

func (v *directDriver) dispatch(pipeline, group any, x, y, z uint32) error {
	v.dev.Dispatch(pipeline.(*vulkan.Pipeline), group.(*vulkan.Group), x, y, z)
	return nil
}

func (v *directDriver) copyBuffer(dst any, dstOffset uint64, src any, srcOffset, n uint64) error {
	v.dev.Copy(dst.(*vulkan.Buffer), dstOffset, src.(*vulkan.Buffer), srcOffset, n)
	return nil
}

func (v *directDriver) clear(b any, offset, n uint64) error {
	v.dev.Clear(b.(*vulkan.Buffer), offset, n)
	return nil
}

func (v *directDriver) upload(b any, offset uint64, data []byte, _ bool) error {
	return directError(v.dev.Upload(b.(*vulkan.Buffer), offset, data))
}

func (v *directDriver) download(reads []driverRead) error {
	list := make([]vulkan.Read, len(reads))
	for i, r := range reads {
		list[i] = vulkan.Read{Buffer: r.buffer.(*vulkan.Buffer), Offset: r.offset, Dst: r.dst}
	}
	return directError(v.dev.Download(list))
}

func (v *directDriver) submit() error { return directError(v.dev.Submit()) }
func (v *directDriver) wait() error   { return directError(v.dev.Wait()) }

// settle waits for what a lost device may still be doing, so that nothing is freed
// under it.
func (v *directDriver) settle() { _ = v.dev.Wait() }

func (v *directDriver) pending() uint64 { return v.dev.Pending() }
func (v *directDriver) done() uint64    { return v.dev.Done() }
func (v *directDriver) close()          { v.dev.Close() }

func (v *directDriver) startTiming(n int) error {
	err := v.dev.StartTiming(n)
	if errors.Is(err, vulkan.ErrNoTimestamps) {
		return ErrNoTimestamps
	}
	return directError(err)
}

func (v *directDriver) stopTiming() ([]float64, error) {
	stamps, err := v.dev.StopTiming()
	return stamps, directError(err)
}

// freeBytes is the GPU memory that is left, 0 if unknown.
func (v *directDriver) freeBytes() uint64 { return v.dev.FreeBytes() }
