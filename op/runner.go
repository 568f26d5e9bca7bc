package op

import (
	"fmt"
	"time"

	"tezgah/tensor"
)

// Runner is the front of a backend. It checks each call's arguments, keeps the
// first error (later calls then do nothing, as with bufio.Writer), and measures
// when a Profile is attached. A training step is a list of calls on a Runner
// and one look at Err or Sync.
type Runner struct {
	b       Backend
	fuser   Fuser   // b, when it has fused forms
	rotator Rotator // b, when it turns results
	err     error
	profile *Profile
	start   time.Time
}

// NewRunner returns the front of b.
func NewRunner(b Backend) *Runner {
	f, _ := b.(Fuser)
	t, _ := b.(Rotator)
	return &Runner{b: b, fuser: f, rotator: t}
}

// Backend returns what the runner runs on.
func (r *Runner) Backend() Backend { return r.b }

// Err returns the first error since the last Reset.
func (r *Runner) Err() error { return r.err }

// Reset forgets the error, after the caller has dealt with it, and returns it.
func (r *Runner) Reset() error {
	err := r.err
	r.err = nil
	return err
}

// Sync waits for all work and returns the first error, of a call or of the
// work itself. It does not forget it.
func (r *Runner) Sync() error {
	if err := r.b.Sync(); r.err == nil {
		r.err = err
	}
	return r.err
}

// Flush starts what has been recorded without waiting.
func (r *Runner) Flush() {
	if r.err == nil {
		r.err = r.b.Flush()
	}
}

// SetProfile attaches p, or detaches with nil. While one is attached each call
// runs alone: start, wait, stop the clock.
func (r *Runner) SetProfile(p *Profile) { r.profile = p }

// ProfileKernels attaches p with the device's own clock: calls run as they
// always do, and stop, which must be called, adds the times of their kernels to
// p and detaches it. ok is false, and nothing is attached, on a device without
// such a clock.
func (r *Runner) ProfileKernels(p *Profile) (stop func() error, ok bool, err error) {
	timer, has := r.b.(Timer)
	if !has {
		return nil, false, nil
	}
	if ok, err := timer.StartTiming(); err != nil || !ok {
		return nil, false, err
	}
	p.timer = timer
	r.profile = p
	return func() error {
		r.profile = nil
		times, err := timer.StopTiming()
		if err != nil {
			return err
		}
		p.resolve(times)
		return r.err
	}, true, nil
}

// begin reports whether the call may run.
func (r *Runner) begin(check error) bool {
	if r.err != nil {
		return false
	}
	if check != nil {
		r.err = check
		return false
	}
	switch p := r.profile; {
	case p == nil:
	case p.timer != nil:
		p.spans = append(p.spans, span{first: p.timer.Started()})
	default:
		if r.err = r.b.Sync(); r.err != nil {
			return false
		}
		r.start = time.Now()
	}
	return true
}

// operands follows check with what that cannot know: operand tensors of 16 bits
// must be of the type that the backend's products round to now. Absent ones pass.
func (r *Runner) operands(check error, label string, ts ...Tensor) error {
	if check != nil {
		return check
	}
	for _, t := range ts {
		if t.Ok() && t.Type() != tensor.F32 && t.Type() != OperandType(r.b) {
			return wrongOperand(label, t, r.b)
		}
	}
	return nil
}

// wrongOperand says why an operand tensor cannot be used, and what to do.
func wrongOperand(label string, t Tensor, b Backend) error {
	now := OperandType(b)
	if now == tensor.F32 {
		return fmt.Errorf("%s: %v is %v, want F32: products on this %s backend do not round their inputs now; call RoundProducts(%v), or make the tensor in F32",
			label, t, t.Type(), b.Name(), t.Type())
	}
	return fmt.Errorf("%s: %v is %v, want F32 or %v, which products on this %s backend round to now; make the tensor again after RoundProducts",
		label, t, t.Type(), now, b.Name())
}

// call is what every operation's arguments know of themselves.
type call interface {
	Label() string
	cost() Cost
}

// end takes the result of a call. What it costs is only asked for by a profile.
func end[A call](r *Runner, a A, err error) {
	if err != nil || r.profile != nil {
		r.end(a.Label(), a.cost(), err)
	}
}

func (r *Runner) end(label string, c Cost, err error) {
	if err != nil {
		r.err = fmt.Errorf("%s: %w", label, err)
		return
	}
	switch p := r.profile; {
	case p == nil:
	case p.timer != nil:
		s := &p.spans[len(p.spans)-1]
		s.label, s.cost, s.last = label, c, p.timer.Started()
	default:
		if r.err = r.b.Sync(); r.err == nil {
			p.add(label, c, time.Since(r.start))
		}
	}
}

