package webgpu

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// operands measures the kernels that write operand tensors, as bfloat16, and the
// loss with every size of its workgroup. They need no matrix units, and the Runner,
// which would ask for them, is not in between.
func (m *bandwidthBench) operands() {
	s, b, n := m.s, m.b, m.s.b*m.s.t
	show := func(name string, bytes int, call func(i int) error) {
		m.show(name, bytes, func(i int) {
			if err := call(i); err != nil {
				s.tb.Fatal(err)
			}
		})
	}
	x, y := m.tensors(n, s.c), m.brains(n, s.c)
	show("rmsnorm_forward to bf16", 6*n*s.c, func(i int) error {
		return b.RMSNorm(op.RMSNorm{X: x[i], W: s.norm.w, Y: y[i], RMSInv: s.rms, Eps: 1e-5})
	})
	dy, dx := m.tensors(n, s.c), m.tensors(n, s.c)
	show("rmsnorm_backward with a copy in bf16", 18*n*s.c, func(i int) error {
		return b.RMSNormBackward(op.RMSNormBackward{X: x[i], W: s.norm.w, DY: dy[i], RMSInv: s.rms, DX: dx[i], DXCopy: y[i], DW: s.norm.g, AddDX: true})
	})
	heads := [4]int{s.b, s.t, s.h, s.c / s.h}
	show("rope to bf16", 6*n*s.c, func(i int) error {
		return b.RoPE(op.RoPE{X: x[i].Reshape(heads[:]...), Out: y[i].Reshape(heads[:]...), Table: s.table, Inverse: true})
	})
	x2, y2 := m.tensors(n, s.c), m.brains(n, s.c)
	defer func() { b.ropeHeads = 0 }()
	for _, each := range []int{0, 1, 2, 3, 4, 6} {
		b.ropeHeads = each
		show(fmt.Sprintf("rope of two to bf16, %d heads a thread (0: chosen)", each), 2*6*n*s.c, func(i int) error {
			return b.RoPE(op.RoPE{X: x[i].Reshape(heads[:]...), Out: y[i].Reshape(heads[:]...),
				X2: x2[i].Reshape(heads[:]...), Out2: y2[i].Reshape(heads[:]...), Table: s.table})
		})
	}
	gate, up, dout := m.tensors(n, s.f), m.tensors(n, s.f), m.tensors(n, s.f)
	out, dgate := m.brains(n, s.f), m.brains(n, s.f)
	show("swiglu_forward to bf16", 10*n*s.f, func(i int) error { return b.GLU(op.GLU{Gate: gate[i], Up: up[i], Out: out[i]}) })
	show("swiglu_backward to bf16", 16*n*s.f, func(i int) error {
		return b.GLUBackward(op.GLUBackward{Gate: gate[i], Up: up[i], DOut: dout[i], DGate: dgate[i], DUp: out[i]})
	})
	gate16, up16, dout16 := m.brains(n, s.f), m.brains(n, s.f), m.brains(n, s.f)
	show("swiglu_forward all in bf16", 6*n*s.f, func(i int) error { return b.GLU(op.GLU{Gate: gate16[i], Up: up16[i], Out: out[i]}) })
	show("swiglu_backward all in bf16", 10*n*s.f, func(i int) error {
		return b.GLUBackward(op.GLUBackward{Gate: gate16[i], Up: up16[i], DOut: dout16[i], DGate: dgate[i], DUp: out[i]})
	})
	m.operandLoss(show)
}

func (m *bandwidthBench) operandLoss(show func(name string, bytes int, call func(i int) error)) {
	s, b := m.s, m.b
	defer func() { b.loss, b.lossRow = nil, nil }()
	logits, dlogits := m.tensors(s.headRows, s.v), m.brains(s.headRows, s.v)
	one := func(name string) {
		show("cross_entropy to bf16 "+name, 6*s.headRows*s.v, func(i int) error {
			return b.CrossEntropy(op.CrossEntropy{Logits: logits[i], DLogits: dlogits[i], Targets: op.Of(s.targets.Buf, 0, s.headRows),
				Loss: op.Of(s.loss.Buf, 0, s.headRows), GradScale: 1, Ignore: -100, Grad: true})
		})
	}
	one("as chosen")
	for _, threads := range []int{512, 640, 768, 1024} {
		for _, groups := range []int{132, 264, 528} {
			b.lossRow = &rowShape{threads: threads, groups: groups}
			one(fmt.Sprintf("%d threads or twice, %d groups", threads, groups))
		}
	}
	b.lossRow = &rowShape{}
	for _, batch := range []int{2, 4, 8} {
		b.loss = &lossShape{8, batch, 528}
		one(fmt.Sprintf("two passes, batch %d", batch))
	}
}

// brains gives every set its own tensor of bfloat16.
func (m *bandwidthBench) brains(dims ...int) (t [bandwidthSets]op.Tensor) {
	for i := range t {
		t[i] = m.s.alloc(tensor.BF16, dims...)
	}
	return t
}
