package model

import "tezgah/op"

// A gradient is a sum over the micro-steps of one update. The first micro-step of an
// update writes it and the others add to it, so that nobody clears gradients and no
// product reads zeros. Which micro-step is the first follows from the parameters, because
// several graphs may add to one sum: the first after NewParams, Init, DropGrads or a
// micro-step that failed.

// DropGrads says that the gradients have been used, or are of no use: the next micro-step
// begins a new sum. They stay in memory until then. The optimizer calls it, and so must
// who gives an update up between its micro-steps.
func (p *Params) DropGrads() { p.summing = false }

// beginGrads is called once by every micro-step, before it computes gradients. It reports
// whether it adds to them. If not it clears those that operations can only add to; products
// write the others.
func (p *Params) beginGrads() (add bool) {
	if p.summing {
		return true
	}
	p.summing = true
	for _, g := range p.addOnly {
		p.r.Zero(g)
	}
	return false
}

// addOnlyGrads lists the gradients that no product writes whole: of gains, which are
// summed over rows, and of an embedding that is not the head too, into which rows are
// scattered. Those of all gains of an arena lie together.
func (p *Params) addOnlyGrads() (parts []op.Tensor) {
	if !p.opt.Grads {
		return nil
	}
	for _, b := range p.Blocks() {
		if !b.Decay {
			parts = append(parts, b.G)
		}
	}
	if _, ok := p.index[embName]; ok && !p.cfg.Tied {
		parts = append(parts, p.grad(embName))
	}
	return parts
}
