package model

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// ParamOptions says which buffers stand beside the weights. The zero value is
// enough for evaluation and generation in float32.
type ParamOptions struct {
	Grads    bool // gradients; needed to train
	Moments  bool // AdamW's two moments in float32; needs Grads
	Moments8 bool // the moments as int8 with a scale for every 256; needs Grads, excludes Moments
	LoRA     LoRA // freezes the weights: gradients and moments are those of an adapter; see Params.Adapter

	// Mirror is a float16 copy that stands for the weights: the whole forward pass and
	// the dX products of a Graph read it, and a Decoder. It needs op.Limits.F16.
	Mirror bool
	// Rounded is the type of a copy of the weights that the products of a Graph read,
	// and nothing else: BF16 or F16, what products round to (op.OperandType) wherever
	// such a graph runs. It saves them the rounding and changes no result, but for
	// weights beyond float16's range, which it keeps finite. F32, the zero value, is
	// none; F16 needs op.Limits.F16. It excludes Mirror. See RoundedOn.
	Rounded tensor.DType
}

// RoundedOn is what ParamOptions.Rounded should be for training on a device of these
// limits whose products round to a type: that type, where it can be had.
func RoundedOn(lim op.Limits, operands tensor.DType) tensor.DType {
	if operands == tensor.F16 && !lim.F16 {
		return tensor.F32
	}
	return operands
}

// mirrorType is the type of the copy that mega_w16 holds; F32 without one.
func (o ParamOptions) mirrorType() tensor.DType {
	if o.Mirror {
		return tensor.F16
	}
	return o.Rounded
}

func (o ParamOptions) validate(lim op.Limits) error {
	switch {
	case (o.Moments || o.Moments8) && !o.Grads:
		return fmt.Errorf("parameters: moments are asked for without gradients, want both")
	case o.Moments && o.Moments8:
		return fmt.Errorf("parameters: float32 and 8-bit moments are both asked for, want one")
	case o.Mirror && o.Rounded != tensor.F32:
		return fmt.Errorf("parameters: a mirror and weights rounded to %v are both asked for, want one: a mirror is for products that do not round", o.Rounded)
	case o.Rounded != tensor.F32 && o.Rounded != tensor.BF16 && o.Rounded != tensor.F16:
		return fmt.Errorf("parameters: rounded weights are to be %v, want BF16 or F16, or F32 for none", o.Rounded)
	case o.mirrorType() == tensor.F16 && !lim.F16:
		return fmt.Errorf("parameters: a float16 mirror is asked for, but this device has no float16: train in float32")
	}
	return nil
}

// Params are a model's weights and what stands beside them, in one mega-buffer
// each (mega_w, mega_g, mega_m, mega_v, mega_w16) of equal layout, or in
// several of them, the arenas, where the device's limits ask for it.
type Params struct {
	r      *op.Runner
	mem    *memory
	cfg    Config
	opt    ParamOptions
	infos  []ParamInfo
	index  map[string]int
	arenas []arena

	adapter *Params // trained instead of the weights; nil without ParamOptions.LoRA

	partials op.Tensor // (p, 2) of all arenas; see NormPasses
	stats    op.Tensor // (4)

	stale bool // the mirror or the scaled copies are older than the weights

	summing bool        // micro-steps add to the gradients; see gradsum.go
	addOnly []op.Tensor // what is cleared before the first of them
}

// arena is one set of mega-buffers.
type arena struct {
	arenaLayout
	w, g, m, v, w16 op.Buffer // m, v of float32 or int8; absent ones are nil
	scaled          op.Buffer // an adapter's weights times α/r; nil where that is 1
	scales          [2]scales // of the decayed and the undecayed block
}

// scales belong to 8-bit moments. Each block has buffers of its own, so that
// every view that a kernel binds begins at element 0.
type scales struct{ m, v op.Buffer }

// partialAlign rounds each arena's partial sums up, so that the next arena's
// begin at a multiple of op.AlignElems. The gap stays zero.
const partialAlign = op.AlignElems / 2

// NewParams allocates the parameters of cfg, zeroed. Call Init or load weights
// next.
func NewParams(r *op.Runner, cfg Config, opt ParamOptions) (*Params, error) {
	mem := &memory{b: r.Backend(), lim: r.Backend().Limits()}
	p, err := newParams(mem, r, cfg, opt)
	if err != nil {
		mem.free()
	}
	return p, err
}

func newParams(mem *memory, r *op.Runner, cfg Config, opt ParamOptions) (*Params, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := opt.validate(mem.lim); err != nil {
		return nil, err
	}
	opt.LoRA = opt.LoRA.WithDefaults()
	if err := opt.LoRA.Validate(cfg); err != nil {
		return nil, err
	}
	if !opt.LoRA.Ok() {
		return newTable(mem, r, cfg, opt, cfg.Params())
	}
	p, err := newTable(mem, r, cfg, ParamOptions{Mirror: opt.Mirror, Rounded: opt.Rounded}, cfg.Params())
	if err == nil {
		p.opt.LoRA = opt.LoRA
		p.adapter, err = newAdapter(mem, r, cfg, opt)
	}
	return p, err
}

// newTable allocates the parameters of a table.
func newTable(mem *memory, r *op.Runner, cfg Config, opt ParamOptions, table []ParamInfo) (*Params, error) {
	p := &Params{r: r, mem: mem, cfg: cfg, opt: opt, infos: table, index: map[string]int{}}
	layouts, err := place(p.infos, mem.lim)
	if err != nil {
		return nil, err
	}
	for i, info := range p.infos {
		p.index[info.Name] = i
	}
	partials := 0
	for i, l := range layouts {
		p.arenas = append(p.arenas, newArena(mem, arenaSuffix(i, len(layouts)), l, opt))
		partials += alignUp(op.NormPartials(l.total), partialAlign)
	}
	if opt.Grads {
		mem.purpose = "optimizer work space"
		p.partials = mem.f32("grad_partials", partials, 2)
		p.stats = mem.f32("grad_stats", 4)
	}
	if mem.err == nil {
		p.addOnly = p.addOnlyGrads()
	}
	return p, mem.err
}

