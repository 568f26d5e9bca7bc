package webgpu

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// attnSize is the shape of an attention; docs is the number of documents that a
// sequence is cut into, 0 for no mask.
type attnSize struct {
	b, t, h, kvh, d, docs int
	std                   float64 // of queries and keys
}

func (z attnSize) String() string {
	return fmt.Sprintf("B%d T%d H%d KVH%d D%d docs %d std %g", z.b, z.t, z.h, z.kvh, z.d, z.docs, z.std)
}

// attnData is one attention, forward and backward, in float64.
type attnData struct {
	attnSize
	q, k, v, dout             []float32
	starts                    []int32
	out, lse, dq, dk, dv      []float64 // from op/ref
	outB, lseB, dqB, dkB, dvB []float64 // the errors that rounding may cause
	out32, lse32              []float32 // rounded, for the backward pass
	unit, least               float64   // relative and absolute error of rounding to 16 bits
}

func newAttnData(z attnSize, input tensor.DType) *attnData {
	a := &attnData{attnSize: z, starts: make([]int32, z.b*z.t)}
	seed := uint64(z.t*1000 + z.d + z.h)
	draw := func(stream uint64, std float64, n int) []float32 {
		v := make([]float32, n)
		tensor.NewRNG(seed, stream).Normal(v, 0, std)
		return v
	}
	nq, nk := z.b*z.t*z.h*z.d, z.b*z.t*z.kvh*z.d
	a.q, a.k, a.v, a.dout = draw(1, z.std, nq), draw(2, z.std, nk), draw(3, 1, nk), draw(4, 1, nq)
	g := tensor.NewRNG(seed, 5)
	for b := range z.b {
		at := int32(0)
		for t := 1; t < z.t; t++ {
			if g.Intn(uint64(b*z.t+t), z.t) < z.docs-1 {
				at = int32(t)
			}
			a.starts[b*z.t+t] = at
		}
	}
	// Half a unit in the last place of 11 or 8 bits, and of the smallest number.
	a.unit, a.least = 0x1p-11, 0x1p-25
	if input == tensor.BF16 {
		a.unit, a.least = 0x1p-8, 0x1p-126 // smaller numbers may count as 0
	}
	a.reference()
	a.bounds()
	return a
}

// attnRun runs both directions on a backend and returns out, lse, dq, dk, dv. The
// backward pass takes out and lse as they are given, or from the forward pass.
func (a *attnData) run(r *op.Runner, out32, lse32 []float32) (res [5]op.Tensor) {
	z := a.attnSize
	alloc := func(t tensor.DType, dims ...int) op.Tensor {
		x := op.Of(nil, 0, dims...)
		buf, err := r.Backend().Alloc("attention", t, x.Len())
		if err != nil {
			panic(err)
		}
		x.Buf = buf
		return x
	}
	put := func(v []float32, dims ...int) op.Tensor {
		x := alloc(tensor.F32, dims...)
		if v == nil {
			v = slices.Repeat([]float32{float32(math.NaN())}, x.Len())
		}
		op.WriteSlice(r, x, v)
		return x
	}
	q, k, v := put(a.q, z.b, z.t, z.h, z.d), put(a.k, z.b, z.t, z.kvh, z.d), put(a.v, z.b, z.t, z.kvh, z.d)
	dout, out, lse := put(a.dout, z.b, z.t, z.h, z.d), put(nil, z.b, z.t, z.h, z.d), put(nil, z.b, z.h, z.t)
	dq, dk, dv, delta := put(nil, z.b, z.t, z.h, z.d), put(nil, z.b, z.t, z.kvh, z.d), put(nil, z.b, z.t, z.kvh, z.d), put(nil, z.b, z.h, z.t)
	var doc op.Tensor
	if z.docs > 0 {
		doc = alloc(tensor.I32, z.b, z.t)
		op.WriteSlice(r, doc, a.starts)
	}
	scale := float32(1 / math.Sqrt(float64(z.d)))
	r.Attention(op.Attention{Q: q, K: k, V: v, Out: out, LSE: lse, DocStart: doc, Scale: scale})
	back := op.AttentionBackward{Q: q, K: k, V: v, Out: out, LSE: lse, DocStart: doc, DOut: dout, Delta: delta, DQ: dq, DK: dk, DV: dv, Scale: scale}
	if out32 != nil {
		back.Out, back.LSE = put(out32, z.b, z.t, z.h, z.d), put(lse32, z.b, z.h, z.t)
	}
	r.AttentionBackward(back)
	return [5]op.Tensor{out, lse, dq, dk, dv}
}

func (a *attnData) reference() {
	mem := ref.New[float64]()
	res := a.run(op.NewRunner(mem), nil, nil)
	for i, to := range []*[]float64{&a.out, &a.lse, &a.dq, &a.dk, &a.dv} {
		*to = mem.Data(res[i].Buf)
	}
	for _, x := range a.out {
		a.out32 = append(a.out32, float32(x))
	}
	for _, x := range a.lse {
		a.lse32 = append(a.lse32, float32(x))
	}
}

