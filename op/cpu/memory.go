package cpu

import (
	"fmt"
	"unsafe"

	"tezgah/op"
	"tezgah/tensor"
)

// memory keeps the books of a backend's buffers.
type memory struct {
	limit     int64 // bytes that were available at the start; 0 when unknown
	now, peak int64
	count     int // allocations so far, for the stagger
}

// buffer is memory of this process. Of its views only the one of its type is
// set.
type buffer struct {
	label string
	typ   tensor.DType
	n     int
	pages []byte // to give back, when the memory is not the Go heap's
	f32   []float32
	f16   []uint16 // F16, BF16
	i32   []int32
	i8    []int8
}

func (b *buffer) Len() int           { return b.n }
func (b *buffer) Type() tensor.DType { return b.typ }
func (b *buffer) Label() string      { return b.label }

// Two buffers whose distance is a multiple of a cache's way size compete for
// the same lines: weights, gradients and moments exactly 2^25 floats apart made
// AdamW four to five times slower. So each large buffer starts one page and five
// lines further into its first pages than the one before, going round after 31.
const (
	lineBytes    = 64
	staggerBytes = 4096 + 5*lineBytes
	staggerRound = 31
	largeBytes   = 1 << 21 // smaller buffers come from the Go heap, only aligned to a line
)

// Alloc makes a buffer of n zeroed elements of type F32, F16, BF16, I32 or I8. A
// buffer that does not fit the machine's available memory is refused.
func (b *Backend) Alloc(label string, t tensor.DType, n int) (op.Buffer, error) {
	size := t.Size()
	switch t {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.I8:
	default:
		return nil, fmt.Errorf("cpu: cannot allocate %s of type %v, want F32, F16, BF16, I32 or I8", label, t)
	}
	const most = int(^uint(0)>>1) / 8
	if n < 0 || n > most {
		return nil, fmt.Errorf("cpu: cannot allocate %s of %d elements, want 0 to %d", label, n, most)
	}
	bytes := int64(n) * int64(size)
	if err := b.memory.fits(label, bytes); err != nil {
		return nil, err
	}
	buf := &buffer{label: label, typ: t, n: n}
	raw, err := b.memory.take(buf, int(bytes))
	if err != nil {
		return nil, err
	}
	switch t {
	case tensor.F32:
		buf.f32 = tensor.View[float32](raw)
	case tensor.F16, tensor.BF16:
		buf.f16 = tensor.View[uint16](raw)
	case tensor.I32:
		buf.i32 = tensor.View[int32](raw)
	case tensor.I8:
		buf.i8 = tensor.View[int8](raw)
	}
	b.memory.now += bytes
	b.memory.peak = max(b.memory.peak, b.memory.now)
	return buf, nil
}

// fits compares what would be allocated then with what the machine can give.
// Memory is counted here because the system counts a page only once touched.
func (m *memory) fits(label string, bytes int64) error {
	if bytes < largeBytes {
		return nil
	}
	if free := m.free(); free > 0 && bytes > free {
		return fmt.Errorf("cpu: %s needs %s of memory, but besides the %s that are allocated only %s are free; "+
			"choose a smaller model, batch or context, or free memory", label, gib(bytes), gib(m.now), gib(free))
	}
	return nil
}

// free is the memory left for buffers, at least 1; 0 when unknown.
func (m *memory) free() int64 {
	limit := max(m.limit, availableBytes())
	if limit == 0 {
		return 0
	}
	return max(1, limit-m.now)
}

// take returns n zeroed bytes that start on a cache line, large ones staggered
// and in pages of their own where the system has them.
func (m *memory) take(buf *buffer, n int) (raw []byte, err error) {
	skip := 0
	if n >= largeBytes {
		skip = m.count % staggerRound * staggerBytes
		m.count++
		buf.pages = mapPages(n + skip)
	}
	if buf.pages != nil {
		return buf.pages[skip : skip+n : skip+n], nil
	}
	defer func() { // make panics, and can be caught, when the address space is too small
		if recover() != nil {
			raw, err = nil, fmt.Errorf("cpu: cannot allocate %s: %s are too much for this platform", buf.label, gib(int64(n)))
		}
	}()
	all := make([]byte, n+skip+lineBytes)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(all)))
	skip += int(-at % lineBytes)
	return all[skip : skip+n : skip+n], nil
}

// Free gives a buffer back. It must not be used afterwards; freeing twice is
// harmless. A buffer that is never freed stays until the process ends.
func (b *Backend) Free(x op.Buffer) {
	buf := x.(*buffer)
	b.memory.now -= int64(buf.n) * int64(buf.typ.Size())
	if buf.pages != nil {
		unmapPages(buf.pages)
	}
	*buf = buffer{label: buf.label, typ: buf.typ}
}

// MemoryBytes is what buffers occupy now, and the most they have, without
// scratch.
func (b *Backend) MemoryBytes() (now, peak int64) { return b.memory.now, b.memory.peak }

func gib(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

// floats, halves (of either 16-bit type), ints and codes return the elements that a tensor views.
func floats(t op.Tensor) []float32 { return t.Buf.(*buffer).f32[t.Off : t.Off+t.Len()] }
func halves(t op.Tensor) []uint16  { return t.Buf.(*buffer).f16[t.Off : t.Off+t.Len()] }
func ints(t op.Tensor) []int32     { return t.Buf.(*buffer).i32[t.Off : t.Off+t.Len()] }
func codes(t op.Tensor) []int8     { return t.Buf.(*buffer).i8[t.Off : t.Off+t.Len()] }

// bytesOf views a tensor's elements as bytes.
func bytesOf(t op.Tensor) []byte {
	switch t.Type() {
	case tensor.F32:
		return tensor.Bytes(floats(t))
	case tensor.F16, tensor.BF16:
		return tensor.Bytes(halves(t))
	case tensor.I32:
		return tensor.Bytes(ints(t))
	}
	return tensor.Bytes(codes(t))
}

// Write copies little-endian elements to dst.
func (b *Backend) Write(dst op.Tensor, p []byte) error {
	copy(bytesOf(dst), p)
	return nil
}

// Read copies src's elements to p.
func (b *Backend) Read(p []byte, src op.Tensor) error {
	copy(p, bytesOf(src))
	return nil
}