// Write copies little-endian elements p to dst.
func (r *Runner) Write(dst Tensor, p []byte) {
	if r.err == nil {
		if err := sameBytes("write", dst, len(p)); err != nil {
			r.err = err
		} else if err := r.b.Write(dst, p); err != nil {
			r.err = fmt.Errorf("write %v: %w", dst, err)
		}
	}
}

// Read waits for earlier work and copies src to p.
func (r *Runner) Read(p []byte, src Tensor) error {
	if r.err == nil {
		if err := sameBytes("read", src, len(p)); err != nil {
			r.err = err
		} else if err := r.b.Read(p, src); err != nil {
			r.err = fmt.Errorf("read %v: %w", src, err)
		}
	}
	return r.err
}

func sameBytes(op string, t Tensor, n int) error {
	if !t.Ok() {
		return fmt.Errorf("%s: tensor is absent", op)
	}
	if want := t.Len() * t.Type().Size(); n != want {
		return fmt.Errorf("%s: %v is %d bytes, got %d", op, t, want, n)
	}
	if t.Off < 0 || t.Off+t.Len() > t.Buf.Len() {
		return fmt.Errorf("%s: %v from element %d does not fit its buffer of %d", op, t, t.Off, t.Buf.Len())
	}
	return nil
}

// WriteSlice writes a slice of elements whose Go type matches dst's type.
func WriteSlice[T tensor.Number](r *Runner, dst Tensor, s []T) { r.Write(dst, tensor.Bytes(s)) }

// ReadSlice reads src into s.
func ReadSlice[T tensor.Number](r *Runner, s []T, src Tensor) error {
	return r.Read(tensor.Bytes(s), src)
}

// Zero clears x.
func (r *Runner) Zero(x Tensor) {
	c := checker{op: "zero"}
	if c.present("x", x) {
		c.want("x", x.Flat(), x.Type(), "n", x.Len())
	}
	if r.begin(c.err) {
		r.end("zero", Cost{0, bytesOf(x)}, r.b.Zero(x))
	}
}

// Copy copies src to dst, which have the same type and number of elements and
// do not overlap.
func (r *Runner) Copy(dst, src Tensor) {
	c := checker{op: "copy"}
	if c.present("dst", dst) && c.present("src", src) {
		c.want("dst", dst.Flat(), src.Type(), "n", src.Len())
		c.want("src", src.Flat(), src.Type(), "n", src.Len())
	}
	if r.begin(c.err) {
		r.end("copy", Cost{0, bytesOf(dst, src)}, r.b.Copy(dst, src))
	}
}

// Add checks a and runs it; see the type Add.
func (r *Runner) Add(a Add) {
	if r.begin(a.check()) {
		end(r, a, r.b.Add(a))
	}
}

// Scale checks a and runs it; see the type Scale.
func (r *Runner) Scale(a Scale) {
	if r.begin(a.check()) {
		end(r, a, r.b.Scale(a))
	}
}

// Cast checks a and runs it; see the type Cast.
func (r *Runner) Cast(a Cast) {
	if r.begin(a.check()) {
		end(r, a, r.b.Cast(a))
	}
}

// Sum checks a and runs it; see the type Sum.
func (r *Runner) Sum(a Sum) {
	if r.begin(a.check()) {
		end(r, a, r.b.Sum(a))
	}
}

// Embedding checks a and runs it; see the type Embedding.
func (r *Runner) Embedding(a Embedding) {
	if r.begin(a.check()) {
		end(r, a, r.b.Embedding(a))
	}
}

// EmbeddingBackward checks a and runs it; see the type EmbeddingBackward.
func (r *Runner) EmbeddingBackward(a EmbeddingBackward) {
	if r.begin(a.check()) {
		end(r, a, r.b.EmbeddingBackward(a))
	}
}

// RMSNorm checks a and runs it; see the type RMSNorm.
func (r *Runner) RMSNorm(a RMSNorm) {
	if r.begin(r.operands(a.check(), a.Label(), a.Y)) {
		end(r, a, r.b.RMSNorm(a))
	}
}

// RMSNormBackward checks a and runs it; see the type RMSNormBackward.
func (r *Runner) RMSNormBackward(a RMSNormBackward) {
	if r.begin(r.operands(a.check(), a.Label(), a.DXCopy)) {
		end(r, a, r.b.RMSNormBackward(a))
	}
}

// MatMul checks a and runs it; see the type MatMul.
func (r *Runner) MatMul(a MatMul) {
	if r.begin(r.operands(a.check(), a.Label(), a.A, activation(a.B), a.C)) {
		end(r, a, r.b.MatMul(a))
	}
}

// RoPE checks a and runs it; see the type RoPE.
func (r *Runner) RoPE(a RoPE) {
	if r.begin(r.operands(a.check(), a.Label(), a.Out, a.Out2)) {
		end(r, a, r.b.RoPE(a))
	}
}

// Attention checks a and runs it; see the type Attention.
func (r *Runner) Attention(a Attention) {
	if r.begin(r.operands(a.check(), a.Label(), a.Q, a.K, a.V, a.Out)) {
		end(r, a, r.b.Attention(a))
	}
}

