package cpu_test

import (
	"bytes"
	"hash/fnv"
	"math"
	"strings"
	"testing"
	"unsafe"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// rig makes tensors on one CPU backend; tensor n is stream n of seed 5.
type rig struct {
	t   testing.TB
	b   *cpu.Backend
	r   *op.Runner
	n   uint64
	all []op.Tensor
}

func newRig(t testing.TB, o cpu.Options) *rig {
	t.Helper()
	b, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &rig{t: t, b: b, r: op.NewRunner(b)}
}

func (x *rig) alloc(typ tensor.DType, dims ...int) op.Tensor {
	v := op.Of(nil, 0, dims...)
	buf, err := x.b.Alloc("x", typ, v.Len())
	if err != nil {
		x.t.Fatal(err)
	}
	v.Buf = buf
	x.all = append(x.all, v)
	return v
}

func (x *rig) f(dims ...int) op.Tensor {
	v := x.alloc(tensor.F32, dims...)
	x.n++
	data := make([]float32, v.Len())
	const block = 1 << 14 // then the same again: drawing is slow
	tensor.NewRNG(5, x.n).Normal(data[:min(block, len(data))], 0, 1)
	for i := block; i < len(data); i += block {
		copy(data[i:], data[:block])
	}
	op.WriteSlice(x.r, v, data)
	return v
}

func (x *rig) ints(limit int, dims ...int) op.Tensor {
	v := x.alloc(tensor.I32, dims...)
	x.n++
	g := tensor.NewRNG(5, x.n)
	data := make([]int32, v.Len())
	for i := range data {
		data[i] = int32(g.Intn(uint64(i), limit))
	}
	op.WriteSlice(x.r, v, data)
	return v
}

// workload returns one call of every op, large enough to be cut into several
// pieces. Inputs stay finite when the calls are made again and again.
func (x *rig) workload() map[string]func() {
	r := x.r
	const b, t, h, kvh, d = 2, 150, 4, 2, 48
	n, c, ff, v := b*t, 200, 333, 517
	q, k, val, out, lse := x.f(b, t, h, d), x.f(b, t, kvh, d), x.f(b, t, kvh, d), x.f(b, t, h, d), x.f(b, h, t)
	doc := x.alloc(tensor.I32, b, t)
	starts := make([]int32, b*t)
	for i := range starts {
		if i%t >= 70 {
			starts[i] = 70
		}
	}
	op.WriteSlice(r, doc, starts)
	att := op.Attention{Q: q, K: k, V: val, Out: out, LSE: lse, DocStart: doc, Scale: 0.1}
	back := op.AttentionBackward{Q: q, K: k, V: val, Out: out, LSE: lse, DOut: x.f(b, t, h, d), DocStart: doc,
		Delta: x.f(b, h, t), DQ: x.f(b, t, h, d), DK: x.f(b, t, kvh, d), DV: x.f(b, t, kvh, d), Scale: 0.1}
	kc, vc := x.f(b, 200, kvh, d), x.f(b, 200, kvh, d)
	rope := op.RoPE{X: x.f(b, t, h, d), Table: x.f(t, d)}
	op.WriteSlice(r, rope.Table, ref.RoPETable(t, d, 100))
	a, w, y := x.f(n, c), x.f(c, ff), x.f(n, ff)
	w16 := x.alloc(tensor.F16, c, ff)
	r.Cast(op.Cast{Dst: w16, Src: w})
	dw, da := x.f(c, ff), x.f(n, c)
	norm := op.RMSNorm{X: a, W: x.f(c), Y: x.f(n, c), RMSInv: x.f(n), Eps: 1e-5}
	normBack := op.RMSNormBackward{X: a, W: norm.W, DY: x.f(n, c), RMSInv: norm.RMSInv, DX: x.f(n, c), DW: x.f(c)}
	up, g, du, dg := x.f(n, ff), x.f(n, ff), x.f(n, ff), x.f(n, ff)
	tokens, emb, targets := x.ints(v, n), x.f(v, c), x.ints(v, n)
	first, logits, loss := x.f(n, v), x.f(n, v), x.f(n)
	m := 70001
	mw, mg, mm, mv, stats := x.f(m), x.f(m), x.f(m), x.f(m), x.f(4)
	op.WriteSlice(r, stats, []float32{1, 1, 0, 0})
	r.Zero(mv)
	m8, v8 := x.alloc(tensor.I8, m), x.alloc(tensor.I8, m)
	ms, vs := x.alloc(tensor.F32, (m+255)/256), x.alloc(tensor.F32, (m+255)/256)
	hyper := op.AdamHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8, Beta1Pow: 0.9, Beta2Pow: 0.95}
	partials, half, wide := x.f(op.NormPartials(m), 2), x.alloc(tensor.F16, m), x.f(m)
	sum := x.f(1)
	return map[string]func(){
		"attention":          func() { r.Attention(att) },
		"attention backward": func() { r.Attention(att); r.AttentionBackward(back) },
		"kv append":          func() { r.KVAppend(op.KVAppend{K: k, V: val, KCache: kc, VCache: vc, Pos: 130}) },
		"decode": func() {
			r.AttentionDecode(op.AttentionDecode{Q: q.RowRange(0, b*h).Reshape(b, h, d), KCache: kc, VCache: vc,
				Out: out.RowRange(0, b*h).Reshape(b, h, d), Len: 190, Scale: 0.1})
		},
		"rope":             func() { r.RoPE(rope); rope.Inverse = !rope.Inverse },
		"matmul":           func() { r.MatMul(op.MatMul{A: a, B: w, C: y}) },
		"matmul residual":  func() { r.MatMul(op.MatMul{A: a, B: w, C: y, Residual: g}) },
		"matmul f16":       func() { r.MatMul(op.MatMul{A: a, B: w16, C: y}) },
		"one row f16":      func() { r.MatMul(op.MatMul{A: a.RowRange(0, 1), B: w16, C: y.RowRange(0, 1)}) },
		"matmul_t":         func() { r.MatMul(op.MatMul{A: y, B: w, C: da, TransB: true}) },
		"matmul_at":        func() { r.MatMul(op.MatMul{A: a, B: y, C: dw, TransA: true}) },
		"one row":          func() { r.MatMul(op.MatMul{A: a.RowRange(0, 1), B: w, C: y.RowRange(0, 1)}) },
		"rmsnorm":          func() { r.RMSNorm(norm) },
		"rmsnorm backward": func() { r.RMSNorm(norm); r.RMSNormBackward(normBack) },
		"rmsnorm frozen": func() {
			frozen := normBack
			frozen.DW = op.Tensor{}
			r.RMSNorm(norm)
			r.RMSNormBackward(frozen)
		},
		"glu":            func() { r.GLU(op.GLU{Gate: g, Up: up, Out: y}) },
		"glu backward":   func() { r.GLUBackward(op.GLUBackward{Gate: g, Up: up, DOut: y, DGate: dg, DUp: du}) },
		"embedding":      func() { r.Embedding(op.Embedding{Tokens: tokens, W: emb, Out: a}) },
		"embedding back": func() { r.EmbeddingBackward(op.EmbeddingBackward{Tokens: tokens, DOut: a, DW: emb}) },
		"loss": func() {
			r.Copy(logits, first)
			r.CrossEntropy(op.CrossEntropy{Logits: logits, Targets: targets, Loss: loss, ZLoss: 1e-3, LabelSmoothing: 0.1,
				GradScale: 1, Ignore: -1, Grad: true})
			r.Sum(op.Sum{X: logits.Flat(), Out: sum, Scale: 0.1})
		},
		"grad norm": func() {
			r.GradNormSq(op.GradNormSq{G: wide, Partials: partials})
			r.FinalizeGradStats(op.FinalizeGradStats{Partials: partials, Stats: stats, MaxNorm: 1})
		},
		"adamw": func() {
			r.Copy(mg, wide)
			r.AdamW(op.AdamW{W: mw, G: mg, M: mm, V: mv, W16: half, Stats: stats, AdamHyper: hyper})
		},
		"adamw8": func() {
			r.Copy(mg, wide)
			r.AdamW8(op.AdamW8{W: mw, G: mg, M: m8, V: v8, MScale: ms, VScale: vs, W16: half, Stats: stats, AdamHyper: hyper})
		},
		"cast":  func() { r.Cast(op.Cast{Dst: half, Src: wide}); r.Cast(op.Cast{Dst: wide, Src: half}) },
		"add":   func() { r.Add(op.Add{Dst: mw, Src: wide}) },
		"scale": func() { r.Scale(op.Scale{Dst: mw, Src: wide, Factor: 0.5}) },
	}
}

