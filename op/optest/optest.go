// Package optest is the one suite that every backend passes: a table of named
// cases, each of which runs one op on the backend under test and on op/ref in
// float64 and compares, element by element, within a computed bound.
//
// Every case also checks what all ops promise: outputs start full of NaN and
// must be written wholly, inputs and the memory around every tensor stay as
// they are, and the same call again gives the same bits. Sizes are small enough
// for a software GPU; cases marked Large are for real devices.
//
// Run is the wrapper for package testing; a self-test command walks Cases by
// itself. The package builds for js/wasm and does not import testing. Open
// env.go first (how a case is run and compared), then bounds.go (where the
// tolerances come from), then any cases_*.go.
package optest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tezgah/op"
	"tezgah/tensor"
)

// Case is one test. Names are unique, of the form op/what.
type Case struct {
	Name  string
	Op    string // the op's label: "rmsnorm_forward", "matmul"
	Large bool   // too slow for a software GPU
	F16   bool   // needs Limits().F16
	// Round is what products round their inputs to, on matrix units: BF16 or
	// F16; F32 where they do not. Values are drawn so that rounding leaves them.
	Round tensor.DType
	// Operands is the type of the case's operand tensors, where it is not F32: the
	// case needs a backend whose products can round to it.
	Operands tensor.DType
	body     func(e *env)
}

// Result is the outcome: the element whose error came nearest to its bound, or
// went furthest beyond.
type Result struct {
	MaxErr float64 // its error
	Bound  float64 // what was allowed there; 0 where results must be exact
	Where  string  // tensor, index, got, want
	Err    error   // anything but a comparison that failed: the op's own error, say
	Skip   string  // why the case does not apply to this backend, if it does not
}

// OK reports whether the case passed (or did not apply).
func (r Result) OK() bool { return r.Err == nil && r.MaxErr <= r.Bound }

// String describes a failure in one line.
func (r Result) String() string {
	switch {
	case r.Skip != "":
		return "skipped: " + r.Skip
	case r.Err != nil:
		return r.Err.Error()
	}
	return fmt.Sprintf("%s, error %.3g, bound %.3g", r.Where, r.MaxErr, r.Bound)
}

// Run runs the case on r. An error of the runner is taken over into the result
// and reset.
func (c Case) Run(r *op.Runner) (res Result) {
	round := cmp.Or(c.Round, c.Operands)
	if (c.F16 || round == tensor.F16) && !r.Backend().Limits().F16 {
		return Result{Skip: "no float16 on this device"}
	}
	e := newEnv(c.Name, r)
	defer e.free()
	if round != tensor.F32 {
		units, ok := rounder(r.Backend(), round)
		if !ok {
			return Result{Skip: fmt.Sprintf("no matrix units for %v on this device", round)}
		}
		if err := errors.Join(units.RoundProducts(round), e.refMem.RoundProducts(round)); err != nil {
			return Result{Err: err}
		}
		defer units.RoundProducts(tensor.F32)
	}
	e.round, e.operands = c.Round, c.Operands
	c.body(e)
	if err := r.Reset(); err != nil && e.res.Err == nil {
		e.res.Err = err
	}
	if !e.res.OK() && e.res.Err == nil {
		e.res.Where += fmt.Sprintf(" (seed %#x)", e.seed)
	}
	return e.res
}

// Cases returns the whole table, in the order of args.go.
func Cases() []Case {
	return slices.Concat(elementwiseCases(), embeddingCases(), normCases(), matmulCases(), matrixCases(), matmulSumCases(), ropeCases(),
		attentionCases(), decodeCases(), gluCases(), lossCases(), operandCases(), gradNormCases(), adamCases(), adam8Cases())
}

// Options choose what Run runs.
type Options struct {
	Large bool                   // the cases for real devices too
	Only  func(name string) bool // nil means all
}

// TestingT is the part of *testing.T that Run uses.
type TestingT[T any] interface {
	Helper()
	Run(name string, f func(T)) bool
	Skip(args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Run runs the suite as subtests, on one backend. A backend that cannot be made
// is a failure.
func Run[T TestingT[T]](t T, newBackend func() (op.Backend, error), o Options) {
	t.Helper()
	b, err := newBackend()
	if err != nil {
		t.Fatalf("no backend: %v", err)
	}
	defer b.Close()
	r := op.NewRunner(b)
	for _, c := range Cases() {
		if c.Large && !o.Large || o.Only != nil && !o.Only(c.Name) {
			continue
		}
		t.Run(c.Name, func(t T) {
			switch res := c.Run(r); {
			case res.Skip != "":
				t.Skip(res.Skip)
			case !res.OK():
				t.Errorf("%s on %s: %v", c.Op, b.Name(), res)
			}
		})
	}
	if now, _ := b.MemoryBytes(); now != 0 {
		t.Errorf("%d bytes are still allocated after the suite, which frees all its buffers", now)
	}
}
