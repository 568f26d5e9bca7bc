package webgpu

import (
	"slices"

	"tezgah/op"
	"tezgah/op/webgpu/matrix"
)

// matrixGateUp is GateUp on the matrix units in one dispatch. ok is false where it is to
// run in pieces: no tile can be shared, a product is to be cut along K, rows are no
// whole vec4s, or results lie in one place.
func (b *Backend) matrixGateUp(a op.GateUp) (ok bool, err error) {
	m, k, n := a.X.Dims[0], a.X.Dims[1], a.WGate.Dims[1]
	if n%4 != 0 || samePlace(a.Out, a.Up) || samePlace(a.Out, a.Gate) || matrixSplits(m, 2*n, k, b.dev.Limits().BindingSize) > 1 {
		return false, nil
	}
	items := [2]op.MatMul{{A: a.X, B: a.WGate, C: a.Gate}, {A: a.X, B: a.WUp, C: a.Up}}
	l := launch{form: b.formOf(items[0]), splits: 1}
	if l.tile, ok = b.gatedTile(l.form, m, 2*n, k); !ok {
		return false, nil
	}
	l.form.group, l.form.gated, l.form.gelu = 2, true, a.Act == op.GeLUTanh
	l.out = a.Out
	for i := range items {
		if err := b.takeTerm(&l, i, items[i]); err != nil {
			return true, err
		}
	}
	return true, b.launch(&l, items[:])
}

// gatedTile is the tile of a product of both widths, or where two products cannot
// share that the first that they can.
func (b *Backend) gatedTile(f productForm, m, width, k int) (t matrix.Tile, ok bool) {
	fragment := b.matrix.fragments[f.input]
	if t = b.matrixTile(shapeOf(f, m, width, k, 1)); t.Gates(fragment) {
		return t, true
	}
	all := b.matrixTiles(fragment)
	if i := slices.IndexFunc(all, func(t matrix.Tile) bool { return t.Gates(fragment) }); i >= 0 {
		return all[i], true
	}
	return t, false
}