// order fixes the order in which the calls of a workload are made.
func order(w map[string]func()) []string {
	names := make([]string, 0, len(w))
	for name := range w {
		names = append(names, name)
	}
	for i := range names { // few enough for the plainest sort
		for j := range i {
			if names[i] < names[j] {
				names[i], names[j] = names[j], names[i]
			}
		}
	}
	return names
}

// TestThreads wants the same bits in every tensor for any number of threads, at
// every level.
func TestThreads(t *testing.T) {
	for _, level := range cpu.Levels() {
		var want uint64
		for _, threads := range []int{1, 2, 3, 8} {
			x := newRig(t, cpu.Options{Threads: threads, Level: level})
			w := x.workload()
			for range 2 {
				for _, name := range order(w) {
					w[name]()
				}
			}
			if err := x.r.Sync(); err != nil {
				t.Fatal(err)
			}
			sum := fnv.New64a()
			for _, v := range x.all {
				p := make([]byte, v.Len()*v.Type().Size())
				if err := x.r.Read(p, v); err != nil {
					t.Fatal(err)
				}
				sum.Write(p)
			}
			if threads == 1 {
				want = sum.Sum64()
			} else if got := sum.Sum64(); got != want {
				t.Errorf("%s: %d threads give other bits (%#x) than one (%#x)", level, threads, got, want)
			}
		}
	}
}

