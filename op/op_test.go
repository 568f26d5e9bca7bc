package op_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// bench gives short names to tensors on a reference backend.
type bench struct {
	b *ref.Backend[float32]
	r *op.Runner
}

func newBench() *bench {
	b := ref.New[float32]()
	return &bench{b, op.NewRunner(b)}
}

func (x *bench) tensor(label string, typ tensor.DType, dims ...int) op.Tensor {
	t := op.Of(nil, 0, dims...)
	t.Buf, _ = x.b.Alloc(label, typ, t.Len())
	return t
}

func (x *bench) f(label string, dims ...int) op.Tensor { return x.tensor(label, tensor.F32, dims...) }
func (x *bench) i(label string, dims ...int) op.Tensor { return x.tensor(label, tensor.I32, dims...) }

// calls lists one right call of every op. Sizes differ so that no two
// dimensions can be confused: B 2, T 3, H 4, KVH 2, D 8, N 5, C 6, F 9, V 7.
func (x *bench) calls() []any {
	n := 300 // elements of the optimizer's tensors: two blocks
	q, kv := func(l string) op.Tensor { return x.f(l, 2, 3, 4, 8) }, func(l string) op.Tensor { return x.f(l, 2, 3, 2, 8) }
	cache := func(l string) op.Tensor { return x.f(l, 2, 10, 2, 8) }
	nf := func(l string) op.Tensor { return x.f(l, 5, 9) }
	flat := func(l string) op.Tensor { return x.f(l, n) }
	return []any{
		op.Add{Dst: flat("dst"), Src: flat("src")},
		op.Scale{Dst: flat("dst"), Src: flat("src"), Factor: 2},
		op.Cast{Dst: x.tensor("dst", tensor.F16, n), Src: flat("src")},
		op.Sum{X: flat("x"), Out: x.f("out", 1)},
		op.Embedding{Tokens: x.i("tokens", 5), W: x.f("w", 7, 6), Out: x.f("out", 5, 6)},
		op.EmbeddingBackward{Tokens: x.i("tokens", 5), DOut: x.f("dout", 5, 6), DW: x.f("dw", 7, 6)},
		op.RMSNorm{X: x.f("x", 5, 6), W: x.f("w", 6), Y: x.f("y", 5, 6), RMSInv: x.f("rms_inv", 5)},
		op.RMSNormBackward{X: x.f("x", 5, 6), W: x.f("w", 6), DY: x.f("dy", 5, 6), RMSInv: x.f("rms_inv", 5), DX: x.f("dx", 5, 6), DXCopy: x.f("dx_copy", 5, 6), DW: x.f("dw", 6)},
		op.MatMul{A: x.f("a", 5, 6), B: x.f("b", 6, 9), C: x.f("c", 5, 9), Residual: x.f("residual", 5, 9)},
		op.MatMul{A: x.f("a", 5, 6), B: x.f("b", 9, 6), C: x.f("c", 5, 9), TransB: true},
		op.MatMul{A: x.f("a", 6, 5), B: x.f("b", 6, 9), C: x.f("c", 5, 9), TransA: true, Acc: true},
		op.RoPE{X: q("x"), Out: q("out"), X2: kv("x2"), Out2: kv("out2"), Table: x.f("table", 20, 8)},
		op.Attention{Q: q("q"), K: kv("k"), V: kv("v"), Out: q("out"), LSE: x.f("lse", 2, 4, 3), DocStart: x.i("doc_start", 2, 3)},
		op.AttentionBackward{Q: q("q"), K: kv("k"), V: kv("v"), Out: q("out"), LSE: x.f("lse", 2, 4, 3), DOut: q("dout"),
			DocStart: x.i("doc_start", 2, 3), Delta: x.f("delta", 2, 4, 3), DQ: q("dq"), DK: kv("dk"), DV: kv("dv")},
		op.KVAppend{K: kv("k"), V: kv("v"), KCache: cache("k_cache"), VCache: cache("v_cache"), Pos: 9},
		op.AttentionDecode{Q: x.f("q", 2, 4, 8), KCache: cache("k_cache"), VCache: cache("v_cache"), Out: x.f("out", 2, 4, 8), Len: 4},
		op.GLU{Gate: nf("gate"), Up: nf("up"), Out: nf("out")},
		op.GLUBackward{Gate: nf("gate"), Up: nf("up"), DOut: nf("dout"), DGate: nf("dgate"), DUp: nf("dup")},
		op.CrossEntropy{Logits: x.f("logits", 5, 7), DLogits: x.f("dlogits", 5, 7), Targets: x.i("targets", 5), Loss: x.f("loss", 5), Grad: true},
		op.GradNormSq{G: flat("g"), Partials: x.f("partials", 1, 2)},
		op.FinalizeGradStats{Partials: x.f("partials", 3, 2), Stats: x.f("stats", 4)},
		op.AdamW{W: flat("w"), G: flat("g"), M: flat("m"), V: flat("v"), W16: x.tensor("w16", tensor.F16, n), Stats: x.f("stats", 4)},
		op.AdamW{W: flat("w"), G: flat("g"), M: flat("m"), V: flat("v"), W16: x.tensor("w16", tensor.BF16, n), Stats: x.f("stats", 4)},
		op.AdamW8{W: flat("w"), G: flat("g"), M: x.tensor("m", tensor.I8, n), V: x.tensor("v", tensor.I8, n),
			MScale: x.f("m_scale", 2), VScale: x.f("v_scale", 2), W16: x.tensor("w16", tensor.BF16, n), Stats: x.f("stats", 4)},
		op.GateUp{X: x.f("x", 5, 6), WGate: x.f("w_gate", 6, 9), WUp: x.f("w_up", 6, 9), Gate: nf("gate"), Up: nf("up"), Out: nf("out")},
	}
}

