package gpu

import (
	"unsafe"
)

// Binding is what a dispatch gives to one binding of its kernel: a range of a
// buffer, or the contents of a uniform. Make one with Buf, Range, Uniform or
// UniformOf.
type Binding struct {
	buffer       *Buffer
	offset, size uint64 // size 0: to the end
	uniform      []byte
}

// Buf binds a whole buffer.
func Buf(b *Buffer) Binding { return Binding{buffer: b} }

// Range binds n bytes of a buffer from offset on. n is a multiple of 4; the
// offset of Limits.StorageAlign (256 for a uniform).
func Range(b *Buffer, offset, n uint64) Binding {
	return Binding{buffer: b, offset: offset, size: n}
}

// Uniform binds contents of 1 to 256 bytes to a var<uniform>. The bytes are
// copied by the dispatch.
func Uniform(contents []byte) Binding { return Binding{uniform: contents} }

// UniformOf binds the memory of a struct to a var<uniform>. Its fields must
// lie as WGSL lays them out: 4-byte numbers one after the other do.
func UniformOf[T any](params *T) Binding {
	return Uniform(unsafe.Slice((*byte)(unsafe.Pointer(params)), unsafe.Sizeof(*params)))
}

// Dispatch1D starts n workgroups of a kernel that counts them in one dimension
// (see flat_id in 00_shared.wgsl). More than MaxWorkgroups become
// (MaxWorkgroups, ceil(n / MaxWorkgroups)): the kernel must ignore the surplus.
func (d *Device) Dispatch1D(p *Pipeline, n uint64, args ...Binding) error {
	x, y := Split1D(n)
	return d.Dispatch(p, x, y, 1, args...)
}

// Split1D is the grid that Dispatch1D starts for n workgroups.
func Split1D(n uint64) (x, y uint32) {
	if n <= MaxWorkgroups {
		return uint32(n), 1
	}
	rows := (n + MaxWorkgroups - 1) / MaxWorkgroups
	return MaxWorkgroups, uint32(min(rows, 1<<32-1))
}

// Dispatch records x·y·z workgroups of a kernel; none if one of them is 0.
// args are its bindings, in order. The kernel sees all that earlier calls
// wrote. Errors: ErrValidation for bindings that do not fit the kernel or the
// limits; those of the GPU for earlier work.
func (d *Device) Dispatch(p *Pipeline, x, y, z uint32, args ...Binding) (err error) {
	if p == nil {
		return invalid("dispatch: the pipeline is nil")
	}
	if d.closed || d.Lost() {
		return d.use("dispatch of " + p.label)
	}
	defer rescue(p.label, &err)
	if len(args) != len(p.slots) {
		return invalid("%s: got %d bindings, want %d", p.label, len(args), len(p.slots))
	}
	if x > d.limits.Workgroups || y > d.limits.Workgroups || z > d.limits.Workgroups {
		return invalid("%s: a grid of (%d, %d, %d) workgroups, but at most %d per dimension are allowed on %s",
			p.label, x, y, z, d.limits.Workgroups, d.info.Name)
	}
	if x == 0 || y == 0 || z == 0 {
		return nil
	}
	g, err := d.group(p, args)
	if err != nil {
		return err
	}
	if err := d.drv.dispatch(p.handle, g.handle, x, y, z); err != nil {
		return d.failed(p.label, err)
	}
	d.timing.note(p.label)
	if d.recorded++; d.recorded >= d.batchSize {
		return d.Submit()
	}
	return nil
}

// handOver counts a hand-over of recorded work.
func (d *Device) handOver() {
	d.recorded = 0
	d.handed++
}

// Submit hands all that is recorded to the GPU and does not wait.
func (d *Device) Submit() (err error) {
	if err := d.use("submit"); err != nil {
		return err
	}
	defer rescue("submit", &err)
	d.handOver()
	if err := d.drv.submit(); err != nil {
		return d.failed("submit", err)
	}
	d.collect()
	return nil
}

// Wait hands over all that is recorded and waits until the GPU has done it.
func (d *Device) Wait() (err error) {
	if err := d.use("wait"); err != nil {
		return err
	}
	defer rescue("wait", &err)
	d.handOver()
	if err := d.drv.wait(); err != nil {
		return d.failed("wait", err)
	}
	d.collect()
	return nil
}