// TestNoAllocation makes every call until scratch has grown and then wants no
// allocation at all. Each thread has scratch of its own, and on a busy machine one may
// come late to its first piece of an operation.
func TestNoAllocation(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 3})
	w := x.workload()
	for range 2 {
		for _, name := range order(w) {
			w[name]()
		}
	}
	for _, name := range order(w) {
		n := 1.0
		for tries := 0; n != 0 && tries < 10; tries++ {
			n = testing.AllocsPerRun(5, w[name])
		}
		if n != 0 {
			t.Errorf("%s allocates %v times a call", name, n)
		}
	}
	if err := x.r.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestAnyOffset holds a product of tensors at odd places in a buffer against
// the same at its beginning.
func TestAnyOffset(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 1})
	const m, n, k = 37, 65, 50
	a, b, want := x.f(m, k), x.f(k, n), x.f(m, n)
	x.r.MatMul(op.MatMul{A: a, B: b, C: want})
	big := x.f(20000)
	at := func(off int, src op.Tensor) op.Tensor {
		v := op.Of(big.Buf, off, src.Dims[0], src.Dims[1])
		x.r.Copy(v, src)
		return v
	}
	c := at(3, want)
	x.r.MatMul(op.MatMul{A: at(4001, a), B: at(7003, b), C: c})
	p, q := make([]byte, m*n*4), make([]byte, m*n*4)
	x.r.Read(p, c)
	if err := x.r.Read(q, want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, q) {
		t.Error("a product at odd offsets has other bits")
	}
}