// run sends a call to the Runner's method of the same name.
func run(r *op.Runner, call any) error {
	v := reflect.ValueOf(call)
	reflect.ValueOf(r).MethodByName(v.Type().Name()).Call([]reflect.Value{v})
	return r.Reset()
}

func TestRightCallsPass(t *testing.T) {
	x := newBench()
	for _, call := range x.calls() {
		if err := run(x.r, call); err != nil {
			t.Errorf("%T: %v", call, err)
		}
	}
}

// TestWrongShapes spoils every tensor of every op in turn, in each of its
// dimensions, its type, its rank and its place in the buffer, and wants an error
// that names the op and the argument.
func TestWrongShapes(t *testing.T) {
	x := newBench()
	for _, call := range x.calls() {
		v := reflect.ValueOf(call)
		for f := range v.NumField() {
			good, ok := v.Field(f).Interface().(op.Tensor)
			if !ok || !good.Ok() {
				continue
			}
			arg := good.Buf.Label()
			for what, bad := range x.spoilt(good) {
				switch call.(type) {
				case op.Add, op.Scale, op.Cast: // whose shapes are free, and the label tells dst's type
					if what == "rank" || what == "type" {
						continue
					}
				}
				c := reflect.New(v.Type()).Elem()
				c.Set(v)
				c.Field(f).Set(reflect.ValueOf(bad))
				label := c.Interface().(interface{ Label() string }).Label() // which may tell a type
				err := run(x.r, c.Interface())
				if err == nil {
					t.Errorf("%T with %s of %s: no error", call, what, arg)
					continue
				}
				if !strings.HasPrefix(err.Error(), label+": ") {
					t.Errorf("%T with %s of %s: %q does not name the op %s", call, what, arg, err, label)
				}
			}
		}
	}
}

// spoilt returns wrong versions of a tensor. A matrix whose dimension others are
// derived from is caught through another argument, so only the op's name is
// certain to be in the error.
func (x *bench) spoilt(t op.Tensor) map[string]op.Tensor {
	wrong := map[string]op.Tensor{"rank": op.Of(t.Buf, 0, t.Len(), 1, 1, 1)}
	if t.Rank == 4 {
		wrong["rank"] = op.Of(t.Buf, 0, t.Len())
	}
	if t.Len() > 1 {
		wrong["end"] = op.Tensor{Buf: t.Buf, Off: 1, Rank: t.Rank, Dims: t.Dims}
	}
	wrong["begin"] = op.Tensor{Buf: t.Buf, Off: -1, Rank: t.Rank, Dims: t.Dims}
	typ := tensor.I32
	if t.Type() == typ {
		typ = tensor.F32
	}
	other := x.tensor(t.Buf.Label(), typ, t.Len())
	wrong["type"] = op.Tensor{Buf: other.Buf, Rank: t.Rank, Dims: t.Dims}
	return wrong
}

