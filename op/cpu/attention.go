package cpu

import "tezgah/op"

// Attention works on tiles. A tile is a block of queries of one sequence with
// all G = H/KVH query heads that read the same key head: its rows are (t, g),
// which is their order in memory, so that one product with the keys serves the
// whole group. Keys come in blocks of keyBlock; within a tile their scores are
// a (rows, keys) matrix in the second-level cache.
//
// Keys (and values, in the backward pass) are first transposed to (D, T), once
// for all tiles, because a product with a row-major right operand needs no
// packing.
//
// A tile covers keys from the first that any of its queries sees to its last
// query: blocks before a document's start are skipped.
const (
	tileRows  = 96  // rows of a tile, a multiple of every micro-kernel's height
	keyBlock  = 512 // keys at a time
	keyAlign  = 16  // a tile's first key is rounded down to a cache line of floats
	scorePad  = 16  // rows of scores are not a power of two apart: cache sets
	keysPerTr = 64  // keys that one transposing piece takes
)

// attnShape is what both directions share.
type attnShape struct {
	b, t, h, kvh, d int
	g               int // query heads per key head
	tq              int // queries per tile
	blocks          int // tiles per sequence and key head
	ldt             int // distance of rows in transposed keys
	doc             []int32
	scale           float32
}

func shapeOf(q, k, doc op.Tensor, scale float32) attnShape {
	s := attnShape{b: q.Dims[0], t: q.Dims[1], h: q.Dims[2], d: q.Dims[3], kvh: k.Dims[2], scale: scale}
	s.g = s.h / s.kvh
	s.tq = max(1, tileRows/s.g)
	s.blocks = (s.t + s.tq - 1) / s.tq
	s.ldt = oddLines(s.t)
	if doc.Ok() {
		s.doc = ints(doc)
	}
	return s
}

// oddLines rounds n floats up to an odd number of cache lines, so that a column
// of rows this far apart spreads over all cache sets.
func oddLines(n int) int { return ((n+15)/16 | 1) * 16 }

// pairs is the number of (sequence, key head) pairs.
func (s *attnShape) pairs() int { return s.b * s.kvh }

// first is the first key that query t of sequence b sees.
func (s *attnShape) first(b, t int) int {
	if s.doc == nil {
		return 0
	}
	return int(s.doc[b*s.t+t])
}

// tile is one block of queries of one pair.
type tile struct {
	b, head    int // sequence and key head
	t0, nq     int // queries [t0, t0+nq)
	rows       int
	keys, last int // keys [keys, last)
}

func (s *attnShape) tile(pair, block int) tile {
	x := tile{b: pair / s.kvh, head: pair % s.kvh, t0: block * s.tq}
	x.nq = min(s.tq, s.t-x.t0)
	x.rows = x.nq * s.g
	x.keys = s.first(x.b, x.t0) &^ (keyAlign - 1)
	x.last = x.t0 + x.nq
	return x
}

// queryAt is where the group of query t of the tile begins in (B, T, H, D).
func (s *attnShape) queryAt(x *tile, t int) int {
	return ((x.b*s.t+x.t0+t)*s.h + x.head*s.g) * s.d
}

// keyAt is where key j of the tile's head begins in (B, T, KVH, D).
func (s *attnShape) keyAt(x *tile, j int) int { return ((x.b*s.t+j)*s.kvh + x.head) * s.d }

// rowAt is where row r of the tile stands in (B, H, T).
func (s *attnShape) rowAt(x *tile, r int) int {
	return (x.b*s.h+x.head*s.g+r%s.g)*s.t + x.t0 + r/s.g
}

// columns is n keys from k0, rounded up to whole tiles of the micro-kernels as
// far as rows of transposed keys and of scores reach. What the extra columns
// hold is never looked at.
func (s *attnShape) columns(k0, n int) int {
	return min((n+31)&^31, s.ldt-k0, scoreStride)
}

// seen is the part of keys [k0, k0+n) that row r sees, relative to k0.
func (s *attnShape) seen(x *tile, r, k0, n int) (from, to int) {
	t := x.t0 + r/s.g
	from = max(s.first(x.b, t)-k0, 0)
	to = min(t+1-k0, n)
	return min(from, n), max(to, 0)
}

// checkDocStart refuses a mask that points outside a row's past, which would
// send a tile's keys out of range.
func (s *attnShape) checkDocStart() error {
	for i, d := range s.doc {
		t := i % s.t
		if d < 0 || int(d) > t || t > 0 && d < s.doc[i-1] {
			return docStartError(i/s.t, t, d)
		}
	}
	return nil
}

// attnTile is one thread's scratch.
type attnTile struct {
	q, o, dout []float32 // (rows, D)
	s, ds      []float32 // (rows, keyBlock + scorePad)
	max, sum   []float32 // (rows)
}

const scoreStride = keyBlock + scorePad

type transposeTask struct {
	*attnShape
	x, xt []float32
}

// do transposes a block of keys of one pair: (keys, D) to (D, keys).
func (t *transposeTask) do(b *Backend, _, lo, _ int) {
	parts := (t.t + keysPerTr - 1) / keysPerTr
	pair, j0 := lo/parts, lo%parts*keysPerTr
	j1 := min(t.t, j0+keysPerTr)
	ld := t.kvh * t.d
	src := t.x[(pair/t.kvh*t.t*t.kvh+pair%t.kvh)*t.d+j0*ld:]
	b.k.Transpose(t.xt[pair*t.d*t.ldt+j0:], t.ldt, src, ld, j1-j0, t.d)
}

// transposed fills xt with x (B, T, KVH, D) as (B, KVH, D, ldt) and returns it.
func (b *Backend) transposed(s *attnShape, xt, x []float32) []float32 {
	xt = grow(xt, s.pairs()*s.d*s.ldt)
	t := &b.tasks.transpose
	*t = transposeTask{s, x, xt}
	b.each(s.pairs()*((s.t+keysPerTr-1)/keysPerTr), 1, t)
	*t = transposeTask{}
	return xt
}
