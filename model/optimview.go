package model

import "tezgah/op"

// Block is a contiguous run of parameters that share one weight decay: what
// one dispatch of the optimizer updates. All tensors have one dimension and
// equal length, but for the scales.
type Block struct {
	Decay          bool
	W, G           op.Tensor // (n)
	M, V           op.Tensor // (n) F32, or I8 with scales
	MScale, VScale op.Tensor // (n/256); absent for F32 moments
	W16            op.Tensor // (n) F16 or BF16; absent without such a copy
}

// Blocks lists the blocks: of each arena the decayed one, then the other.
// Without gradients or moments those tensors are absent.
func (p *Params) Blocks() []Block {
	var blocks []Block
	for i := range p.arenas {
		a := &p.arenas[i]
		if a.decayed > 0 {
			blocks = append(blocks, a.block(0, a.decayed, true, a.scales[0]))
		}
		if a.decayed < a.total {
			blocks = append(blocks, a.block(a.decayed, a.total, false, a.scales[1]))
		}
	}
	return blocks
}

func (a *arena) block(lo, hi int, decay bool, s scales) Block {
	n := hi - lo
	view := func(b op.Buffer, off, n int) op.Tensor {
		if b == nil {
			return op.Tensor{}
		}
		return op.Of(b, off, n)
	}
	return Block{
		Decay: decay,
		W:     view(a.w, lo, n), G: view(a.g, lo, n), M: view(a.m, lo, n), V: view(a.v, lo, n),
		MScale: view(s.m, 0, n/op.MomentBlock), VScale: view(s.v, 0, n/op.MomentBlock),
		W16: view(a.w16, lo, n),
	}
}

// NormPasses are the first passes of the gradient norm, one for each arena,
// and the tensors of the second: all partial sums (p, 2) and the statistics
// (4). They are absent without gradients.
func (p *Params) NormPasses() (passes []op.GradNormSq, partials, stats op.Tensor) {
	if !p.opt.Grads {
		return nil, op.Tensor{}, op.Tensor{}
	}
	row := 0
	for _, a := range p.arenas {
		n := op.NormPartials(a.total)
		passes = append(passes, op.GradNormSq{
			G:        op.Of(a.g, 0, a.total),
			Partials: p.partials.RowRange(row, row+n),
		})
		row += alignUp(n, partialAlign)
	}
	return passes, p.partials, p.stats
}