// TestDimensionNames changes one dimension of one argument and wants the error
// to tell the argument, what it is, and what was wanted.
func TestDimensionNames(t *testing.T) {
	x := newBench()
	f := x.f
	for _, c := range []struct {
		call any
		want []string
	}{
		{op.MatMul{A: f("a", 128, 64), B: f("b", 96, 64), C: f("c", 128, 64)}, []string{"b is", "(96, 64)", "K 64", "N 64"}},
		{op.MatMul{A: f("a", 128, 64), B: f("b", 64, 8), C: f("c", 128, 9)}, []string{"c is", "(128, 9)", "M 128", "N 8"}},
		{op.MatMul{A: f("a", 4, 5), B: f("b", 5, 6), C: f("c", 4, 6), TransA: true, TransB: true}, []string{"both", "transposed"}},
		{op.RMSNorm{X: f("x", 5, 6), W: f("w", 7), Y: f("y", 5, 6), RMSInv: f("r", 5)}, []string{"w is", "(7)", "C 6"}},
		{op.RoPE{X: f("x", 1, 2, 3, 5), Table: f("t", 9, 5)}, []string{"D is 5", "even"}},
		{op.RoPE{X: f("x", 1, 4, 3, 6), Table: f("t", 9, 6), Pos0: 6}, []string{"10", "table of 9"}},
		{op.RoPE{X: f("x", 1, 4, 3, 6), X2: f("x2", 1, 5, 2, 6), Table: f("t", 9, 6)}, []string{"x2 is", "(1, 5, 2, 6)", "T 4"}},
		{op.RoPE{X: f("x", 1, 4, 3, 6), Out2: f("out2", 1, 4, 3, 6), Table: f("t", 9, 6)}, []string{"out2 is given", "x2"}},
		{op.Attention{Q: f("q", 1, 3, 6, 8), K: f("k", 1, 3, 4, 8)}, []string{"H 6", "KVH 4"}},
		{op.Attention{Q: f("q", 1, 3, 4, 8), K: f("k", 1, 2, 4, 8)}, []string{"k is", "T 3"}},
		{op.KVAppend{K: f("k", 1, 9, 2, 4), V: f("v", 1, 9, 2, 4), KCache: f("kc", 1, 8, 2, 4), VCache: f("vc", 1, 8, 2, 4)}, []string{"9 rows", "8 slots"}},
		{op.AttentionDecode{Q: f("q", 1, 2, 4), KCache: f("kc", 1, 8, 2, 4), VCache: f("vc", 1, 8, 2, 4), Out: f("o", 1, 2, 4), Len: 9}, []string{"length 9", "1 to 8"}},
		{op.CrossEntropy{Logits: f("l", 5, 7), Targets: x.i("t", 5), Loss: f("loss", 5), LabelSmoothing: 1}, []string{"label smoothing is 1"}},
		{op.Cast{Dst: f("d", 5), Src: f("s", 5)}, []string{"cannot convert F32"}},
		{op.GLUBackward{Gate: f("gate", 5, 9), Up: f("up", 5, 9), DOut: f("dout", 5, 9), DGate: f("dgate", 5, 9), DUp: x.tensor("dup", tensor.BF16, 5, 9)},
			[]string{"dgate (5, 9) is F32", "dup (5, 9) is BF16", "want one type"}},
		{op.GLU{Gate: x.tensor("gate", tensor.F16, 5, 9), Up: f("up", 5, 9), Out: f("out", 5, 9)}, []string{"gate (5, 9) is F16", "up (5, 9) is F32", "want one type"}},
		{op.Attention{Q: f("q", 1, 3, 4, 8), K: f("k", 1, 3, 2, 8), V: x.tensor("v", tensor.BF16, 1, 3, 2, 8), Out: f("out", 1, 3, 4, 8), LSE: f("lse", 1, 4, 3)},
			[]string{"q (1, 3, 4, 8) is F32", "v (1, 3, 2, 8) is BF16", "want one type"}},
		{op.MatMul{A: f("a", 5, 6), B: f("b", 6, 9), C: x.tensor("c", tensor.BF16, 5, 9), Acc: true}, []string{"c (5, 9) is BF16", "want F32 with acc"}},
		{op.MatMul{A: f("a", 5, 6), B: f("b", 6, 9), C: x.tensor("c", tensor.F16, 5, 9), Residual: f("residual", 5, 9)}, []string{"c (5, 9) is F16", "or a residual"}},
		{op.CrossEntropy{Logits: f("l", 5, 7), DLogits: f("dl", 5, 7), Targets: x.i("t", 5), Loss: f("loss", 5)}, []string{"dlogits is given", "without Grad"}},
		{op.Embedding{W: f("w", 7, 6), Out: f("o", 5, 6)}, []string{"tokens is absent"}},
		{op.AdamW8{W: f("w", 300), G: f("g", 300), M: x.tensor("m", tensor.I8, 300), V: x.tensor("v", tensor.I8, 300),
			MScale: f("ms", 1), VScale: f("vs", 2), Stats: f("s", 4)}, []string{"m_scale is", "blocks 2"}},
	} {
		err := run(x.r, c.call)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%T: error %v, want it to say %q", c.call, err, w)
			}
		}
	}
}