// AttentionBackward checks a and runs it; see the type AttentionBackward.
func (r *Runner) AttentionBackward(a AttentionBackward) {
	if r.begin(r.operands(a.check(), a.Label(), a.Q, a.K, a.V, a.Out, a.DOut, a.DV)) {
		end(r, a, r.b.AttentionBackward(a))
	}
}

// KVAppend checks a and runs it; see the type KVAppend.
func (r *Runner) KVAppend(a KVAppend) {
	if r.begin(a.check()) {
		end(r, a, r.b.KVAppend(a))
	}
}

// AttentionDecode checks a and runs it; see the type AttentionDecode.
func (r *Runner) AttentionDecode(a AttentionDecode) {
	if r.begin(a.check()) {
		end(r, a, r.b.AttentionDecode(a))
	}
}

// GLU checks a and runs it; see the type GLU.
func (r *Runner) GLU(a GLU) {
	if r.begin(r.operands(a.check(), a.Label(), a.Gate, a.Up, a.Out)) {
		end(r, a, r.b.GLU(a))
	}
}

// GLUBackward checks a and runs it; see the type GLUBackward.
func (r *Runner) GLUBackward(a GLUBackward) {
	if r.begin(r.operands(a.check(), a.Label(), a.Gate, a.Up, a.DOut, a.DGate, a.DUp)) {
		end(r, a, r.b.GLUBackward(a))
	}
}

// CrossEntropy checks a and runs it; see the type CrossEntropy.
func (r *Runner) CrossEntropy(a CrossEntropy) {
	if r.begin(r.operands(a.check(), a.Label(), a.DLogits)) {
		end(r, a, r.b.CrossEntropy(a))
	}
}

// GradNormSq checks a and runs it; see the type GradNormSq.
func (r *Runner) GradNormSq(a GradNormSq) {
	if r.begin(a.check()) {
		end(r, a, r.b.GradNormSq(a))
	}
}

// FinalizeGradStats checks a and runs it; see the type FinalizeGradStats.
func (r *Runner) FinalizeGradStats(a FinalizeGradStats) {
	if r.begin(a.check()) {
		end(r, a, r.b.FinalizeGradStats(a))
	}
}

// AdamW checks a and runs it; see the type AdamW.
func (r *Runner) AdamW(a AdamW) {
	if r.begin(a.check()) {
		end(r, a, r.b.AdamW(a))
	}
}

// AdamW8 checks a and runs it; see the type AdamW8.
func (r *Runner) AdamW8(a AdamW8) {
	if r.begin(a.check()) {
		end(r, a, r.b.AdamW8(a))
	}
}

// activation is a product's right operand, or absent when it may be weights in
// F16, which need no rounding products.
func activation(b Tensor) Tensor {
	if b.Ok() && b.Type() == tensor.F16 {
		return Tensor{}
	}
	return b
}

// MatMulGroup runs products that do not depend on each other and share A.
func (r *Runner) MatMulGroup(items []MatMul) {
	if r.fuser == nil {
		for _, a := range items {
			r.MatMul(a)
		}
		return
	}
	var c Cost
	for i := range items {
		if r.err == nil {
			a := &items[i]
			r.err = r.operands(a.check(), a.Label(), a.A, activation(a.B), a.C)
		}
		if r.err != nil {
			return
		}
		c = c.plus(items[i].cost())
	}
	if r.begin(nil) {
		r.end("matmul_group", c, r.fuser.MatMulGroup(items))
	}
}

// MatMulSum checks a and runs it; see the type MatMulSum.
func (r *Runner) MatMulSum(a MatMulSum) {
	check := a.check()
	for _, p := range a {
		check = r.operands(check, a.Label(), p.A, activation(p.B), p.C)
	}
	if !r.begin(check) {
		return
	}
	if r.fuser != nil {
		end(r, a, r.fuser.MatMulSum(a))
		return
	}
	var err error
	for i := 0; i < len(a) && err == nil; i++ {
		err = r.b.MatMul(a.Product(i))
	}
	end(r, a, err)
}

// GateUp runs the first half of the feed-forward block.
func (r *Runner) GateUp(a GateUp) {
	check := r.operands(a.check(), a.Label(), a.X, activation(a.WGate), activation(a.WUp), a.Gate, a.Up, a.Out)
	if r.fuser == nil {
		if r.err == nil {
			r.err = check
		}
		r.MatMul(MatMul{A: a.X, B: a.WGate, C: a.Gate})
		r.MatMul(MatMul{A: a.X, B: a.WUp, C: a.Up})
		r.GLU(GLU{Gate: a.Gate, Up: a.Up, Out: a.Out, Act: a.Act})
		return
	}
	if r.begin(check) {
		end(r, a, r.fuser.GateUp(a))
	}
}