// bounds computes the errors that rounding may cause. A score is a sum of products
// of two rounded numbers; a weight p is wrong by its score's error, by that of the
// other scores, which it is divided by, and by its own rounding; and so on. Float32
// arithmetic adds little, which noise allows for.
func (a *attnData) bounds() {
	const noise = 0x1p-18
	z, u, least := a.attnSize, a.unit, a.least
	a.outB, a.lseB = make([]float64, len(a.q)), make([]float64, len(a.lse))
	a.dqB, a.dkB, a.dvB = make([]float64, len(a.q)), make([]float64, len(a.k)), make([]float64, len(a.k))
	scale := 1 / math.Sqrt(float64(z.d))
	dots := func(x, y []float32) (s, size, sum float64) {
		for i := range z.d {
			p := float64(x[i]) * float64(y[i])
			s, size, sum = s+p, size+math.Abs(p), sum+math.Abs(float64(x[i]))+math.Abs(float64(y[i]))
		}
		return
	}
	for b := range z.b {
		for h := range z.h {
			for i := range z.t {
				qa, row := ((b*z.t+i)*z.h+h)*z.d, (b*z.h+h)*z.t+i
				first := int(a.starts[b*z.t+i])
				p, rel, ka := make([]float64, i+1), make([]float64, i+1), make([]int, i+1)
				var errMean, delta, errDelta float64
				for d := range z.d {
					p := float64(a.dout[qa+d]) * a.out[qa+d]
					delta += p
					errDelta += (2*u+u*u+noise)*math.Abs(p) + 2*least*(math.Abs(float64(a.dout[qa+d]))+math.Abs(a.out[qa+d]))
				}
				for j := first; j <= i; j++ {
					ka[j] = ((b*z.t+j)*z.kvh + h/(z.h/z.kvh)) * z.d
					s, size, sum := dots(a.q[qa:], a.k[ka[j]:])
					p[j] = math.Exp(scale*s - a.lse[row])
					e := scale*((2*u+u*u)*size+2*least*sum+noise*size) + noise*(1+math.Abs(a.lse[row]))
					rel[j] = math.Expm1(e)
					errMean += p[j] * rel[j]
				}
				a.lseB[row] = errMean + noise*(1+math.Abs(a.lse[row]))
				for j := first; j <= i; j++ {
					dp, sizeDP, sumDP := dots(a.dout[qa:], a.v[ka[j]:])
					ds := p[j] * (dp - delta)
					errDP := (2*u+u*u+noise)*sizeDP + 2*least*sumDP + errDelta + noise
					errDS := p[j]*errDP*(1+rel[j]) + rel[j]*math.Abs(ds)
					errDS += u*(math.Abs(ds)+errDS) + least
					errP := p[j]*(rel[j]+u*(1+rel[j])) + least
					for d := range z.d {
						v, do := math.Abs(float64(a.v[ka[j]+d])), math.Abs(float64(a.dout[qa+d]))
						k, q := math.Abs(float64(a.k[ka[j]+d])), math.Abs(float64(a.q[qa+d]))
						a.outB[qa+d] += (errP+p[j]*(errMean+noise))*v*(1+u) + p[j]*(u*v+least)
						a.dvB[ka[j]+d] += errP*do*(1+u) + p[j]*((u+noise)*do+least)
						a.dqB[qa+d] += scale * (errDS*k*(1+u) + math.Abs(ds)*((u+noise)*k+least))
						a.dkB[ka[j]+d] += scale * (errDS*q*(1+u) + math.Abs(ds)*((u+noise)*q+8*least))
					}
				}
			}
		}
	}
}

// check compares what a backend computed; worst is the largest share of a bound.
func (a *attnData) check(r *op.Runner, res [5]op.Tensor) (worst [5]float64, err error) {
	for x, name := range []string{"out", "lse", "dq", "dk", "dv"} {
		want := [][]float64{a.out, a.lse, a.dq, a.dk, a.dv}[x]
		bound := [][]float64{a.outB, a.lseB, a.dqB, a.dkB, a.dvB}[x]
		got := make([]float32, len(want))
		if err := op.ReadSlice(r, got, res[x]); err != nil {
			return worst, err
		}
		for i, w := range want {
			share := math.Abs(float64(got[i])-w) / bound[i]
			if !(share <= 1) && err == nil {
				err = fmt.Errorf("%s[%d] is %v, want %v ± %v", name, i, got[i], w, bound[i])
			}
			worst[x] = max(worst[x], share)
		}
	}
	return worst, err
}