// operandCalls lists calls with an operand tensor of a type in each field that may
// hold one.
func (x *bench) operandCalls(typ tensor.DType) map[string]any {
	f, o := x.f, func(label string, dims ...int) op.Tensor { return x.tensor(label, typ, dims...) }
	nf, no := func(label string) op.Tensor { return f(label, 5, 9) }, func(label string) op.Tensor { return o(label, 5, 9) }
	q, k, qo, ko := func(label string) op.Tensor { return f(label, 2, 3, 4, 8) }, func(label string) op.Tensor { return f(label, 2, 3, 2, 8) },
		func(label string) op.Tensor { return o(label, 2, 3, 4, 8) }, func(label string) op.Tensor { return o(label, 2, 3, 2, 8) }
	lse := f("lse", 2, 4, 3)
	attend := op.Attention{Q: q("q"), K: k("k"), V: k("v"), Out: q("out"), LSE: lse}
	attend16, attendOut := attend, attend
	attend16.Q, attend16.K, attend16.V, attendOut.Out = qo("q"), ko("k"), ko("v"), qo("out")
	back := op.AttentionBackward{Q: attend.Q, K: attend.K, V: attend.V, Out: attend.Out, LSE: lse, DOut: q("dout"), Delta: f("delta", 2, 4, 3),
		DQ: q("dq"), DK: k("dk"), DV: k("dv")}
	back16, backOut, backDOut, backDV := back, back, back, back
	back16.Q, back16.K, back16.V = attend16.Q, attend16.K, attend16.V
	backOut.Out, backDOut.DOut, backDV.DV = qo("out"), qo("dout"), ko("dv")
	glu := op.GLUBackward{Gate: nf("gate"), Up: nf("up"), DOut: nf("dout"), DGate: nf("dgate"), DUp: nf("dup")}
	glu16, gluDOut := glu, glu
	glu16.Gate, glu16.Up, gluDOut.DOut = no("gate"), no("up"), no("dout")
	return map[string]any{
		"matmul c":                         op.MatMul{A: f("a", 5, 6), B: f("b", 6, 9), C: no("c")},
		"attention q, k and v":             attend16,
		"attention out":                    attendOut,
		"attention backward of q, k and v": back16,
		"attention backward of out":        backOut,
		"attention backward of dout":       backDOut,
		"attention backward dv":            backDV,
		"glu of gate and up":               op.GLU{Gate: no("gate"), Up: no("up"), Out: nf("out")},
		"glu backward of gate and up":      glu16,
		"glu backward of dout":             gluDOut,
		"gate up gate and up":              op.GateUp{X: f("x", 5, 6), WGate: f("w_gate", 6, 9), WUp: f("w_up", 6, 9), Gate: no("gate"), Up: no("up"), Out: nf("out")},
		"rmsnorm y":                        op.RMSNorm{X: f("x", 5, 6), W: f("w", 6), Y: o("y", 5, 6), RMSInv: f("rms_inv", 5)},
		"rmsnorm backward dx_copy": op.RMSNormBackward{X: f("x", 5, 6), W: f("w", 6), DY: f("dy", 5, 6), RMSInv: f("rms_inv", 5), DX: f("dx", 5, 6),
			DXCopy: o("dx_copy", 5, 6), DW: f("dw", 6)},
		"matmul a":          op.MatMul{A: o("a", 5, 6), B: f("b", 6, 9), C: f("c", 5, 9)},
		"matmul b":          op.MatMul{A: f("a", 6, 5), B: o("b", 6, 9), C: f("c", 5, 9), TransA: true},
		"rope out":          op.RoPE{X: f("x", 2, 3, 4, 8), Out: o("out", 2, 3, 4, 8), Table: f("table", 20, 8)},
		"rope out2":         op.RoPE{X: f("x", 2, 3, 4, 8), X2: f("x2", 2, 3, 2, 8), Out2: o("out2", 2, 3, 2, 8), Table: f("table", 20, 8)},
		"glu out":           op.GLU{Gate: nf("gate"), Up: nf("up"), Out: o("out", 5, 9)},
		"glu dgate and dup": op.GLUBackward{Gate: nf("gate"), Up: nf("up"), DOut: nf("dout"), DGate: o("dgate", 5, 9), DUp: o("dup", 5, 9)},
		"gate up weights":   op.GateUp{X: f("x", 5, 6), WGate: o("w_gate", 6, 9), WUp: o("w_up", 6, 9), Gate: nf("gate"), Up: nf("up"), Out: nf("out")},
		"gate up x":         op.GateUp{X: o("x", 5, 6), WGate: f("w_gate", 6, 9), WUp: f("w_up", 6, 9), Gate: nf("gate"), Up: nf("up"), Out: nf("out")},
		"gate up out":       op.GateUp{X: f("x", 5, 6), WGate: f("w_gate", 6, 9), WUp: f("w_up", 6, 9), Gate: nf("gate"), Up: nf("up"), Out: o("out", 5, 9)},
		"dlogits":           op.CrossEntropy{Logits: f("logits", 5, 7), DLogits: o("dlogits", 5, 7), Targets: x.i("targets", 5), Loss: f("loss", 5), Grad: true},
	}
}

