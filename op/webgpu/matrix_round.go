package webgpu

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

// Results in bfloat16 are rounded to nearest, ties to even. Written in integers that
// takes eight steps for each number, which a product that writes 16 bits feels: 10 %
// of its time on an NVIDIA H200. The device's own conversion takes half a step, but
// how it rounds is left to it, and some cut bits off; so it is tried.

// findConversion lets products use the device's conversion to bfloat16 where it rounds
// as they must.
func (b *Backend) findConversion() {
	if _, ok := b.matrix.fragments[tensor.BF16]; !ok {
		return
	}
	b.matrix.converts = true
	b.matrix.converts = b.tryConversion() == nil
}

// hardToRound are numbers in two parts that bfloat16 holds: ties, their neighbours on
// both sides, what becomes an infinity, and what is no number.
func hardToRound() (parts [][2]float32) {
	inf, most := float32(math.Inf(1)), tensor.FromBF16(0x7f7f)
	for _, p := range [][2]float32{{1, 0x1p-8}, {1 + 0x1p-7, 0x1p-8}, {1, 0x1p-8 + 0x1p-15}, {1, 0x1p-8 - 0x1p-15}, {1 + 0x1p-7, 0x1p-8 - 0x1p-15},
		{2 - 0x1p-7, 0x1p-8}, {2 - 0x1p-7, 0x1p-9}, {1, 0}, {0x1.5p20, 0x1.3p12}, {0x1.5p-20, 0x1.1p-29}, {most, most * 0x1p-9}, {inf, 1}} {
		parts = append(parts, p, [2]float32{-p[0], -p[1]})
	}
	return append(parts, [2]float32{float32(math.NaN()), 1}, [2]float32{inf, -inf}, [2]float32{})
}

// tryConversion adds two parts of numbers in a small product whose result is bfloat16,
// and returns what is wrong with it.
func (b *Backend) tryConversion() error {
	parts := hardToRound()
	const n, k = 32, 32
	rows := len(parts)
	left, right := make([]float32, rows*k), make([]float32, k*n)
	for i, p := range parts {
		left[i*k], left[i*k+1] = p[0], p[1]
	}
	for i := range 2 * n {
		right[i] = 1
	}
	m := probeTensors{b: b, p: attentionProbe{input: tensor.BF16, half: true}}
	defer func() {
		b.matrix.rounding = tensor.F32
		m.free()
	}()
	a := op.MatMul{A: m.operand(left, rows, k), B: m.operand(right, k, n), C: m.operand(make([]float32, rows*n), rows, n)}
	if m.err != nil {
		return m.err
	}
	b.matrix.rounding = tensor.BF16
	if err := b.matrixMatMul(a); err != nil {
		return err
	}
	got, err := m.read(a.C)
	if err != nil {
		return err
	}
	return checkRounding(parts, got, n)
}

// checkRounding compares rows of n numbers each with the sums of the parts, rounded.
func checkRounding(parts [][2]float32, got []float32, n int) error {
	for i, x := range got {
		p := parts[i/n]
		want := tensor.FromBF16(tensor.ToBF16(p[0] + p[1]))
		if math.Float32bits(x) != math.Float32bits(want) && (x == x || want == want) {
			return fmt.Errorf("%v + %v became %v in bfloat16, want %v", p[0], p[1], x, want)
		}
	}
	return nil
}