// attnSizes are the shapes to compare; those for a software GPU, which compiles a
// kernel for seconds, need few kernels.
func attnSizes(real bool) []attnSize {
	sizes := []attnSize{{1, 1, 1, 1, 16, 0, 1}, {1, 7, 2, 1, 16, 0, 1}, {2, 65, 4, 2, 16, 0, 4}, {2, 33, 4, 2, 16, 3, 1}, {3, 9, 2, 2, 16, 9, 1}}
	if real {
		sizes = append(sizes, []attnSize{{2, 33, 4, 2, 64, 3, 1}, {1, 65, 4, 1, 64, 0, 1}, {2, 70, 2, 2, 32, 5, 1}, {1, 40, 2, 1, 128, 0, 1},
			{1, 30, 3, 3, 48, 2, 1}, {1, 37, 2, 1, 80, 0, 2}, {1, 50, 2, 1, 32, 0, 1e-8}, {1, 300, 2, 1, 64, 2, 4}, {1, 90, 1, 1, 96, 0, 1}}...)
	}
	return sizes
}

// TestMatrixAttention compares attention on matrix units with op/ref, for each type
// that they take and several tiles, and looks for other bits the second time.
func TestMatrixAttention(t *testing.T) {
	b := matrixBackend(t)
	for _, input := range b.Rounding() {
		for _, z := range attnSizes(b.dev.Info().Kind != gpu.Software || os.Getenv("TEZGAH_TEST_LARGE") == "1") {
			t.Run(fmt.Sprintf("%v %v", input, z), func(t *testing.T) {
				if err := b.RoundProducts(input); err != nil {
					t.Fatal(err)
				}
				defer b.RoundProducts(tensor.F32)
				if !b.matrixAttends(z.d, z.docs > 0, false) {
					t.Fatalf("no tile for heads of %d", z.d)
				}
				newAttnData(z, input).checkTiles(t, b)
			})
		}
	}
}

// checkTiles runs an attention with the tile that the launcher chooses and, for
// small heads, with others, which must give the same bits.
func (a *attnData) checkTiles(t *testing.T, b *Backend) {
	f := b.matrix.fragments[b.matrix.rounding]
	strip := b.attentionTiles(partForward, a.d)[0].Strip
	tiles := []*matrix.AttentionTile{nil, nil}
	if a.d == 16 {
		own := 2
		if b.dev.Info().Kind == gpu.Software {
			own = 1 // compiles in half the time
		}
		tiles = append(tiles, &matrix.AttentionTile{Subgroups: 3, Own: own, Other: 2 * strip, Strip: strip, Early: true},
			&matrix.AttentionTile{Subgroups: 1, Own: 1, Other: strip, Strip: strip, Convert: true})
	}
	var want [5][]uint32
	for _, tile := range tiles {
		if tile != nil && (tile.Convert && !b.dev.Info().Matrix2 || !tile.Fits(f, a.d, b.dev.Limits().Invocations, attentionMemory)) {
			continue
		}
		for part := range attentionParts {
			b.matrix.attention[part] = tile
		}
		r := op.NewRunner(b)
		res := a.run(r, a.out32, a.lse32)
		worst, err := a.check(r, res)
		if err != nil {
			t.Errorf("tile %v: %v", tile, err)
		}
		t.Logf("tile %v: shares of the bounds %.2f", tile, worst)
		for x := range res {
			got := bitsOf(t, r, res[x])
			if want[x] != nil && !slices.Equal(got, want[x]) {
				t.Errorf("tile %v: result %d has other bits than the first time", tile, x)
			}
			want[x] = got
			b.Free(res[x].Buf)
		}
	}
	b.matrix.attention = [attentionParts]*matrix.AttentionTile{}
}

// TestMeasureAttentionTiles: a tile is chosen by running a call that gives the same
// result each time, and not where it would read what it wrote.
func TestMeasureAttentionTiles(t *testing.T) {
	b := matrixBackend(t)
	if err := b.RoundProducts(b.Rounding()[0]); err != nil {
		t.Fatal(err)
	}
	const steps, d = 20, 16
	alloc := func(dims ...int) op.Tensor {
		x := op.Of(nil, 0, dims...)
		buf, err := b.Alloc("x", tensor.F32, x.Len())
		if err != nil {
			t.Fatal(err)
		}
		x.Buf = buf
		return x
	}
	q, k, v, out, lse := alloc(1, steps, 1, d), alloc(1, steps, 1, d), alloc(1, steps, 1, d), alloc(1, steps, 1, d), alloc(1, 1, steps)
	call := func(out op.Tensor) attentionCall {
		return attentionCall{part: partForward, q: q, k: k, scale: 1, heads: 1, pairWork: 4, bind: func(c *call) {
			for _, x := range []op.Tensor{q, k, v} {
				c.in(x)
			}
			c.inOr(op.Tensor{})
			c.out(out)
			c.out(lse)
		}}
	}
	fit := b.attentionTiles(partForward, d)
	if best, ok := b.measureAttentionTiles(call(out), fit); !ok || !slices.Contains(fit, best) {
		t.Errorf("measured %v, %v, want one of %v", best, ok, fit)
	}
	if best, ok := b.measureAttentionTiles(call(q), fit); ok {
		t.Errorf("measured %v with the result in place of the queries", best)
	}
}

func bitsOf(t *testing.T, r *op.Runner, x op.Tensor) []uint32 {
	v := make([]uint32, x.Len())
	if err := r.Read(gpu.Bytes(v), x); err != nil {
		t.Fatal(err)
	}
	return v
}
