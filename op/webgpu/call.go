package webgpu

import (
	"encoding/binary"
	"fmt"

	"tezgah/gpu"
	"tezgah/op"
)

// maxBindings is the most bindings of a kernel.
const maxBindings = 12

// call collects the bindings of one dispatch in the order in which the kernel
// declares them, and runs it:
//
//	c := b.begin(b.plain("add"))
//	c.in(a.Src)
//	c.out(a.Dst)
//	c.words(uint32(n))
//	return c.threads(n)
//
// The first error is kept and returned by the run. There is one call at a time,
// and it allocates nothing in steady state.
type call struct {
	b     *Backend
	k     *kernel
	err   error
	n     int
	args  [maxBindings]binding
	gpu   [maxBindings]gpu.Binding
	text  [maxBindings * 64]byte // contents of uniforms
	used  int
	temps int // of b.temps in use
}

// binding is a range of memory and what the kernel does with it.
type binding struct {
	mem       *gpu.Buffer
	offset, n uint64
	write     bool
	back      *gpu.Buffer // copy the stand-in back to here after the dispatch
	backAt    uint64
}

// begin starts a call of k.
func (b *Backend) begin(k *kernel) *call {
	c := &b.call
	c.b, c.k, c.err, c.n, c.used, c.temps = b, k, nil, 0, 0, 0
	return c
}

func (c *call) fail(err error) {
	if c.err == nil && err != nil {
		c.err = err
	}
}

// in binds a tensor that the kernel reads, out one that it writes or changes.
func (c *call) in(t op.Tensor)  { c.tensor(t, false) }
func (c *call) out(t op.Tensor) { c.tensor(t, true) }

// inOr binds t, or where it is absent some memory that the kernel does not read.
func (c *call) inOr(t op.Tensor) {
	if t.Ok() {
		c.in(t)
		return
	}
	c.memory(c.b.none, 0, c.b.none.Size(), false)
}

func (c *call) tensor(t op.Tensor, write bool) {
	mem, offset, n := place(t)
	c.memory(mem, offset, (n+3)&^3, write)
	if c.err != nil {
		return
	}
	limits := c.b.dev.Limits()
	if n > limits.BindingSize {
		c.fail(fmt.Errorf("%v has %d bytes, but a kernel can see at most %d on %s: work on parts of it", t, n, limits.BindingSize, c.b.dev.Info().Name))
		return
	}
	if offset%limits.StorageAlign != 0 {
		c.standIn(&c.args[c.n-1], true)
	}
}

// memory binds a range of device memory.
func (c *call) memory(mem *gpu.Buffer, offset, n uint64, write bool) {
	if c.n == maxBindings {
		c.fail(fmt.Errorf("webgpu: %s has more than %d bindings", c.k.name, maxBindings))
		return
	}
	c.args[c.n] = binding{mem: mem, offset: offset, n: n, write: write}
	c.gpu[c.n] = gpu.Binding{}
	c.n++
}

// scratch binds the first n bytes of scratch memory of a kind.
func (c *call) scratch(kind int, n uint64, write bool) {
	mem, err := c.b.scratchOf(kind, n)
	c.fail(err)
	if err == nil {
		c.memory(mem, 0, n, write)
	}
}

// standIn replaces a range that cannot be bound (it begins where the device
// allows no binding, or the kernel would read and write it at once) by a copy;
// what the kernel writes there is copied back.
func (c *call) standIn(a *binding, back bool) {
	b := c.b
	if c.temps == len(b.temps) {
		b.temps = append(b.temps, nil)
	}
	t := b.temps[c.temps]
	if t == nil || t.Size() < a.n {
		if t != nil {
			b.dropScratch(t)
			b.temps[c.temps] = nil
		}
		var err error
		if t, err = b.newScratch("stand-in", a.n); err != nil {
			c.fail(err)
			return
		}
		b.temps[c.temps] = t
	}
	c.temps++
	c.fail(b.dev.Copy(t, 0, a.mem, a.offset, min(a.n, a.mem.Size()-a.offset)))
	if a.write && back {
		a.back, a.backAt = a.mem, a.offset
	}
	a.mem, a.offset = t, 0
}

// words binds a uniform with the given contents.
func (c *call) words(words ...uint32) {
	at := c.used
	for _, w := range words {
		binary.LittleEndian.PutUint32(c.text[c.used:], w)
		c.used += 4
	}
	c.gpu[c.n] = gpu.Uniform(c.text[at:c.used])
	c.args[c.n] = binding{}
	c.n++
}

// number binds a uniform that changes from step to step; see dynamic.go.
func (c *call) number(slot int, words ...uint32) {
	var w [4]uint32
	copy(w[:], words)
	g, err := c.b.number(slot, w)
	c.fail(err)
	c.gpu[c.n] = g
	c.args[c.n] = binding{}
	c.n++
}

// threads runs a kernel that takes one element per thread.
func (c *call) threads(n int) error { return c.groups((n + 255) / 256) }

// groups runs a kernel of n workgroups in one dimension.
func (c *call) groups(n int) error {
	x, y := gpu.Split1D(uint64(n))
	return c.grid(x, y, 1)
}

// grid runs x·y·z workgroups.
func (c *call) grid(x, y, z uint32) error {
	writable := c.resolve()
	if c.err != nil {
		return c.err
	}
	p, err := c.b.pipeline(c.k, writable)
	if err != nil {
		return err
	}
	for i := range c.args[:c.n] {
		if a := &c.args[i]; a.mem != nil {
			c.gpu[i] = gpu.Range(a.mem, a.offset, a.n)
		}
	}
	if err := c.b.dev.Dispatch(p, x, y, z, c.gpu[:c.n]...); err != nil {
		return err
	}
	for i := range c.args[:c.n] {
		if a := &c.args[i]; a.write {
			c.b.matrix.converted.forget(a.mem, a.offset, a.n)
		}
		if a := &c.args[i]; a.back != nil {
			c.b.matrix.converted.forget(a.back, a.backAt, a.n)
			if err := c.b.dev.Copy(a.back, a.backAt, a.mem, 0, a.n); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve deals with inputs that lie in the buffer of an output, which WebGPU
// forbids in one dispatch: an input that overlaps the output is read from a
// copy; one that lies apart is declared read_write as well (bits of the result).
func (c *call) resolve() (writable uint32) {
	for i := range c.args[:c.n] {
		in := &c.args[i]
		if in.mem == nil || in.write {
			continue
		}
		for j := range c.args[:c.n] {
			out := &c.args[j]
			if !out.write || out.mem != in.mem {
				continue
			}
			if in.offset < out.offset+out.n && out.offset < in.offset+in.n {
				c.standIn(in, false)
				writable &^= 1 << i
				break
			}
			writable |= 1 << i
		}
	}
	return writable
}
