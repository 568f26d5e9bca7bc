package cpu

import "tezgah/op"

type gluTask struct {
	gate, up, out []float32
	act           op.Activation
}

func (t *gluTask) do(b *Backend, _, lo, hi int) {
	if t.act == op.GeLUTanh {
		b.k.GeluMul(t.out[lo:hi], t.gate[lo:hi], t.up[lo:hi])
	} else {
		b.k.SiluMul(t.out[lo:hi], t.gate[lo:hi], t.up[lo:hi])
	}
}

// GLU is Out = act(Gate)·Up.
func (b *Backend) GLU(a op.GLU) error {
	t := &b.tasks.glu
	*t = gluTask{floats(a.Gate), floats(a.Up), floats(a.Out), a.Act}
	b.each(len(t.out), elementBlock, t)
	*t = gluTask{}
	return nil
}

type gluBackTask struct {
	gate, up, dout, dgate, dup []float32
	act                        op.Activation
}

func (t *gluBackTask) do(b *Backend, _, lo, hi int) {
	if t.act == op.GeLUTanh {
		b.k.GeluMulBackward(t.dgate[lo:hi], t.dup[lo:hi], t.dout[lo:hi], t.gate[lo:hi], t.up[lo:hi])
	} else {
		b.k.SiluMulBackward(t.dgate[lo:hi], t.dup[lo:hi], t.dout[lo:hi], t.gate[lo:hi], t.up[lo:hi])
	}
}

// GLUBackward undoes GLU: DUp = DOut·act(Gate), DGate = DOut·Up·act'(Gate).
func (b *Backend) GLUBackward(a op.GLUBackward) error {
	t := &b.tasks.gluBack
	*t = gluBackTask{floats(a.Gate), floats(a.Up), floats(a.DOut), floats(a.DGate), floats(a.DUp), a.Act}
	b.each(len(t.dout), elementBlock, t)
	*t = gluBackTask{}
	return nil
}
