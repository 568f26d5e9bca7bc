package train

import (
	"fmt"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// plan is what the run occupies on its device, kernels' scratch memory included. It
// is made once for a device.
func (t *Trainer) plan() (model.Plan, error) {
	if t.planned != nil {
		return *t.planned, nil
	}
	plan, notice, err := t.cfg.memoryPlan(t.backend.Limits(), op.OperandType(t.backend), t.backend)
	if err != nil {
		return plan, err
	}
	if notice != "" {
		t.notice(notice)
	}
	t.planned = &plan
	return plan, nil
}

// memoryPlan is what a run of c, whose defaults are filled in, occupies on a device
// with these limits and operand tensors of this type. dev, which may be nil, is the
// device or a rehearsal of it, and tells what kernels need. notice says why it does
// not; the run itself may do better, and says why if it does not.
func (c Config) memoryPlan(lim op.Limits, operands tensor.DType, dev op.Backend) (plan model.Plan, notice string, err error) {
	params, graph := c.paramOptions(lim, operands), c.graphOptions()
	if plan, err = model.PredictMemory(c.Model, params, graph, lim, operands); err != nil {
		return plan, "", err
	}
	scratch, err := kernelScratch(dev, c.Model, params, graph, c.Optim)
	if err != nil {
		notice = lacksScratch(err)
	}
	if scratch > 0 {
		plan.Rows = append(plan.Rows, model.PlanRow{Label: scratchLabel, Bytes: scratch})
	}
	return plan, notice, nil
}

// lacksScratch tells the user of a plan without what kernels need.
func lacksScratch(why error) string { return fmt.Sprintf("the plan lacks what kernels need: %v", why) }

// scratchLabel is the plan's row for what kernels need beside the run's buffers.
const scratchLabel = "kernel scratch"

// kernelScratch is what kernels will occupy beside the buffers of the plan: copies
// of operands for matrix units, parts of products that are split along K, partial
// sums. It plays one step of the run through on a backend that only counts, with the
// model and the optimizer themselves, so that it knows nothing of kernels. 0 where
// the device cannot do that.
func kernelScratch(dev op.Backend, cfg model.Config, p model.ParamOptions, o model.TrainOptions, adam optim.Config) (int64, error) {
	h, ok := dev.(op.Rehearser)
	if !ok {
		return 0, nil
	}
	b, err := h.Rehearse()
	if err != nil {
		return 0, err
	}
	defer b.Close()
	r := op.NewRunner(b)
	params, err := model.NewParams(r, cfg, p)
	if err != nil {
		return 0, err
	}
	g, err := model.NewGraph(r, params, o)
	if err != nil {
		return 0, err
	}
	opt, err := optim.New(r, params, adam)
	if err != nil {
		return 0, err
	}
	buffers, _ := b.MemoryBytes()
	zeros := make([]int32, g.Rows())
	var doc []int32
	if o.DocMask {
		doc = zeros
	}
	if err := g.MicroStep(zeros, zeros, doc, 1); err != nil {
		return 0, err
	}
	if _, err := g.LossSum(); err != nil {
		return 0, err
	}
	if _, err := opt.Step(0); err != nil {
		return 0, err
	}
	_, peak := b.MemoryBytes()
	return peak - buffers, nil
}
