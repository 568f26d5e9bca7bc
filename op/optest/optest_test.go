package optest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/optest"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// TestReference runs the suite on the reference in float32: plain loops in the
// obvious order must stay within the bounds.
func TestReference(t *testing.T) {
	optest.Run(t, func() (op.Backend, error) { return ref.New[float32](), nil }, optest.Options{})
}

// fault is one way to compute wrongly.
type fault int

const (
	nothing  fault = iota // the op does nothing
	unsteady              // the outputs' first elements differ from call to call
	off                   // every output is off by one part in 500
	beyond                // one element after the output is overwritten
	spoil                 // an input is overwritten
	faults
)

func (f fault) String() string {
	return [...]string{"does nothing", "other bits each time", "off by 1/500", "writes past the end", "changes an input"}[f]
}

// broken is the reference with a fault in one op.
type broken struct {
	op.Backend
	mem   *ref.Backend[float32]
	label string
	fault fault
	calls int
	round tensor.DType // of products
}

// do makes the call, or not, and damages its outputs or its first input.
func (b *broken) do(label string, call func() error, in op.Tensor, outs ...op.Tensor) error {
	if label != b.label {
		return call()
	}
	if b.fault == nothing {
		return nil
	}
	err := call()
	b.calls++
	for _, out := range outs {
		if !out.Ok() {
			continue // not wanted
		}
		v := b.mem.Data(out.Buf)
		if v == nil {
			continue // codes
		}
		last := out.Off + out.Len() - 1
		switch b.fault {
		case unsteady:
			if b.calls%2 == 0 {
				v[out.Off] += v[out.Off]*1e-6 + 1e-30
			}
		case off:
			for i := out.Off; i <= last; i++ {
				v[i] += v[i] / 500
			}
		case beyond:
			v[last+1] = 0
		}
	}
	if b.fault == spoil && in.Ok() {
		b.mem.Data(in.Buf)[in.Off] = 12345
	}
	return err
}

func (b *broken) Add(a op.Add) error {
	return b.do(a.Label(), func() error { return b.Backend.Add(a) }, a.Src, a.Dst)
}
func (b *broken) Scale(a op.Scale) error {
	return b.do(a.Label(), func() error { return b.Backend.Scale(a) }, a.Src, a.Dst)
}
func (b *broken) Cast(a op.Cast) error {
	return b.do(a.Label(), func() error { return b.Backend.Cast(a) }, a.Src, a.Dst)
}
func (b *broken) Sum(a op.Sum) error {
	return b.do(a.Label(), func() error { return b.Backend.Sum(a) }, a.X, a.Out)
}
func (b *broken) Embedding(a op.Embedding) error {
	return b.do(a.Label(), func() error { return b.Backend.Embedding(a) }, a.W, a.Out)
}
func (b *broken) EmbeddingBackward(a op.EmbeddingBackward) error {
	return b.do(a.Label(), func() error { return b.Backend.EmbeddingBackward(a) }, a.DOut, a.DW)
}
func (b *broken) RMSNorm(a op.RMSNorm) error {
	return b.do(a.Label(), func() error { return b.Backend.RMSNorm(a) }, a.X, a.Y, a.RMSInv)
}
func (b *broken) RMSNormBackward(a op.RMSNormBackward) error {
	return b.do(a.Label(), func() error { return b.Backend.RMSNormBackward(a) }, a.X, a.DX, a.DW)
}

// Rounding and RoundProducts pretend to matrix units: the cases draw numbers that
// rounding does not change.
func (b *broken) Rounding() []tensor.DType { return []tensor.DType{tensor.BF16, tensor.F16} }
func (b *broken) Rounds() tensor.DType     { return b.round }
func (b *broken) RoundProducts(t tensor.DType) error {
	b.round = t
	return nil
}

