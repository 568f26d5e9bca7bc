package webgpu

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

// Results in bfloat16 are rounded to nearest, ties to even. In integers that takes eight
// steps for each number, which a product that writes 16 bits feels: 10 % of its time on
// an NVIDIA H200. Dekker's splitting takes three, but only a driver that adds and
// subtracts just as it is written gets it right; so it is tried.

// chooseRounding lets products round to bfloat16 by splitting where that is exact here.
func (b *Backend) chooseRounding() {
	if _, ok := b.matrix.fragments[tensor.BF16]; ok {
		b.matrix.splits = true
		b.matrix.splits = b.tryRounding(tensor.BF16) == nil
	}
}

// hardToRound are numbers in two parts that a type of 16 bits holds: ties, their
// neighbours on both sides, large numbers, and what is none. half is half the distance
// of the type's numbers above 1, large is one of its largest.
func hardToRound(half, large float32) (parts [][2]float32) {
	inf := float32(math.Inf(1))
	for _, p := range [][2]float32{{1, half}, {1 + 2*half, half}, {1, half + half/128}, {1, half - half/128}, {1 + 2*half, half - half/128},
		{2 - 2*half, half}, {2 - 2*half, half / 2}, {1, 0}, {large, large * half / 2}, {inf, 1}} {
		parts = append(parts, p, [2]float32{-p[0], -p[1]})
	}
	return append(parts, [2]float32{float32(math.NaN()), 1}, [2]float32{inf, -inf}, [2]float32{})
}

// tryRounding adds both parts of numbers in a small product whose result has a type's 16
// bits, and returns what is wrong with it.
func (b *Backend) tryRounding(t tensor.DType) error {
	parts := hardToRound(0x1p-11, 65504)
	if t == tensor.BF16 {
		parts = hardToRound(0x1p-8, 0x1.FEp111) // see matmul.comp for what is larger
	}
	const n, k = 32, 32
	left, right := make([]float32, len(parts)*k), make([]float32, k*n)
	for i, p := range parts {
		left[i*k], left[i*k+1] = p[0], p[1]
	}
	for i := range 2 * n {
		right[i] = 1
	}
	rounding := b.matrix.rounding
	m := probeTensors{b: b, p: attentionProbe{input: t, half: true}}
	defer func() {
		b.matrix.rounding = rounding
		m.free()
	}()
	a := op.MatMul{A: m.operand(left, len(parts), k), B: m.operand(right, k, n), C: m.operand(make([]float32, len(parts)*n), len(parts), n)}
	if m.err != nil {
		return m.err
	}
	b.matrix.rounding = t
	if err := b.matrixMatMul(a); err != nil {
		return err
	}
	got, err := m.read(a.C)
	if err != nil {
		return err
	}
	return checkRounding(t, parts, got)
}

// checkRounding compares the sums of parts, as many numbers of got for each, with what
// they round to. What is not finite may become NaN or an infinity.
func checkRounding(t tensor.DType, parts [][2]float32, got []float32) error {
	round := func(x float32) float32 { return tensor.FromF16(tensor.ToF16(x)) }
	if t == tensor.BF16 {
		round = func(x float32) float32 { return tensor.FromBF16(tensor.ToBF16(x)) }
	}
	n := len(got) / len(parts)
	for i, x := range got {
		sum := round(parts[i/n][0]) + round(parts[i/n][1])
		want, finite := round(sum), sum-sum == 0
		if finite && math.Float32bits(x) != math.Float32bits(want) || !finite && x-x == 0 {
			return fmt.Errorf("%v + %v became %v in %v, want %v", parts[i/n][0], parts[i/n][1], x, t, want)
		}
	}
	return nil
}