// TestOperandTypes wants 16 bits to be taken while products round to that type, and
// an error that says what to do at any other time.
func TestOperandTypes(t *testing.T) {
	x := newBench()
	exact := op.NewRunner(struct{ op.Backend }{x.b}) // no Rounder
	for _, now := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if err := x.b.RoundProducts(now); err != nil || op.OperandType(x.b) != now {
			t.Fatalf("operand tensors are %v after RoundProducts(%v): %v", op.OperandType(x.b), now, err)
		}
		for _, typ := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.I8} {
			for name, call := range x.operandCalls(typ) {
				err := run(x.r, call)
				weights := (name == "matmul b" || name == "gate up weights") && typ == tensor.F16 // which need no rounding
				switch {
				case typ == tensor.I8:
					if err == nil || !strings.Contains(err.Error(), "is I8, want F32, or") {
						t.Errorf("%s of I8: %v", name, err)
					}
				case typ == tensor.F32 || typ == now || weights:
					if err != nil {
						t.Errorf("%s of %v while products round to %v: %v", name, typ, now, err)
					}
				case err == nil || !strings.Contains(err.Error(), "RoundProducts") || !strings.Contains(err.Error(), "is "+typ.String()):
					t.Errorf("%s of %v while products round to %v: %v, want an error that says what to do", name, typ, now, err)
				}
				if err := run(exact, call); (err == nil) != (typ == tensor.F32 || weights) {
					t.Errorf("%s of %v on a backend without matrix units: %v", name, typ, err)
				}
			}
		}
	}
	if op.OperandType(exact.Backend()) != tensor.F32 {
		t.Error("operand tensors of a backend without matrix units are not F32")
	}
}