// arenaSuffix is empty when there is one arena, else ".0", ".1" …
func arenaSuffix(i, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(".%d", i)
}

func newArena(mem *memory, suffix string, l arenaLayout, opt ParamOptions) arena {
	a := arena{arenaLayout: l}
	weights := "weights"
	if opt.LoRA.Ok() {
		weights, suffix = "adapter", "_lora"+suffix
	}
	buf := func(purpose, label string, t tensor.DType, n int) op.Buffer {
		mem.purpose = purpose
		return mem.buf(label+suffix, t, n)
	}
	a.w = buf(weights, "mega_w", tensor.F32, l.total)
	if opt.LoRA.Ok() && opt.LoRA.scale() != 1 {
		a.scaled = buf(weights, "mega_ws", tensor.F32, l.total)
	}
	if opt.Grads {
		a.g = buf("gradients", "mega_g", tensor.F32, l.total)
	}
	if opt.Moments {
		a.m = buf("moments", "mega_m", tensor.F32, l.total)
		a.v = buf("moments", "mega_v", tensor.F32, l.total)
	}
	if opt.Moments8 {
		a.m = buf("moments (8-bit)", "mega_m8", tensor.I8, l.total)
		a.v = buf("moments (8-bit)", "mega_v8", tensor.I8, l.total)
		for i, n := range []int{l.decayed, l.total - l.decayed} {
			if n > 0 {
				a.scales[i].m = buf("moments (8-bit)", fmt.Sprintf("mega_m_scale%d", i), tensor.F32, n/op.MomentBlock)
				a.scales[i].v = buf("moments (8-bit)", fmt.Sprintf("mega_v_scale%d", i), tensor.F32, n/op.MomentBlock)
			}
		}
	}
	switch t := opt.mirrorType(); t {
	case tensor.F16:
		a.w16 = buf("float16 mirror", "mega_w16", t, l.total)
	case tensor.BF16:
		a.w16 = buf("bfloat16 mirror", "mega_w16", t, l.total)
	}
	return a
}

// Config returns the configuration, defaults filled in.
func (p *Params) Config() Config { return p.cfg }

// Options says what stands beside these weights. Of a model with an adapter
// that is no more than a 16-bit copy; gradients and moments are Adapter's.
func (p *Params) Options() ParamOptions { return p.opt }

// Runner returns what the parameters were allocated on.
func (p *Params) Runner() *op.Runner { return p.r }

// Infos lists the parameters with their place. The slice is not to be changed.
func (p *Params) Infos() []ParamInfo { return p.infos }

// Close frees the buffers.
func (p *Params) Close() { p.mem.free() }

// view is the tensor of parameter name in the mega-buffer that pick chooses.
// The name is one of the table; another is a mistake of this package.
func (p *Params) view(name string, pick func(*arena) op.Buffer) op.Tensor {
	info := p.infos[p.index[name]]
	return op.Of(pick(&p.arenas[info.Arena]), info.Off, info.Shape...)
}

// master is the float32 weight, which the optimizer updates.
func (p *Params) master(name string) op.Tensor {
	return p.view(name, func(a *arena) op.Buffer { return a.w })
}

// weight is what the forward pass reads: with ParamOptions.Mirror the mirror, else the
// float32 weight.
func (p *Params) weight(name string) op.Tensor {
	if p.opt.Mirror {
		return p.mirror(name)
	}
	return p.master(name)
}

// factor is what the products of a Graph read of a matrix, in the forward pass and for
// dX, which is then the derivative of the function that was evaluated: weight, or with
// ParamOptions.Rounded the copy that has been rounded as they round.
func (p *Params) factor(name string) op.Tensor {
	if p.opt.Rounded != tensor.F32 {
		return p.mirror(name)
	}
	return p.weight(name)
}

// mirror is the 16-bit copy of a weight.
func (p *Params) mirror(name string) op.Tensor {
	return p.view(name, func(a *arena) op.Buffer { return a.w16 })
}

// grad is the gradient, which backward passes write or add to (gradsum.go); absent
// without Grads.
func (p *Params) grad(name string) op.Tensor {
	if !p.opt.Grads {
		return op.Tensor{}
	}
	return p.view(name, func(a *arena) op.Buffer { return a.g })
}

// RefreshMirror writes the 16-bit copy of the weights anew, where there is one. Forward
// passes do it by themselves after Init and WriteFrom; the optimizer keeps the
// copy fresh from then on.
func (p *Params) RefreshMirror() {
	for _, a := range p.arenas {
		if a.w16 != nil {
			p.r.Cast(op.Cast{Dst: op.Of(a.w16, 0, a.total), Src: op.Of(a.w, 0, a.total)})
		}
	}
	p.stale = false
}

// Updated says that the weights were changed from outside, the mirror with
// them: the optimizer calls it. It lets an adapter renew what follows from its
// weights.
func (p *Params) Updated() { p.stale = p.stale || p.isAdapter() }

// fresh is called at the beginning of every forward pass.
func (p *Params) fresh() {
	switch {
	case !p.stale:
	case p.isAdapter():
		p.refreshScaled()
	default:
		p.RefreshMirror()
	}
	if p.adapter != nil {
		p.adapter.fresh()
	}
}
