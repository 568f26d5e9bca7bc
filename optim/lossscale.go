package optim

// LossScale keeps the gradients of 16-bit products inside float16's range
// (Micikevicius et al., "Mixed Precision Training", 2018). The loss is multiplied
// by Scale, a power of two, and the gradients are divided by it before they are
// used. A step with gradients that are not finite was scaled too high: it is
// skipped and Scale halved. After Quiet good steps in a row Scale is doubled.
//
// The zero value scales by 1 and stays there. It goes into checkpoints.
type LossScale struct {
	Scale float64 `json:"scale"` // 0 means 1 and no scaling
	Good  int     `json:"good"`  // good steps since the last change
}

const (
	firstLossScale = 1 << 16
	maxLossScale   = 1 << 24
	quietSteps     = 2000
)

// NewLossScale returns the scale that training begins with.
func NewLossScale() LossScale { return LossScale{Scale: firstLossScale} }

// On reports whether losses are scaled at all.
func (s *LossScale) On() bool { return s != nil && s.Scale > 0 }

// Factor is what the loss is multiplied with.
func (s *LossScale) Factor() float32 {
	if !s.On() {
		return 1
	}
	return float32(s.Scale)
}

// good notes a step whose gradients were finite.
func (s *LossScale) good() {
	if s.Good++; s.Good >= quietSteps {
		s.Scale, s.Good = min(2*s.Scale, maxLossScale), 0
	}
}

// overflow notes a step whose gradients were not, and reports whether a smaller
// scale may help: at 1 the fault lies elsewhere.
func (s *LossScale) overflow() bool {
	s.Good = 0
	if s.Scale <= 1 {
		return false
	}
	s.Scale /= 2
	return true
}
