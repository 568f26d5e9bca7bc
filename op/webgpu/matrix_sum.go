package webgpu

import (
	"slices"

	"tezgah/op"
)

// matrixSum runs products whose sum is C: in one dispatch that keeps the sum in
// registers where it can, otherwise one after another, with as many operands made
// ready together as scratch memory holds.
func (b *Backend) matrixSum(items op.MatMulSum) error {
	if l, ok, err := b.sumTogether(items); ok || err != nil {
		if err == nil {
			first := [1]op.MatMul{addInPlace(items.Product(0))}
			err = b.launch(&l, first[:])
		}
		return err
	}
	for from := 0; from < len(items); {
		n, err := b.matrixTerms(items, from)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// sumTogether makes one dispatch of a sum. ok is false when it is to run in several:
// it has too many terms or different forms, too few tiles to fill the device without
// parts along K, or no places for all operands.
func (b *Backend) sumTogether(items op.MatMulSum) (l launch, ok bool, err error) {
	if len(items) < 2 || len(items) > maxProducts {
		return l, false, nil
	}
	var room operandRoom
	m, n, all := 0, 0, 0
	for _, a := range items {
		var k int
		m, n, k = a.Sizes()
		all += roundUp(k, 32)
		fa, fb := factors(a, depthOf(a))
		if b.formOf(a) != b.formOf(items[0]) || !b.fits(&room, fa, fb) {
			return l, false, nil
		}
	}
	if ceil(m, 128)*ceil(n, 128) < matrixSlots && matrixSplits(m, n, all, b.dev.Limits().BindingSize) > 1 {
		return l, false, nil
	}
	l.form, l.splits = b.formOf(items[0]), 1
	l.form.pairs = len(items)
	shape := shapeOf(l.form, m, n, all, 1)
	if slices.ContainsFunc(items, func(a op.MatMul) bool { return depthOf(a)%64 != 0 }) {
		shape.grain = 32
	}
	l.tile = b.matrixTile(shape)
	for i, a := range items {
		if err := b.takeTerm(&l, i, a); err != nil {
			return l, false, err
		}
	}
	return l, true, nil
}

// matrixTerm is a product of a sum on the matrix units, in a dispatch of its own.
type matrixTerm struct {
	op.MatMul
	launch launch
}

// maxMatrixTerms are products of a sum that run together; a step has three at most.
const maxMatrixTerms = 4

// matrixTerms runs products of a sum from one on and returns how many. Tiles are
// chosen before any operand is made, because measuring them takes operands' places,
// and operands before any product runs, so that no product waits for another's.
func (b *Backend) matrixTerms(items op.MatMulSum, from int) (n int, err error) {
	var terms [maxMatrixTerms]matrixTerm
	var room operandRoom
	for n < len(terms) && from+n < len(items) {
		t := b.matrixTerm(items.Product(from + n))
		fa, fb := factors(t.MatMul, depthOf(t.MatMul))
		if !b.fits(&room, fa, fb) && n > 0 {
			break
		}
		terms[n], n = t, n+1
	}
	for i := range terms[:n] {
		if err := b.takeTerm(&terms[i].launch, 0, terms[i].MatMul); err != nil {
			return n, err
		}
	}
	for i := range terms[:n] {
		one := [1]op.MatMul{terms[i].MatMul}
		if err := b.launch(&terms[i].launch, one[:]); err != nil {
			return n, err
		}
	}
	return n, nil
}

// matrixTerm decides how a product runs.
func (b *Backend) matrixTerm(a op.MatMul) matrixTerm {
	m, n, k := a.Sizes()
	t := matrixTerm{MatMul: addInPlace(a)}
	l := &t.launch
	l.form, l.splits = b.formOf(a), matrixSplits(m, n, k, b.dev.Limits().BindingSize)
	l.tile = b.matrixTile(shapeOf(l.form, m, n, k, l.splits))
	return t
}
