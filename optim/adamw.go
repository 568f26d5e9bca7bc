package optim

import (
	"fmt"
	"math"
	"strings"

	"tezgah/model"
	"tezgah/op"
)

// AdamW updates the parameters of one model (Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization", 2019). Its state is the moments, which live in
// model.Params, and the count of updates.
type AdamW struct {
	r      *op.Runner
	p      *model.Params
	cfg    Config
	policy op.NonFinite

	blocks   []model.Block
	passes   []op.GradNormSq
	partials op.Tensor
	stats    op.Tensor
	host     [4]float32 // where the statistics are read to

	t     int64      // updates done
	inRow int        // steps in a row with non-finite gradients
	scale *LossScale // nil without loss scaling
}

// New returns the optimizer of what training changes of p (its adapter, if it
// has one), which must have gradients and moments.
func New(r *op.Runner, p *model.Params, c Config) (*AdamW, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p = p.Trainable()
	if o := p.Options(); !o.Moments && !o.Moments8 {
		return nil, fmt.Errorf("optimizer: the parameters were made without moments, want ParamOptions.Moments or Moments8")
	}
	a := &AdamW{r: r, p: p, cfg: c, blocks: p.Blocks()}
	a.policy, _ = c.policy() // validated above
	a.passes, a.partials, a.stats = p.NormPasses()
	return a, nil
}

// Stats is what one step found and did.
type Stats struct {
	Norm      float32   // norm of the gradient over its finite elements, before clipping
	Clip      float32   // factor the gradient was multiplied by
	NonFinite int64     // gradient elements that were NaN or infinite
	Skipped   bool      // weights and moments were left as they were
	Rescaled  bool      // they were scaled too high: the loss scale was halved, and no tensor is at fault
	Culprits  []Culprit // the tensors they were in, when the step was skipped for another reason
}

// Culprit is a tensor with non-finite gradients.
type Culprit struct {
	Name  string
	Count int64
}

// NonFiniteError ends training: the policy is "stop", or too many steps in a
// row had non-finite gradients.
type NonFiniteError struct {
	InRow    int       // steps in a row
	Culprits []Culprit // of the last step; empty under "zero"
}