// units is the label of a product's cases.
func (b *broken) units(label string) string {
	if b.round != tensor.F32 {
		label = fmt.Sprintf("%s %v units", label, b.round)
	}
	return label
}
func (b *broken) MatMul(a op.MatMul) error {
	return b.do(b.units(a.Label()), func() error { return b.Backend.MatMul(a) }, a.A, a.C)
}
func (b *broken) MatMulGroup(items []op.MatMul) (err error) {
	for _, a := range items {
		err = errors.Join(err, b.MatMul(a))
	}
	return err
}
func (b *broken) MatMulSum(a op.MatMulSum) error {
	return b.do(b.units(a.Label()), func() (err error) {
		for i := range a {
			err = errors.Join(err, b.Backend.MatMul(a.Product(i)))
		}
		return err
	}, a[0].A, a[0].C)
}
func (b *broken) GateUp(a op.GateUp) error {
	return b.do(a.Label(), func() error {
		return errors.Join(b.Backend.MatMul(op.MatMul{A: a.X, B: a.WGate, C: a.Gate}), b.Backend.MatMul(op.MatMul{A: a.X, B: a.WUp, C: a.Up}),
			b.Backend.GLU(op.GLU{Gate: a.Gate, Up: a.Up, Out: a.Out, Act: a.Act}))
	}, a.X, a.Gate, a.Up, a.Out)
}
func (b *broken) RoPE(a op.RoPE) error {
	return b.do(a.Label(), func() error { return b.Backend.RoPE(a) }, a.Table, a.X)
}
func (b *broken) Attention(a op.Attention) error {
	return b.do(a.Label(), func() error { return b.Backend.Attention(a) }, a.V, a.Out, a.LSE)
}
func (b *broken) AttentionBackward(a op.AttentionBackward) error {
	return b.do(a.Label(), func() error { return b.Backend.AttentionBackward(a) }, a.V, a.DQ, a.DK, a.DV)
}
func (b *broken) KVAppend(a op.KVAppend) error {
	return b.do(a.Label(), func() error { return b.Backend.KVAppend(a) }, a.K, a.KCache, a.VCache)
}
func (b *broken) AttentionDecode(a op.AttentionDecode) error {
	return b.do(a.Label(), func() error { return b.Backend.AttentionDecode(a) }, a.Q, a.Out)
}
func (b *broken) GLU(a op.GLU) error {
	return b.do(a.Label(), func() error { return b.Backend.GLU(a) }, a.Gate, a.Out)
}
func (b *broken) GLUBackward(a op.GLUBackward) error {
	return b.do(a.Label(), func() error { return b.Backend.GLUBackward(a) }, a.Gate, a.DGate, a.DUp)
}
func (b *broken) CrossEntropy(a op.CrossEntropy) error {
	return b.do(a.Label(), func() error { return b.Backend.CrossEntropy(a) }, op.Tensor{}, a.Loss, a.Logits)
}
func (b *broken) GradNormSq(a op.GradNormSq) error {
	return b.do(a.Label(), func() error { return b.Backend.GradNormSq(a) }, a.G, a.Partials)
}
func (b *broken) FinalizeGradStats(a op.FinalizeGradStats) error {
	return b.do(a.Label(), func() error { return b.Backend.FinalizeGradStats(a) }, a.Partials, a.Stats)
}
func (b *broken) AdamW(a op.AdamW) error {
	return b.do(a.Label(), func() error { return b.Backend.AdamW(a) }, op.Tensor{}, a.W, a.M, a.V)
}
func (b *broken) AdamW8(a op.AdamW8) error {
	return b.do(a.Label(), func() error { return b.Backend.AdamW8(a) }, op.Tensor{}, a.W, a.MScale, a.VScale)
}

// TestFaultsAreFound puts every fault into every op in turn: at least one case
// of that op must fail.
func TestFaultsAreFound(t *testing.T) {
	byOp := map[string][]optest.Case{}
	for _, c := range optest.Cases() {
		if !c.Large {
			byOp[c.Op] = append(byOp[c.Op], c)
		}
	}
	for label, cases := range byOp {
		if label == "zero" || label == "copy" { // not ops of their own in a profile
			continue
		}
		for f := range faults {
			if f == spoil && (label == "cross_entropy" || strings.HasPrefix(label, "adamw")) {
				continue // no input is only read
			}
			if f == unsteady && strings.HasPrefix(label, "cast_f32_to_") {
				continue // too small a difference for 16 bits
			}
			mem := ref.New[float32]()
			b := &broken{Backend: mem, mem: mem, label: label, fault: f}
			if !found(op.NewRunner(b), cases) {
				t.Errorf("%s that %v passes all %d cases", label, f, len(cases))
			}
		}
	}
}

func found(r *op.Runner, cases []optest.Case) bool {
	for _, c := range cases {
		if !c.Run(r).OK() {
			return true
		}
	}
	return false
}

// TestCasesAreNamedOnce wants unique names, so that a failure can be run alone.
func TestCasesAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range optest.Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are named %q", c.Name)
		}
		seen[c.Name] = true
	}
}

// TestFailureText wants a failure to show tensor, index, got, want, error and
// bound.
func TestFailureText(t *testing.T) {
	mem := ref.New[float32]()
	r := op.NewRunner(&broken{Backend: mem, mem: mem, label: "matmul", fault: off})
	for _, c := range optest.Cases() {
		if c.Op != "matmul" {
			continue
		}
		text := c.Run(r).String()
		for _, want := range []string{"c[", "] = ", "want ", "error ", "bound ", "seed "} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q", text, want)
			}
		}
		return
	}
}

// TestAllocationFailure wants a backend without memory to give an error, not a
// crash.
func TestAllocationFailure(t *testing.T) {
	r := op.NewRunner(full{ref.New[float32]()})
	for _, c := range optest.Cases()[:3] {
		if res := c.Run(r); res.Err == nil || !strings.Contains(res.Err.Error(), "memory is full") {
			t.Errorf("%s: %v", c.Name, res)
		}
	}
}

type full struct{ op.Backend }

func (full) Alloc(string, tensor.DType, int) (op.Buffer, error) {
	return nil, errFull
}

type fullError struct{}

func (fullError) Error() string { return "memory is full" }

var errFull error = fullError{}
