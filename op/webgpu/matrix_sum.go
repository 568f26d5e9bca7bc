package webgpu

import (
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
)

// matrixSum runs products whose sum is C, with as many operands made ready together
// as scratch memory holds.
func (b *Backend) matrixSum(items op.MatMulSum) error {
	for from := 0; from < len(items); {
		n, err := b.matrixTerms(items, from)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// matrixTerm is a product of a sum on the matrix units.
type matrixTerm struct {
	op.MatMul
	tile          matrix.Tile
	splits, depth int
	fa, fb        factor
	sa, sb        operand
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
		if !b.fits(&room, t.fa, t.fb) && n > 0 {
			break
		}
		terms[n], n = t, n+1
	}
	for i := range terms[:n] {
		t := &terms[i]
		if t.sa, err = b.operandOf(t.fa); err == nil {
			t.sb, err = b.operandOf(t.fb)
		}
		if err != nil {
			return n, err
		}
	}
	for _, t := range terms[:n] {
		if err := b.matrixProduct(t.MatMul, t.tile, t.sa, t.sb, t.depth, t.splits); err != nil {
			return n, err
		}
	}
	return n, nil
}

// matrixTerm decides how a product runs.
func (b *Backend) matrixTerm(a op.MatMul) matrixTerm {
	m, n, k := a.Sizes()
	t := matrixTerm{MatMul: addInPlace(a), splits: matrixSplits(m, n, k, b.dev.Limits().BindingSize)}
	t.tile = b.matrixTile(b.matrix.fragments[b.matrix.rounding], a.TransA, m, n, k, t.splits)
	t.depth = roundUp(k, t.tile.BK*t.splits)
	t.fa, t.fb = factors(a, t.depth)
	return t
}
