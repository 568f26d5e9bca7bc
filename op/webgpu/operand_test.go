package webgpu

import (
	"slices"
	"strings"
	"testing"

	"tezgah/gpu"
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

// operandSuite runs the cases with operand tensors but for products.
func operandSuite(t *testing.T, o gpu.Options, fix func(b *Backend)) {
	b := open(t, o, Options{})
	if fix != nil {
		fix(b)
	}
	var names []string
	for _, c := range optest.Cases() {
		if c.Operands != tensor.F32 && !strings.HasPrefix(c.Op, "matmul") {
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

// TestOperandTensorsAnyShape takes the kernels that do without whole vectors, and the
// loss's two passes.
func TestOperandTensorsAnyShape(t *testing.T) {
	operandSuite(t, gpu.Options{}, func(b *Backend) {
		b.norm, b.ropeHeads, b.loss = &normShape{1, 1, 1}, -1, &lossShape{}
	})
}
