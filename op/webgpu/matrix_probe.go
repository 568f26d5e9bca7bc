package webgpu

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// A driver may offer matrix units and imitate them. They are used for a type only
// where a product on them, its operands converted, is faster than in float32. That
// is measured when a type is first asked for, not at every start, and kept on disk.
//
// Where nothing may be measured (TuneOff, and by itself on software adapters, which
// are there for tests) the units are taken as they are.

// raceSubject names the file of what was measured.
const raceSubject = "matrix-speed-v1"

// unitsRace is how one product went.
type unitsRace struct {
	Kernel       string  // fingerprint of the units' kernel: another one races again
	Size         int     // of the product: Size × Size × Size
	Units, Plain float64 // seconds on the units and in float32
}

// raced reports whether r is the result of a race of this kernel.
func (r unitsRace) raced(kernel string) bool {
	return r.Kernel == kernel && r.Units > 0 && r.Plain > 0
}

// slow is nil when the units won, and otherwise says so with both figures.
func (r unitsRace) slow(t tensor.DType, device string) error {
	if r.Units < r.Plain {
		return nil
	}
	return fmt.Errorf("the matrix units of %s are not used for %v: a product of %d × %d × %d takes %.3g ms on them and %.3g ms in float32",
		device, t, r.Size, r.Size, r.Size, 1e3*r.Units, 1e3*r.Plain)
}

// fingerprint tells versions of kernels apart.
func fingerprint(input tensor.DType, kernels ...string) string {
	h := sha256.New()
	for _, k := range kernels {
		code, _ := matrix.Module(k, matrixInput(input)) // embedded; a test reads them all
		h.Write(gpu.Bytes(code))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// races are the results on disk, by type.
func (b *Backend) races() map[string]unitsRace {
	var known map[string]unitsRace
	if !b.dev.LoadCache(raceSubject, &known) || known == nil {
		known = map[string]unitsRace{}
	}
	return known
}

// dropSlowUnits gives up the types that lost at an earlier start. It measures
// nothing.
func (b *Backend) dropSlowUnits() {
	if b.tuner.mode == TuneOff || len(b.matrix.fragments) == 0 {
		return
	}
	known := b.races()
	for _, t := range b.Rounding() {
		r := known[t.String()]
		if why := r.slow(t, b.dev.Info().Name); why != nil && r.raced(fingerprint(t, "matmul")) {
			delete(b.matrix.fragments, t)
			b.notice = joinNotice(b.notice, fmt.Sprintf("NOTE: %v", why))
		}
	}
}

// checkSpeed lets the units race for a type that is asked for the first time,
// unless an earlier start did. race is raceUnits but in tests. An error says why
// the type is not on the list any more.
func (b *Backend) checkSpeed(t tensor.DType, race func(tensor.DType) (unitsRace, error)) error {
	if _, ok := b.matrix.fragments[t]; !ok || b.tuner.mode == TuneOff || b.matrix.fast[t] {
		return nil
	}
	kernel, known := fingerprint(t, "matmul"), b.races()
	r := known[t.String()]
	if !r.raced(kernel) {
		var err error
		if r, err = race(t); err != nil {
			return fmt.Errorf("the matrix units of %s cannot be timed: %w", b.dev.Info().Name, err)
		}
		r.Kernel = kernel
		known[t.String()] = r
		_ = b.dev.SaveCache(raceSubject, known)
	}
	if why := r.slow(t, b.dev.Info().Name); why != nil {
		delete(b.matrix.fragments, t)
		return why
	}
	if b.matrix.fast == nil {
		b.matrix.fast = map[tensor.DType]bool{}
	}
	b.matrix.fast[t] = true
	return nil
}

// raceSize is the largest power of two up to 1024 whose product is a small part
// of what one dispatch of the device may do.
func raceSize(budget float64) int {
	n := 1024
	for n > 128 && 2*float64(n)*float64(n)*float64(n) > budget/16 {
		n /= 2
	}
	return n
}

// raceUnits times a product both ways. The first race takes the tiles of the
// static tables, which costs least; units that lose it get a second one with
// tiles that are measured.
func (b *Backend) raceUnits(t tensor.DType) (unitsRace, error) {
	r := unitsRace{Size: raceSize(b.tuner.budget)}
	p, err := b.newTrial(matmulForm{}, r.Size, r.Size, r.Size)
	defer p.free(b)
	if err != nil {
		return r, err
	}
	rounding, busy := b.matrix.rounding, b.tuner.busy
	defer func() { b.matrix.rounding, b.tuner.busy = rounding, busy }()
	way := func(input tensor.DType) func() error {
		return func() error {
			b.matrix.rounding = input
			b.matrix.converted.startOver() // operands are converted each time
			return b.MatMul(op.MatMul{A: p.a, B: p.b, C: p.c})
		}
	}
	for _, static := range []bool{true, false} {
		b.tuner.busy = static
		times, err := b.inTurn(way(t), way(tensor.F32))
		if err != nil {
			return r, err
		}
		r.Units, r.Plain = times[0].Seconds(), times[1].Seconds()
		if r.Units < r.Plain {
			break
		}
	}
	return r, nil
}

// inTurn runs each way once, in which kernels are compiled and tiles chosen, then
// warms the device up, and returns the shortest time of each in several rounds.
func (b *Backend) inTurn(ways ...func() error) ([]time.Duration, error) {
	for _, run := range ways {
		if err := run(); err != nil {
			return nil, err
		}
	}
	if err := b.Sync(); err != nil {
		return nil, err
	}
	shortest := make([]time.Duration, len(ways))
	begun := time.Now()
	for round := 0; round < 5; round++ {
		for i, run := range ways {
			d, err := b.timeKernels(run)
			if err != nil {
				return nil, err
			}
			if round == 0 || d < shortest[i] {
				shortest[i] = d
			}
		}
		if time.Since(begun) < b.warmTime()/3 {
			round = -1
		}
	}
	return shortest, nil
}