// TestOperandGroups wants the Runner to look at every product of a group.
func TestOperandGroups(t *testing.T) {
	x := newBench()
	good := op.MatMul{A: x.f("a", 5, 6), B: x.f("b", 6, 9), C: x.f("c", 5, 9)}
	bad := good
	bad.A = x.tensor("a16", tensor.BF16, 5, 6)
	badC := good
	badC.C = x.tensor("c16", tensor.BF16, 5, 9)
	for _, r := range []*op.Runner{x.r, op.NewRunner(fused{x.b})} {
		for want, item := range map[string]op.MatMul{"a16 (5, 6) is BF16": bad, "c16 (5, 9) is BF16": badC} {
			r.MatMulGroup([]op.MatMul{good, item})
			if err := r.Reset(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("group with an operand that cannot be: %v, want it to say %q", err, want)
			}
		}
	}
}

// fused is a backend with fused forms that do nothing.
type fused struct{ *ref.Backend[float32] }

func (fused) MatMulGroup([]op.MatMul) error { return nil }
func (fused) MatMulSum(op.MatMulSum) error  { return nil }
func (fused) GateUp(op.GateUp) error        { return nil }

// TestOperandCost wants 16-bit tensors to count as such.
func TestOperandCost(t *testing.T) {
	x := newBench()
	x.b.RoundProducts(tensor.BF16)
	want := map[string]int64{
		"rmsnorm y": 4*(30+6+5) + 2*30, "matmul a": 2*30 + 4*(54+45), "matmul b": 4*(30+45) + 2*54, "rmsnorm backward dx_copy": 4*(3*30+6+5+2*6) + 2*30, "rope out": (4 + 2) * 192, "rope out2": (4+4)*192 + (4+2)*96,
		"glu out": (4 + 4 + 2) * 45, "glu dgate and dup": (4 + 4 + 4 + 2 + 2) * 45, "gate up x": 2*30 + 4*(54+54+3*45),
		"gate up out": 4*(30+54+54+2*45) + 2*45, "dlogits": (4+2)*35 + 4*(5+5),
		"matmul c": 4*(30+54) + 2*45, "attention q, k and v": 2*(192+2*96) + 4*(192+24), "attention out": 4*(192+2*96+24) + 2*192,
		"attention backward of q, k and v": 2*(192+2*96) + 4*(192+24+192+192+2*96), "attention backward of out": 4*(192+2*96+24+192+192+2*96) + 2*192,
		"attention backward of dout": 4*(192+2*96+192+24+192+2*96) + 2*192, "attention backward dv": 4*(192+2*96+192+24+192+192+96) + 2*96,
		"glu of gate and up": (2 + 2 + 4) * 45, "glu backward of gate and up": (2 + 2 + 3*4) * 45, "glu backward of dout": (2 + 4*4) * 45,
		"gate up gate and up": 4*(30+54+54+45) + 2*2*45, "gate up weights": 4*(30+3*45) + 2*(54+54),
	}
	for name, call := range x.operandCalls(tensor.BF16) {
		r := op.NewRunner(fused{x.b})
		var p op.Profile
		r.SetProfile(&p)
		if err := run(r, call); err != nil {
			t.Fatal(err)
		}
		if rows := p.Rows(); len(rows) != 1 || rows[0].Bytes != want[name] {
			t.Errorf("%s: %+v, want %d bytes", name, rows, want[name])
		}
	}
}

// TestStickyError wants calls after an error to do nothing, and the first error
// to stay until Reset.
func TestStickyError(t *testing.T) {
	x := newBench()
	a, b := x.f("a", 4), x.f("b", 4)
	op.WriteSlice(x.r, b, []float32{1, 1, 1, 1})
	x.r.Add(op.Add{Dst: a, Src: x.f("short", 3)})
	first := x.r.Err()
	if first == nil {
		t.Fatal("no error")
	}
	x.r.Add(op.Add{Dst: a, Src: b})
	x.r.Zero(op.Tensor{})
	x.r.MatMulGroup([]op.MatMul{{}})
	op.WriteSlice(x.r, b, []float32{5, 5, 5, 5})
	got := make([]float32, 4)
	if err := op.ReadSlice(x.r, got, b); err != first {
		t.Errorf("read after an error returns %v, want the first, %v", err, first)
	}
	if x.r.Err() != first || x.r.Sync() != first || x.r.Reset() != first || x.r.Err() != nil {
		t.Error("the first error is not kept until Reset")
	}
	if op.ReadSlice(x.r, got, a); got[0] != 0 {
		t.Error("a call after an error was made")
	}
	if op.ReadSlice(x.r, got, b); got[0] != 1 {
		t.Error("a write after an error was made")
	}
	for _, n := range []int{3, 5} {
		if op.WriteSlice(x.r, a, make([]float32, n)); x.r.Reset() == nil {
			t.Errorf("write of %d elements to 4: no error", n)
		}
	}
}