func TestImpossibleAllocations(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 1})
	for _, c := range []struct {
		typ  tensor.DType
		n    int
		want string
	}{{tensor.F32, -1, "-1 elements"}, {tensor.F32, math.MaxInt, "elements, want 0 to"}, {tensor.F32, math.MaxInt / 32, "mega_w"},
		{tensor.I8, math.MaxInt / 9, "mega_w"}, {tensor.F64, 5, "type F64"}} {
		b, err := x.b.Alloc("mega_w", c.typ, c.n)
		if err == nil || b != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mega_w") {
			t.Errorf("%d elements of %v: %v, want an error with mega_w and %q", c.n, c.typ, err, c.want)
		}
	}
	if now, peak := x.b.MemoryBytes(); now != 0 || peak != 0 {
		t.Errorf("%d and %d bytes after refusals", now, peak)
	}
}

func TestMemoryAccounting(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 1})
	a, b := x.alloc(tensor.F32, 1000), x.alloc(tensor.F16, 500)
	x.b.Free(a.Buf)
	c := x.alloc(tensor.I8, 300)
	if now, peak := x.b.MemoryBytes(); now != 1300 || peak != 5000 {
		t.Errorf("now %d, peak %d, want 1300 and 5000", now, peak)
	}
	x.b.Free(b.Buf)
	x.b.Free(b.Buf)
	x.b.Free(c.Buf)
	if now, _ := x.b.MemoryBytes(); now != 0 {
		t.Errorf("%d bytes after all was freed", now)
	}
}

// TestStagger wants large buffers of equal size not to begin at the same place
// within a page.
func TestStagger(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 1})
	seen := map[uintptr]bool{}
	for range 8 {
		v := x.alloc(tensor.F32, 1<<19)
		at := uintptr(unsafe.Pointer(cpu.Address(v)))
		if at%64 != 0 {
			t.Errorf("buffer at %#x is not on a cache line", at)
		}
		seen[at%4096] = true
	}
	if len(seen) != 8 {
		t.Errorf("8 buffers begin at %d different places of a page", len(seen))
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []cpu.Options{{Threads: -1}, {Threads: 1 << 20}, {Level: "sse9"}} {
		if b, err := cpu.New(o); err == nil {
			b.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestBadIDs(t *testing.T) {
	x := newRig(t, cpu.Options{Threads: 1})
	ids := x.alloc(tensor.I32, 3)
	for _, c := range []struct {
		ids  []int32
		want string
	}{{[]int32{0, 6, 7}, "row 2 is 7, want 0 to 6"}, {[]int32{-1, 0, 0}, "row 0 is -1"}} {
		op.WriteSlice(x.r, ids, c.ids)
		for name, call := range map[string]func(){
			"embedding":          func() { x.r.Embedding(op.Embedding{Tokens: ids, W: x.f(7, 4), Out: x.f(3, 4)}) },
			"embedding backward": func() { x.r.EmbeddingBackward(op.EmbeddingBackward{Tokens: ids, DW: x.f(7, 4), DOut: x.f(3, 4)}) },
			"loss":               func() { x.r.CrossEntropy(op.CrossEntropy{Logits: x.f(3, 7), Targets: ids, Loss: x.f(3), Ignore: -100}) },
		} {
			call()
			if err := x.r.Reset(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of %v: error %v, want %q", name, c.ids, err, c.want)
			}
		}
		op.WriteSlice(x.r, ids, c.ids)
		q, lse := x.f(1, 3, 1, 4), x.f(1, 1, 3)
		x.r.Attention(op.Attention{Q: q, K: q, V: q, Out: x.f(1, 3, 1, 4), LSE: lse, DocStart: ids.Reshape(1, 3), Scale: 1})
		if err := x.r.Reset(); err == nil || !strings.Contains(err.Error(), "doc_start") {
			t.Errorf("doc starts %v: error %v", c.ids, err)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if b.Close() != nil || b.Close() != nil {
		t.Error("Close fails")
	}
}
