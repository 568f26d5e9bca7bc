package webgpu

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/optest"
	"tezgah/tensor"
)

// pretender has no need of matrix units to write operand tensors of either type, so
// that these kernels run on every device. It multiplies none.
type pretender struct {
	*Backend
	rounds tensor.DType
}

func (p *pretender) Rounding() []tensor.DType {
	if !p.features.F16 {
		return []tensor.DType{tensor.BF16}
	}
	return []tensor.DType{tensor.BF16, tensor.F16}
}
func (p *pretender) Rounds() tensor.DType { return p.rounds }
func (p *pretender) RoundProducts(t tensor.DType) error {
	p.rounds = t
	return nil
}

// operandSuite runs the cases with operand tensors but for products, and for attention
// where fix fixes something: no kernel of attention is among it. A browser, where
// products never round, runs them once, because its compiler of WGSL is the strictest,
// and without attention, which takes a minute there: its kernels are the float32 ones of
// TestSuite, and TestAttentionOf16BitsWithoutUnits has what comes before and after.
func operandSuite(t *testing.T, o gpu.Options, fix func(b *Backend)) {
	if runtime.GOOS == "js" && (fix != nil || o != gpu.Options{}) {
		t.Skip("products never round in a browser")
	}
	b := open(t, o, Options{})
	if fix != nil {
		fix(b)
	}
	var names []string
	attention := fix == nil && runtime.GOOS != "js"
	for _, c := range optest.Cases() {
		if c.Operands != tensor.F32 && !strings.HasPrefix(c.Op, "matmul") && (attention || !strings.HasPrefix(c.Op, "attention")) {
			names = append(names, c.Name)
		}
	}
	optest.Run(t, func() (op.Backend, error) { return &pretender{Backend: b}, nil },
		optest.Options{Only: func(name string) bool { return slices.Contains(names, name) }})
}

func TestOperandTensors(t *testing.T) { operandSuite(t, gpu.Options{}, nil) }

// TestOperandTensorsLeast has small workgroups and no f16, where rows of the loss are
// too long for registers.
func TestOperandTensorsLeast(t *testing.T) {
	operandSuite(t, gpu.Options{DisableF16: true, DisableSubgroups: true, ForceDefaultLimits: true}, nil)
}

// TestOperandTensorsAnyShape takes the kernels that do without whole vectors.
func TestOperandTensorsAnyShape(t *testing.T) {
	operandSuite(t, gpu.Options{}, func(b *Backend) {
		b.norm, b.ropeHeads, b.loss, b.lossRow = &normShape{1, 1, 1}, -1, &lossShape{}, &rowShape{}
	})
}

// TestOperandTensorsTwoPasses takes the loss's two passes over a row, and rows of
// other numbers of threads than are chosen, some one after the other.
func TestOperandTensorsTwoPasses(t *testing.T) {
	operandSuite(t, gpu.Options{}, func(b *Backend) { b.loss, b.lossRow = &lossShape{1, 2, 2}, &rowShape{} })
	operandSuite(t, gpu.Options{}, func(b *Backend) { b.ropeHeads, b.lossRow = 1, &rowShape{threads: 128, groups: 2} })
}

// TestOperandGraph runs a model whose activations are operand tensors and one whose
// activations are float32, both with products on matrix units: their losses and
// gradients are alike.
func TestOperandGraph(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	// All products but an adapter's are large enough for the units whatever their
	// operands are.
	cfg := model.Config{VocabSize: 131, Context: 40, DModel: 48, Layers: 1, Heads: 3, KVHeads: 1, HeadDim: 16, FFN: 81}.WithDefaults()
	tied := cfg
	tied.Tied = true
	for _, typ := range b.Rounding() {
		for _, m := range []struct {
			name    string
			cfg     model.Config
			adapter model.LoRA
			o       model.TrainOptions
		}{
			{"tied", tied, model.LoRA{}, model.TrainOptions{LabelSmoothing: 0.1, ZLoss: 1e-3}},
			{"untied, recompute", cfg, model.LoRA{}, model.TrainOptions{Recompute: true}},
			{"adapter", tied, model.LoRA{Rank: 3}, model.TrainOptions{}},
			{"adapter on some", cfg, model.LoRA{Rank: 3, Targets: "q,up,down"}, model.TrainOptions{Recompute: true}},
		} {
			m.o.Batch = 2
			if err := checkOperandGraph(b, m.cfg, m.adapter, m.o, typ); err != nil {
				t.Errorf("%s, %v: %v", m.name, typ, err)
			}
		}
	}
}

func checkOperandGraph(b *Backend, cfg model.Config, adapter model.LoRA, o model.TrainOptions, typ tensor.DType) error {
	defer b.RoundProducts(tensor.F32)
	r := op.NewRunner(b)
	p, err := model.NewParams(r, cfg, model.ParamOptions{Grads: true, LoRA: adapter})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Init(3); err != nil {
		return err
	}
	var loss [2]float64
	var grads [2][]float32
	for i, graphType := range []tensor.DType{tensor.F32, typ} {
		if err := b.RoundProducts(graphType); err != nil {
			return err
		}
		g, err := model.NewGraph(r, p, o)
		if err != nil {
			return err
		}
		defer g.Close()
		if err := b.RoundProducts(typ); err != nil {
			return err
		}
		if loss[i], grads[i], err = stepOperandGraph(r, p, g); err != nil {
			return err
		}
	}
	unit := 0x1p-12 // the largest relative error of a rounding
	if typ == tensor.BF16 {
		unit = 0x1p-9
	}
	if !(math.Abs(loss[0]-loss[1]) <= 2*unit) || !(loss[0] > 1) {
		return fmt.Errorf("losses %v in float32, %v with operand tensors", loss[0], loss[1])
	}
	var dot, wide, narrow float64
	for i, x := range grads[0] {
		y := float64(grads[1][i])
		dot, wide, narrow = dot+float64(x)*y, wide+float64(x)*float64(x), narrow+y*y
	}
	if cos := dot / math.Sqrt(wide*narrow); !(cos > 0.999 && math.Abs(wide/narrow-1) < 0.02) {
		return fmt.Errorf("the gradients' cosine is %v, their norms %v and %v", cos, math.Sqrt(wide), math.Sqrt(narrow))
	}
	return nil
}

// stepOperandGraph evaluates a batch, takes a micro-step, and returns the mean loss and
// the gradients, which it clears.
func stepOperandGraph(r *op.Runner, p *model.Params, g *model.Graph) (loss float64, grads []float32, err error) {
	tokens, targets := make([]int32, g.Rows()), make([]int32, g.Rows())
	for i := range tokens {
		tokens[i], targets[i] = int32(i*13%131), int32((i*7+1)%131)
	}
	if err := g.Evaluate(tokens, targets, nil); err != nil {
		return 0, nil, err
	}
	if loss, err = g.LossSum(); err != nil {
		return 0, nil, err
	}
	if err := g.MicroStep(tokens, targets, nil, 1/float32(len(tokens))); err != nil {
		return 0, nil, err
	}
	for _, s := range p.Trainable().Grads() {
		v := make([]float32, s.T.Len())
		if err := op.ReadSlice(r, v, s.T); err != nil {
			return 0, nil, err
		}
		grads = append(grads, v...)
		r.Zero(s.T)
	}
	return loss / float64(len(tokens)), grads, nil
}
