package webgpu

import (
	"fmt"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// buffer is an op.Buffer in device memory.
type buffer struct {
	label string
	typ   tensor.DType
	n     int
	size  uint64 // bytes of an element
	mem   *gpu.Buffer
}

func (b *buffer) Len() int           { return b.n }
func (b *buffer) Type() tensor.DType { return b.typ }
func (b *buffer) Label() string      { return b.label }

// Alloc makes a buffer of n zeroed elements of type F32, F16, BF16, I32 or I8.
// Errors: another type, f16 without support, a size that the device refuses.
func (b *Backend) Alloc(label string, t tensor.DType, n int) (op.Buffer, error) {
	switch {
	case t != tensor.F32 && t != tensor.F16 && t != tensor.BF16 && t != tensor.I32 && t != tensor.I8:
		return nil, fmt.Errorf("webgpu: cannot allocate %s of type %v, want F32, F16, BF16, I32 or I8", label, t)
	case n < 1:
		return nil, fmt.Errorf("webgpu: cannot allocate %s of %d elements, want at least 1", label, n)
	case t == tensor.F16 && !b.features.F16:
		return nil, fmt.Errorf("webgpu: cannot allocate %s of type F16: %s has no float16; train in f32", label, b.dev.Info().Name)
	}
	size := uint64(t.Size())
	mem, err := b.dev.NewBuffer(label, uint64(n)*size)
	if err != nil {
		return nil, fmt.Errorf("webgpu: allocate %s: %w", label, err)
	}
	b.users++
	b.count(int64(n) * int64(size))
	return &buffer{label: label, typ: t, n: n, size: size, mem: mem}, nil
}

// Free gives a buffer back once the GPU is done with it. With the last buffer
// the backend's own scratch memory goes too.
func (b *Backend) Free(x op.Buffer) {
	buf := x.(*buffer)
	if buf.mem == nil {
		return
	}
	b.matrix.converted.forget(buf.mem, 0, buf.mem.Size())
	buf.mem.Release()
	buf.mem = nil
	b.count(-int64(buf.n) * int64(buf.size))
	if b.users--; b.users == 0 {
		b.freeScratch()
	}
}

// MemoryBytes counts the buffers of Alloc and the backend's scratch memory, not
// the few pages of uniforms and the staging memory of the device layer.
func (b *Backend) MemoryBytes() (now, peak int64) { return b.now, b.peak }

func (b *Backend) count(bytes int64) {
	b.now += bytes
	b.peak = max(b.peak, b.now)
}

// The kinds of scratch memory. Kernels run in order, so one buffer of each kind
// serves all calls.
const (
	scratchSplit     = iota // parts of a product that is split along K
	scratchPartials         // rmsnorm_backward's dw, sum's chunks
	scratchStats            // attention_backward's (lse, delta)
	scratchDecode           // attention_decode's spans
	scratchGroup            // unused outputs of matmul_group
	scratchMatrixC          // a product's padded parts
	scratchWide             // a result in float32 on its way to 16 bits, cross_entropy's lse
	scratchAttention        // and the next ones: attention's tensors in float32
	scratchKinds     = scratchAttention + wideTensors
)

// scratchOf returns scratch memory of at least n bytes, kept for later calls.
func (b *Backend) scratchOf(kind int, n uint64) (*gpu.Buffer, error) {
	s := b.scratch[kind]
	if s != nil && s.Size() >= n {
		return s, nil
	}
	if s != nil {
		b.dropScratch(s)
		b.scratch[kind] = nil
	}
	s, err := b.newScratch(fmt.Sprintf("scratch %d", kind), n)
	if err != nil {
		return nil, err
	}
	b.scratch[kind] = s
	return s, nil
}

func (b *Backend) newScratch(label string, n uint64) (*gpu.Buffer, error) {
	n = (n + 4095) &^ 4095
	s, err := b.dev.NewBuffer(label, n)
	if err != nil {
		return nil, fmt.Errorf("webgpu: %w", err)
	}
	b.scratchBytes += int64(n)
	b.count(int64(n))
	return s, nil
}

func (b *Backend) dropScratch(s *gpu.Buffer) {
	b.scratchBytes -= int64(s.Size())
	b.count(-int64(s.Size()))
	s.Release()
}

func (b *Backend) freeScratch() {
	for i, s := range b.scratch {
		if s != nil {
			b.dropScratch(s)
			b.scratch[i] = nil
		}
	}
	for _, s := range b.temps {
		b.dropScratch(s)
	}
	b.temps = b.temps[:0]
	b.matrix.converted.free(b)
}

// place is a tensor's range of device memory, in bytes.
func place(t op.Tensor) (mem *gpu.Buffer, offset, n uint64) {
	buf := t.Buf.(*buffer)
	return buf.mem, uint64(t.Off) * buf.size, uint64(t.Len()) * buf.size
}

// Write copies elements to dst, after all work recorded before.
func (b *Backend) Write(dst op.Tensor, p []byte) error {
	mem, offset, n := place(dst)
	b.matrix.converted.forget(mem, offset, n)
	first, end := offset&^3, (offset+n+3)&^3
	if first == offset && (end == offset+n || offset+n == mem.Size()) {
		return b.dev.Upload(mem, offset, p)
	}
	// Elements smaller than a word: keep their neighbours in the same words.
	end = min(end, mem.Size())
	words := make([]byte, end-first)
	if err := b.dev.Download(mem, first, words); err != nil {
		return err
	}
	copy(words[offset-first:], p)
	return b.dev.Upload(mem, first, words)
}

// Read waits for all work and copies src to p.
func (b *Backend) Read(p []byte, src op.Tensor) error {
	b.matrix.converted.startOver()
	mem, offset, _ := place(src)
	return b.dev.Download(mem, offset, p)
}

// Zero clears x.
func (b *Backend) Zero(x op.Tensor) error {
	mem, offset, n := place(x)
	b.matrix.converted.forget(mem, offset, n)
	if offset%4 == 0 && n%4 == 0 {
		return b.dev.Clear(mem, offset, n)
	}
	return b.Write(x, make([]byte, n))
}

// kernelCopy is the size from which a kernel copies: some drivers' own copies
// reach a fifth of the memory's bandwidth.
const kernelCopy = 64 << 10

// Copy copies src to dst, which do not overlap.
func (b *Backend) Copy(dst, src op.Tensor) error {
	to, toOffset, n := place(dst)
	b.matrix.converted.forget(to, toOffset, n)
	from, fromOffset, _ := place(src)
	align := b.dev.Limits().StorageAlign
	if n%16 == 0 && n >= kernelCopy && n <= b.dev.Limits().BindingSize && toOffset%align == 0 && fromOffset%align == 0 {
		c := b.begin(b.plain("copy"))
		c.in(src)
		c.out(dst)
		c.words(uint32(n / 16))
		return c.threads(int(n / 16))
	}
	if toOffset%4 == 0 && fromOffset%4 == 0 && n%4 == 0 {
		return b.dev.Copy(to, toOffset, from, fromOffset, n)
	}
	p := make([]byte, n)
	if err := b.Read(p, src); err != nil {
		return err
	}
	return b.Write(dst, p)
}