// TestErrorsOfTheBackend wants a backend's own error, with the op's label.
func TestErrorsOfTheBackend(t *testing.T) {
	x := newBench()
	tokens := x.i("tokens", 2)
	op.WriteSlice(x.r, tokens, []int32{1, 7})
	err := run(x.r, op.Embedding{Tokens: tokens, W: x.f("w", 7, 6), Out: x.f("out", 2, 6)})
	if want := "embedding_forward: token of row 1 is 7, want 0 to 6"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// free is a backend that does nothing, so that what is left is the Runner.
type free struct{ op.Backend }

func (free) MatMul(op.MatMul) error                       { return nil }
func (free) Attention(op.Attention) error                 { return nil }
func (free) AttentionBackward(op.AttentionBackward) error { return nil }
func (free) RMSNormBackward(op.RMSNormBackward) error     { return nil }
func (free) CrossEntropy(op.CrossEntropy) error           { return nil }
func (free) AdamW8(op.AdamW8) error                       { return nil }
func (free) Copy(dst, src op.Tensor) error                { return nil }

func TestPassingCallAllocatesNothing(t *testing.T) {
	x := newBench()
	r := op.NewRunner(free{x.b})
	a, b := x.f("a", 4), x.f("b", 4)
	var fs []func()
	for _, call := range x.calls() {
		switch c := call.(type) {
		case op.MatMul:
			fs = append(fs, func() { r.MatMul(c) })
		case op.Attention:
			fs = append(fs, func() { r.Attention(c) })
		case op.AttentionBackward:
			fs = append(fs, func() { r.AttentionBackward(c) })
		case op.RMSNormBackward:
			fs = append(fs, func() { r.RMSNormBackward(c) })
		case op.CrossEntropy:
			fs = append(fs, func() { r.CrossEntropy(c) })
		case op.AdamW8:
			fs = append(fs, func() { r.AdamW8(c) })
		}
	}
	fs = append(fs, func() { r.Copy(a, b) })
	for i, f := range fs {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("call %d allocates %v times", i, n)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestProfile wants one row a label, with calls and costs added up.
func TestProfile(t *testing.T) {
	x := newBench()
	var p op.Profile
	x.r.SetProfile(&p)
	m := op.MatMul{A: x.f("a", 5, 6), B: x.f("b", 6, 9), C: x.f("c", 5, 9)}
	x.r.MatMul(m)
	x.r.MatMul(m)
	x.r.SetProfile(nil)
	x.r.MatMul(m)
	rows := p.Rows()
	if len(rows) != 1 || rows[0].Label != "matmul" || rows[0].Calls != 2 || rows[0].FLOPs != 2*2*5*6*9 ||
		rows[0].Bytes != 2*4*(30+54+45) {
		t.Errorf("profile %+v", rows)
	}
}

func TestTensorViews(t *testing.T) {
	x := newBench()
	a := x.f("a", 2, 3, 4)
	if a.Len() != 24 || a.Rows() != 6 || a.Cols() != 4 || a.String() != "a (2, 3, 4)" {
		t.Errorf("%v: %d elements, %d rows of %d", a, a.Len(), a.Rows(), a.Cols())
	}
	if r := a.RowRange(2, 5); r.Off != 8 || r.Len() != 12 || r.Rank != 2 {
		t.Errorf("rows 2 to 5 are %+v", r)
	}
	if f := a.Reshape(6, 4).Flat(); f.Len() != 24 || f.Rank != 1 {
		t.Errorf("flat is %+v", f)
	}
	if op.Of(a.Buf, 0).Len() != 1 || (op.Tensor{}).Ok() || (op.Tensor{}).String() != "absent" {
		t.Error("the empty views are wrong")
	}
	defer func() {
		if recover() == nil {
			t.Error("Reshape to another size does not panic")
		}
	}()
	a.Reshape(5, 5)
}
