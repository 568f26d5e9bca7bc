package train

import (
	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// StandIn is what the plan of a run needs to know of a device in one precision. It
// is made from the open device and serves any number of plans after that is closed,
// from several goroutines at once. It occupies nothing.
type StandIn struct {
	lim       op.Limits
	operands  tensor.DType // of operand tensors
	rehearsal op.Backend   // nil where the device is no op.Rehearser
	notices   []string
}

// NewStandIn looks at a device on which nothing is allocated, as a run does at its
// start: whether matrix units are worth using is asked, and measured by the device
// where that is not known yet. Products of b do not round afterwards.
func NewStandIn(precision string, b op.Backend) (*StandIn, error) {
	d := &StandIn{lim: b.Limits()}
	rounds, notice, err := applyPrecision(precision, b)
	if err != nil {
		return nil, err
	}
	if notice != "" && roundTo(precision) != tensor.F32 && !rounds {
		d.notices = append(d.notices, notice) // other notices change no plan
	}
	d.operands = op.OperandType(b)
	if h, ok := b.(op.Rehearser); ok {
		var why error
		if d.rehearsal, why = h.Rehearse(); why != nil {
			d.rehearsal = nil
			d.notices = append(d.notices, lacksScratch(why))
		}
	}
	if rounds {
		err = b.(op.Rounder).RoundProducts(tensor.F32)
	}
	return d, err
}

// PredictMemory says what the run will occupy on a device, as New plans it, without
// allocating it. The precision is that of the stand-in. notices are for the user. An
// error means that the run would fail, and says why.
func (c Config) PredictMemory(d *StandIn) (plan model.Plan, notices []string, err error) {
	plan, notice, err := c.withDefaults().memoryPlan(d.lim, d.operands, d.rehearsal)
	notices = append(notices, d.notices...)
	if notice != "" {
		notices = append(notices, notice)
	}
	return plan, notices, err
}