// Error says what was found, where, and what to try.
func (e *NonFiniteError) Error() string {
	where := "in gradients that were set to 0"
	if len(e.Culprits) > 0 {
		names := make([]string, 0, 4)
		for i, c := range e.Culprits {
			if i == 3 && len(e.Culprits) > 4 {
				names = append(names, fmt.Sprintf("and %d more tensors", len(e.Culprits)-3))
				break
			}
			names = append(names, fmt.Sprintf("%s (%d)", c.Name, c.Count))
		}
		where = "in " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("gradients were NaN or infinite in %d steps in a row, %s: "+
		"lower the learning rate, warm up longer, add z-loss, or resume from an earlier checkpoint", e.InRow, where)
}

// SetLossScale makes Step divide the gradients by the scale and keep it up to
// date; nil, as at first, for gradients that are not scaled.
func (a *AdamW) SetLossScale(s *LossScale) { a.scale = s }

// StepCount is t, the number of updates done; skipped steps do not count.
func (a *AdamW) StepCount() int64 { return a.t }

// SetStepCount restores t when a run is resumed.
func (a *AdamW) SetStepCount(t int64) { a.t = t }

// Step clips the accumulated gradients, updates the weights with learning rate
// lr and refreshes the mirror. Whether it succeeds, skips the update or fails, the
// gradients are used up: the next micro-step, without which there should be no other
// Step, begins a new sum. Step reads 16 bytes back, and so waits for the work before.
func (a *AdamW) Step(lr float64) (Stats, error) {
	if !(lr >= 0) || math.IsInf(lr, 0) {
		return Stats{}, fmt.Errorf("optimizer: learning rate is %v, want a finite number of at least 0", lr)
	}
	defer a.p.DropGrads()
	if a.scale.On() {
		for _, b := range a.blocks {
			a.r.Scale(op.Scale{Dst: b.G, Src: b.G, Factor: 1 / a.scale.Factor()})
		}
	}
	for _, pass := range a.passes {
		a.r.GradNormSq(pass)
	}
	a.r.FinalizeGradStats(op.FinalizeGradStats{Partials: a.partials, Stats: a.stats, MaxNorm: float32(a.cfg.Clip)})
	for i := range a.blocks {
		a.update(&a.blocks[i], a.hyper(lr, a.t+1))
	}
	a.p.Updated()
	if err := op.ReadSlice(a.r, a.host[:], a.stats); err != nil {
		return Stats{}, err
	}
	s := Stats{Norm: a.host[0], Clip: a.host[1], NonFinite: int64(a.host[2])}
	if s.NonFinite == 0 {
		a.t++
		a.inRow = 0
		if a.scale.On() {
			a.scale.good()
		}
		return s, nil
	}
	return a.nonFinite(s)
}

func (a *AdamW) hyper(lr float64, t int64) op.AdamHyper {
	c := a.cfg
	return op.AdamHyper{
		LR: float32(lr), Beta1: float32(c.Beta1), Beta2: float32(c.Beta2), Eps: float32(c.Eps),
		Beta1Pow: float32(math.Pow(c.Beta1, float64(t))), Beta2Pow: float32(math.Pow(c.Beta2, float64(t))),
		NonFinite: a.policy,
	}
}

func (a *AdamW) update(b *model.Block, h op.AdamHyper) {
	if b.Decay {
		h.WeightDecay = float32(a.cfg.WeightDecay)
	}
	if b.MScale.Ok() {
		a.r.AdamW8(op.AdamW8{W: b.W, G: b.G, M: b.M, V: b.V, MScale: b.MScale, VScale: b.VScale, W16: b.W16,
			Stats: a.stats, AdamHyper: h})
		return
	}
	a.r.AdamW(op.AdamW{W: b.W, G: b.G, M: b.M, V: b.V, W16: b.W16, Stats: a.stats, AdamHyper: h})
}

// nonFinite ends a step whose gradients were not all finite. Under skip and
// stop the update did nothing, and it finds the tensors.
func (a *AdamW) nonFinite(s Stats) (Stats, error) {
	if a.scale.On() && a.scale.overflow() && a.policy != op.NonFiniteZero {
		s.Skipped, s.Rescaled = true, true
		return s, a.r.Err()
	}
	a.inRow++
	if a.policy == op.NonFiniteZero {
		a.t++
	} else {
		s.Skipped = true
		var err error
		if s.Culprits, err = a.culprits(); err != nil {
			return s, err
		}
	}
	if a.cfg.NonFinite == NonFiniteStop || a.inRow >= a.cfg.MaxNonFinite {
		return s, &NonFiniteError{InRow: a.inRow, Culprits: s.Culprits}
	}
	return s, a.r.Err()
}

// culprits counts the non-finite gradients of each tensor, one read-back for
// each: this happens on bad steps only.
func (a *AdamW) culprits() ([]Culprit, error) {
	var found []Culprit
	for _, g := range a.p.Grads() {
		n := op.NormPartials(g.T.Len())
		part := a.partials.RowRange(0, n)
		a.r.GradNormSq(op.GradNormSq{G: g.T.Flat(), Partials: part})
		sums := make([]float32, 2*n)
		if err := op.ReadSlice(a.r, sums, part); err != nil {
			return nil, err
		}
		count := int64(0)
		for i := 1; i < len(sums); i += 2 {
			count += int64(sums[i])
		}
		if count > 0 {
			found = append(found, Culprit{g.Name, count})
		}
	}
	return found, a.clearPartials()
}

// clearPartials restores the zeros between the arenas' partial sums, which
// culprits may have written over.
func (a *AdamW) clearPartials() error {
	a.r.Zero(a.partials)
	return a.r.Err()
}
