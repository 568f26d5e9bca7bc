package model

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"tezgah/op"
	"tezgah/tensor"
)

// newAdapter makes the parameters that ParamOptions.LoRA asks for: a table of
// their own with gradients and moments, beside the frozen weights.
func newAdapter(mem *memory, r *op.Runner, cfg Config, opt ParamOptions) (*Params, error) {
	opt.Mirror, opt.Rounded = false, tensor.F32 // A and B are small; float32 costs nothing
	return newTable(mem, r, cfg, opt, opt.LoRA.Params(cfg))
}

// Adapter returns the parameters that ParamOptions.LoRA asked for, nil without.
// They have weights, gradients and moments of their own, named
// "layers.N.wq.lora_a" and so on.
func (p *Params) Adapter() *Params { return p.adapter }

// Trainable returns the parameters that training changes: the adapter where
// there is one, else p itself.
func (p *Params) Trainable() *Params {
	if p.adapter != nil {
		return p.adapter
	}
	return p
}

// trains reports whether there are gradients to add to.
func (p *Params) trains() bool { return p.Trainable().opt.Grads }

// isAdapter reports whether the parameters are those of an adapter.
func (p *Params) isAdapter() bool { return p.opt.LoRA.Ok() && p.adapter == nil }

// collectLow gathers the trained parts of layer l's matrices. u holds room for
// their activations in the order of loraTargets.
func (p *Params) collectLow(l int, u *lowActs) blockLow {
	var parts [len(u)]*lowRank
	for i, t := range loraTargets {
		if u[i].Ok() {
			parts[i] = p.adapter.lowRank(layerName(l, t.matrix))
			parts[i].u = u[i]
		}
	}
	return blockLow{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]}
}

// lowActs are u of each target, (N, r), absent where there is none.
type lowActs [7]op.Tensor

// newLowActs makes room for u of every target with alloc.
func (p *Params) newLowActs(alloc func(label string, rank int) op.Tensor) (u lowActs) {
	if p.adapter == nil {
		return u
	}
	for i, t := range loraTargets {
		if _, ok := p.adapter.index[layerName(0, t.matrix)+loraA]; ok {
			u[i] = alloc("u_"+t.name, p.adapter.opt.LoRA.Rank)
		}
	}
	return u
}

// adapts reports whether one of the matrices, such as "wq", has a trained part: what
// is added to the matrix's results, and to the gradient of its input, in float32.
func (p *Params) adapts(matrices ...string) bool {
	return p.adapter != nil && slices.ContainsFunc(matrices, func(m string) bool {
		_, ok := p.adapter.index[layerName(0, m)+loraA]
		return ok
	})
}

// lowRank views the trained part of the matrix of that name.
func (p *Params) lowRank(matrix string) *lowRank {
	a, b := matrix+loraA, matrix+loraB
	return &lowRank{
		a: p.master(a), b: p.master(b), sa: p.scaled(a), sb: p.scaled(b), da: p.grad(a), db: p.grad(b),
	}
}

// scaled is the weight times α/r; the weight itself when that is 1.
func (p *Params) scaled(name string) op.Tensor {
	return p.view(name, func(a *arena) op.Buffer {
		if a.scaled == nil {
			return a.w
		}
		return a.scaled
	})
}

// refreshScaled makes the scaled copies anew.
func (p *Params) refreshScaled() {
	for _, a := range p.arenas {
		if a.scaled != nil {
			p.r.Scale(op.Scale{Dst: op.Of(a.scaled, 0, a.total), Src: op.Of(a.w, 0, a.total), Factor: p.opt.LoRA.scale()})
		}
	}
	p.stale = false
}

// Merge adds the adapter to the weights, W += α/r·A·B, and sets B to zero: the
// model computes the same function (up to rounding), and its weights alone do
// too. Save the adapter before, if it is to be kept. Without an adapter there is
// nothing to do.
func (p *Params) Merge() error {
	if p.adapter == nil {
		return nil
	}
	p.adapter.fresh()
	for _, info := range p.adapter.infos {
		if matrix, ok := strings.CutSuffix(info.Name, loraA); ok {
			t := p.adapter.lowRank(matrix)
			p.r.MatMul(op.MatMul{A: t.sa, B: t.b, C: p.master(matrix), Acc: true})
			p.r.Zero(t.b)
		}
	}
	p.stale, p.adapter.stale = true, true
	if err := p.r.Err(); err != nil {
		return fmt.Errorf("merging the adapter: %w", err)
	}
	return nil
}

// FLOPsPerToken is Config.FLOPsPerToken for these parameters. With an adapter
// the frozen matrices need no gradients of their own: 4 instead of 6 for each of
// their weights, and 6 for each of the adapter's.
func (p *Params) FLOPsPerToken(T int) int64 {
	all := p.cfg.FLOPsPerToken(T)
	if p.adapter == nil {
		return all
	}
	attention := 6 * int64(p.cfg.Layers) * int64(p.cfg.qDim()) * int64(T)
	return (all-attention)/6*4 + attention + 6*int64(p.adapter.NumParams())
}

// NumParams is the number of weights in this table: of the model, or of the
// adapter.
func (p *Params) NumParams() int {
	n := 0
	for _, info := range p.infos {
		n += info.Len()
	}
	return n
}

// initAdapter is Init's rule for A and B: A uniform in ±1/√in, which is what
// the usual implementation (peft) draws, and B zero, so that training begins
// with the model as it is. Streams follow from names, so that a target begins
// with the same numbers whatever the others are.
func initAdapter(info ParamInfo, seed uint64) func(dst []float32, first uint64) {
	if !strings.HasSuffix(info.Name, loraA) {
		return func(dst []float32, _ uint64) { clear(dst) }
	}
	h := fnv.New64a()
	h.Write([]byte(info.Name))
	rng, bound := tensor.NewRNG(seed, h.Sum64()), 1/math.Sqrt(float64(info.Shape[0]))
	return func(dst []float32, first uint64) {
		for j := range dst {
			dst[j] = float32(bound * (2*rng.Float64(first+uint64(j)) - 1))
		}
	}
}
