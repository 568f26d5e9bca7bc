package model

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"

	"tezgah/op"
	"tezgah/tensor"
)

// State is one named tensor of a checkpoint, as it lies in device memory.
type State struct {
	Name  string
	Shape []int
	DType tensor.DType
	T     op.Tensor
}

// Weights lists the float32 weights under their parameter names.
func (p *Params) Weights() []State {
	return p.states("", func(a *arena) op.Buffer { return a.w })
}

// Grads lists the gradients under their parameter names; empty without any.
func (p *Params) Grads() []State {
	return p.states("", func(a *arena) op.Buffer { return a.g })
}

// Moments lists the optimizer's moments: "optim.m.NAME" and "optim.v.NAME", or
// for 8-bit moments "optim.m8.NAME", "optim.v8.NAME" and their scales
// "optim.m_scale.NAME", "optim.v_scale.NAME" (one for every 256 elements of
// that parameter). Empty without moments.
func (p *Params) Moments() []State {
	m, v := func(a *arena) op.Buffer { return a.m }, func(a *arena) op.Buffer { return a.v }
	if !p.opt.Moments8 {
		return append(p.states("optim.m.", m), p.states("optim.v.", v)...)
	}
	all := append(p.states("optim.m8.", m), p.states("optim.v8.", v)...)
	all = append(all, p.scaleStates("optim.m_scale.", func(s scales) op.Buffer { return s.m })...)
	return append(all, p.scaleStates("optim.v_scale.", func(s scales) op.Buffer { return s.v })...)
}

func (p *Params) states(prefix string, pick func(*arena) op.Buffer) []State {
	var list []State
	for _, info := range p.infos {
		if b := pick(&p.arenas[info.Arena]); b != nil {
			list = append(list, State{prefix + info.Name, info.Shape, b.Type(), op.Of(b, info.Off, info.Shape...)})
		}
	}
	return list
}

func (p *Params) scaleStates(prefix string, pick func(scales) op.Buffer) []State {
	var list []State
	for _, info := range p.infos {
		a := &p.arenas[info.Arena]
		b, off := pick(a.scales[0]), info.Off
		if !info.Decay {
			b, off = pick(a.scales[1]), info.Off-a.decayed
		}
		n := alignUp(info.Len(), op.MomentBlock) / op.MomentBlock
		list = append(list, State{prefix + info.Name, []int{n}, tensor.F32, op.Of(b, off/op.MomentBlock, n)})
	}
	return list
}

// chunkElems is how many elements travel at once between device and stream.
const chunkElems = 1 << 20

// ReadTo waits for earlier work and writes the tensor's little-endian elements
// to w, in chunks.
func (p *Params) ReadTo(w io.Writer, s State) error {
	buf := make([]byte, min(chunkElems, s.padded())*s.DType.Size())
	for lo, n := 0, s.T.Len(); lo < n; lo += chunkElems {
		part, used := s.chunk(lo)
		b := buf[:part.Len()*s.DType.Size()]
		if err := p.r.Read(b, part); err != nil {
			return fmt.Errorf("reading %s: %w", s.Name, err)
		}
		if _, err := w.Write(b[:used]); err != nil {
			return fmt.Errorf("writing %s: %w", s.Name, err)
		}
	}
	return nil
}

// WriteFrom fills the tensor with little-endian elements from rd, in chunks.
// It reads exactly the tensor's bytes.
func (p *Params) WriteFrom(rd io.Reader, s State) error {
	buf := make([]byte, min(chunkElems, s.padded())*s.DType.Size())
	for lo, n := 0, s.T.Len(); lo < n; lo += chunkElems {
		part, used := s.chunk(lo)
		b := buf[:part.Len()*s.DType.Size()]
		clear(b[used:])
		if _, err := io.ReadFull(rd, b[:used]); err != nil {
			return fmt.Errorf("reading %s: %w", s.Name, err)
		}
		p.r.Write(part, b)
		if err := p.r.Err(); err != nil {
			return fmt.Errorf("writing %s: %w", s.Name, err)
		}
	}
	p.stale = true
	return nil
}

// padded is the tensor's length with the gap behind it, where that belongs to
// the tensor: parameters and moments are padded to op.AlignElems with zeros.
// Devices copy multiples of four bytes, which an int8 tensor may not be.
func (s State) padded() int {
	if s.DType.Size() < 4 {
		return alignUp(s.T.Len(), op.AlignElems)
	}
	return s.T.Len()
}

// chunk is the part of the tensor from element lo on, padded, and how many of
// its bytes belong to the tensor.
func (s State) chunk(lo int) (part op.Tensor, used int) {
	n := min(chunkElems, s.padded()-lo)
	return op.Of(s.T.Buf, s.T.Off+lo, n), min(n, s.T.Len()-lo) * s.DType.Size()
}

// Init draws the weights: norm gains 1, matrices from a normal distribution of
// standard deviation InitStd, or InitStd/√(2L) for wo and w_down, whose
// products are added to the residual stream 2L times (Radford et al., GPT-2,
// 2019). Every parameter has its own stream under seed, so the weights do not
// depend on arenas, threads or device. Moments are cleared, gradients dropped. An adapter is drawn
// as initAdapter says.
func (p *Params) Init(seed uint64) error {
	buf := make([]float32, chunkElems)
	for i, s := range p.Weights() {
		draw := p.initial(i, seed)
		for lo, n := 0, s.T.Len(); lo < n; lo += chunkElems {
			part, _ := s.chunk(lo)
			b := buf[:part.Len()]
			draw(b, uint64(lo))
			op.WriteSlice(p.r, part, b)
		}
	}
	for _, b := range p.Blocks() {
		for _, t := range []op.Tensor{b.M, b.V, b.MScale, b.VScale} {
			if t.Ok() {
				p.r.Zero(t)
			}
		}
	}
	p.stale = true
	p.DropGrads()
	if p.adapter != nil {
		return p.adapter.Init(seed)
	}
	return p.r.Err()
}

// initial returns what draws elements first … of parameter i.
func (p *Params) initial(i int, seed uint64) func(dst []float32, first uint64) {
	info := p.infos[i]
	switch {
	case p.isAdapter():
		return initAdapter(info, seed)
	case !info.Decay:
		return func(dst []float32, _ uint64) {
			for j := range dst {
				dst[j] = 1
			}
		}
	}
	std := p.cfg.InitStd
	if isResidual(info.Name) {
		std /= math.Sqrt(2 * float64(p.cfg.Layers))
	}
	rng := tensor.NewRNG(seed, uint64(i))
	return func(dst []float32, first uint64) { parallelNormal(rng, dst, first, std) }
}

// isResidual reports whether the parameter's product is added to the residual
// stream.
func isResidual(name string) bool {
	return strings.HasSuffix(name, ".wo") || strings.HasSuffix(name, ".w_down")
}

// parallelNormal is RNG.Normal on all processors: each value is a function of
// its index alone, so the split does not show.
func parallelNormal(rng tensor.RNG, dst []float32, first uint64, std float64) {
	part := max(4096, alignUp(len(dst), runtime.GOMAXPROCS(0))/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for lo := 0; lo < len(dst); lo += part {
		hi := min(lo+part, len(dst))
		wg.Go(func() { rng.Normal(dst[lo:hi], first+uint64(lo), std) })
	}
	wg.Wait()
}
