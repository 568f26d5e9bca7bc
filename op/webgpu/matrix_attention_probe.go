package webgpu

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// Attention on the matrix units is checked before it is first used for a type, a
// head size, a mask and the type of its tensors: both directions on a small case whose result the host
// computes in float64. Where it is wrong, attention alone goes on in WGSL. What was
// seen is kept on disk by the kernels' fingerprints.

// attentionProbe is what is checked.
type attentionProbe struct {
	input tensor.DType
	d     int
	doc   bool
	half  bool // tensors of that type, not float32
}

func (p attentionProbe) String() string {
	return fmt.Sprintf("%v-%d-%v-%v", p.input, p.d, p.doc, p.half)
}

// attentionProbeSubject names the file of verdicts: by probe and fingerprint, what
// was wrong, or "" for nothing.
const attentionProbeSubject = "attention-probe-v2"

// attentionRight reports whether attention on the matrix units may be used, which
// it finds out once. A rehearsal has no results to look at and takes it to be right.
func (b *Backend) attentionRight(p attentionProbe) bool {
	right, known := b.matrix.attends[p]
	if known || b.rehearsal {
		return right || b.rehearsal
	}
	return b.judgeAttention(p, b.tryAttention)
}

// judgeAttention finds a verdict on disk, or else tries, and remembers it. try is
// tryAttention but in tests.
func (b *Backend) judgeAttention(p attentionProbe, try func(attentionProbe) error) bool {
	var verdicts map[string]string
	if !b.dev.LoadCache(attentionProbeSubject, &verdicts) || verdicts == nil {
		verdicts = map[string]string{}
	}
	key := p.String() + "-" + b.attentionFingerprint(p)
	wrong, known := verdicts[key]
	if !known {
		if err := try(p); err != nil {
			wrong = err.Error()
			known = errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrOutOfMemory) // says nothing about the kernels
		}
		if !known {
			verdicts[key] = wrong
			_ = b.dev.SaveCache(attentionProbeSubject, verdicts)
		}
	}
	if wrong != "" {
		b.notice = joinNotice(b.notice, fmt.Sprintf("NOTE: attention does without the matrix units for %v and heads of %d: %s", p.input, p.d, wrong))
	}
	if b.matrix.attends == nil {
		b.matrix.attends = map[attentionProbe]bool{}
	}
	b.matrix.attends[p] = wrong == ""
	return wrong == ""
}

// attentionFingerprint is that of the kernels of all parts.
func (b *Backend) attentionFingerprint(p attentionProbe) string {
	var kernels []string
	for part := range attentionParts {
		for _, t := range b.attentionTiles(part, p.d) {
			kernels = append(kernels, t.Kernel(attentionNames[part]))
		}
	}
	return fingerprint(p.input, kernels...)
}

// The probe's case: more steps than a tile of the other side has, two query heads
// to a key head, and with a mask a second document from probeDoc on.
const (
	probeSteps = 72
	probeHeads = 2
	probeDoc   = 27
	probeScale = 0.125
)

// attentionCase is a small attention and its result.
type attentionCase struct {
	d             int
	docs          []int32            // (1, T) where a step's document starts
	q, k, v, dout []float32          // (1, T, H, D) and (1, T, 1, D)
	want          map[string]bounded // by name of the result
	out, lse      []float32          // rounded, for the backward pass
	relative      float64            // error of a rounded factor
}

// bounded is a result and how far off it may be.
type bounded struct{ value, bound []float64 }

// newAttentionCase makes inputs that 16-bit floats hold exactly, and computes.
func newAttentionCase(p attentionProbe) *attentionCase {
	c := &attentionCase{d: p.d, docs: make([]int32, probeSteps), want: map[string]bounded{}}
	for t := probeDoc; p.doc && t < probeSteps; t++ {
		c.docs[t] = probeDoc
	}
	eighths := func(seed uint64, n int) []float32 {
		v, r := make([]float32, n), tensor.NewRNG(seed, 0)
		for i := range v {
			v[i] = float32(r.Intn(uint64(i), 17)-8) / 8
		}
		return v
	}
	nq, nk := probeSteps*probeHeads*p.d, probeSteps*p.d
	c.q, c.k, c.v, c.dout = eighths(1, nq), eighths(2, nk), eighths(3, nk), eighths(4, nq)
	// Four times the unit in the last place: weights and gradients of scores are
	// rounded once, and results are no sharper test than that.
	c.relative = 4 * 0x1p-11
	if p.input == tensor.BF16 {
		c.relative = 4 * 0x1p-8
	}
	c.compute()
	return c
}

// compute is attention forward and backward in float64, row by row, with the sums
// of magnitudes that bound what rounding does.
func (c *attentionCase) compute() {
	sized := func(n int) bounded { return bounded{make([]float64, n), make([]float64, n)} }
	out, lse, dq := sized(len(c.q)), sized(probeHeads*probeSteps), sized(len(c.q))
	dk, dv := sized(len(c.k)), sized(len(c.k))
	c.want = map[string]bounded{"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
	for h := range probeHeads {
		for t := range probeSteps {
			c.row(h, t, out, lse, dq, dk, dv)
		}
	}
	for _, x := range out.value {
		c.out = append(c.out, float32(x))
	}
	for _, x := range lse.value {
		c.lse = append(c.lse, float32(x))
	}
}

// row adds what one query row gives.
func (c *attentionCase) row(h, t int, out, lse, dq, dk, dv bounded) {
	const noise = 0x1p-16 // of float32, generously
	at, first := (t*probeHeads+h)*c.d, int(c.docs[t])
	q, dout := c.q[at:at+c.d], c.dout[at:at+c.d]
	scores, total := make([]float64, t+1), 0.0
	for s := first; s <= t; s++ {
		scores[s], _ = dotOf(q, c.k[s*c.d:])
		scores[s] *= probeScale
		total += math.Exp(scores[s])
	}
	lse.value[h*probeSteps+t], lse.bound[h*probeSteps+t] = math.Log(total), c.relative+noise
	delta := 0.0
	for s := first; s <= t; s++ {
		p := math.Exp(scores[s]) / total
		for i := range c.d {
			v := float64(c.v[s*c.d+i])
			out.add(at+i, p*v, (c.relative+noise)*p*math.Abs(v))
			delta += p * v * float64(dout[i])
		}
	}
	deltaSize := 0.0 // delta comes from an output that was rounded
	for i := range c.d {
		deltaSize += math.Abs(out.value[at+i] * float64(dout[i]))
	}
	for s := first; s <= t; s++ {
		p := math.Exp(scores[s]) / total
		dp, size := dotOf(dout, c.v[s*c.d:])
		ds := probeScale * p * (dp - delta)
		off := c.relative*math.Abs(ds) + probeScale*p*(noise*size+(c.relative+noise)*deltaSize)
		for i := range c.d {
			k := s*c.d + i
			dv.add(k, p*float64(dout[i]), (c.relative+noise)*p*math.Abs(float64(dout[i])))
			dq.add(at+i, ds*float64(c.k[k]), off*math.Abs(float64(c.k[k])))
			dk.add(k, ds*float64(q[i]), off*math.Abs(float64(q[i])))
		}
	}
}

func (b bounded) add(i int, value, bound float64) {
	b.value[i] += value
	b.bound[i] += bound
}

// dotOf is Σ x·y over x, and Σ |x·y|.
func dotOf(x, y []float32) (sum, size float64) {
	for i := range x {
		p := float64(x[i]) * float64(y[i])
		sum, size = sum+p, size+math.Abs(p)
	}
	return sum, size
}

// check compares a result, with some room for sums of many terms.
func (c *attentionCase) check(name string, got []float32) error {
	want := c.want[name]
	for i, w := range want.value {
		if d := math.Abs(float64(got[i]) - w); !(d <= want.bound[i]+0x1p-20) {
			return fmt.Errorf("%s[%d] of a small test is %v, want %.6g ± %.2g", name, i, got[i], w, want.bound[i])
		}
	}
	return nil
}

// probeTensors makes the tensors of a probe, and keeps the first error. Of p it reads
// the types.
type probeTensors struct {
	b    *Backend
	p    attentionProbe
	bufs []op.Buffer
	err  error
}

// put allocates a tensor and fills it.
func (m *probeTensors) put(t tensor.DType, content []byte, dims ...int) op.Tensor {
	x := op.Of(nil, 0, dims...)
	if m.err != nil {
		return x
	}
	if x.Buf, m.err = m.b.Alloc("matrix test", t, x.Len()); m.err == nil {
		m.bufs = append(m.bufs, x.Buf)
		m.err = m.b.Write(x, content)
	}
	return x
}

func (m *probeTensors) floats(v []float32, dims ...int) op.Tensor {
	return m.put(tensor.F32, gpu.Bytes(v), dims...)
}

// operand is a tensor of the type that the probe has for those that may be of 16 bits.
func (m *probeTensors) operand(v []float32, dims ...int) op.Tensor {
	if !m.p.half {
		return m.floats(v, dims...)
	}
	round := tensor.ToF16
	if m.p.input == tensor.BF16 {
		round = tensor.ToBF16
	}
	narrow := make([]uint16, len(v))
	for i, x := range v {
		narrow[i] = round(x)
	}
	return m.put(m.p.input, gpu.Bytes(narrow), dims...)
}

func (m *probeTensors) free() {
	for _, x := range m.bufs {
		m.b.Free(x)
	}
}

// read is a result in float32.
func (m *probeTensors) read(x op.Tensor) ([]float32, error) {
	v := make([]float32, x.Len())
	if !is16(x) {
		return v, m.b.Read(gpu.Bytes(v), x)
	}
	narrow, widen := make([]uint16, x.Len()), tensor.FromF16
	if m.p.input == tensor.BF16 {
		widen = tensor.FromBF16
	}
	err := m.b.Read(gpu.Bytes(narrow), x)
	for i, n := range narrow {
		v[i] = widen(n)
	}
	return v, err
}

// notNumbers fill results before they are written.
func notNumbers(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

// tryAttention runs a small attention on the matrix units, forward and backward,
// and returns what is wrong with it. It converts into memory of its own: a step may be
// under way, which takes no more memory for the probe than a rehearsal has said.
func (b *Backend) tryAttention(p attentionProbe) error {
	c, m, busy := newAttentionCase(p), probeTensors{b: b, p: p}, b.tuner.busy
	b.tuner.busy = true // no tile is measured for it
	converted := b.matrix.converted
	b.matrix.converted = conversions{}
	defer func() {
		b.tuner.busy = busy
		b.matrix.converted.free(b)
		b.matrix.converted = converted
		m.free()
	}()
	const T, H = probeSteps, probeHeads
	nq, nk := len(c.q), len(c.k)
	a := op.Attention{Q: m.operand(c.q, 1, T, H, p.d), K: m.operand(c.k, 1, T, 1, p.d), V: m.operand(c.v, 1, T, 1, p.d),
		Out: m.operand(notNumbers(nq), 1, T, H, p.d), LSE: m.floats(notNumbers(T*H), 1, H, T), Scale: probeScale}
	if p.doc {
		a.DocStart = m.put(tensor.I32, gpu.Bytes(c.docs), 1, T)
	}
	back := op.AttentionBackward{Q: a.Q, K: a.K, V: a.V, DocStart: a.DocStart, Scale: probeScale,
		Out: m.operand(c.out, 1, T, H, p.d), LSE: m.floats(c.lse, 1, H, T), DOut: m.operand(c.dout, 1, T, H, p.d),
		Delta: m.floats(notNumbers(T*H), 1, H, T), DQ: m.floats(notNumbers(nq), 1, T, H, p.d),
		DK: m.floats(notNumbers(nk), 1, T, 1, p.d), DV: m.operand(notNumbers(nk), 1, T, 1, p.d)}
	if m.err != nil {
		return m.err
	}
	if err := errors.Join(b.matrixAttention(a), b.matrixAttentionBackward(back, op.RoPE{})); err != nil {
		return err
	}
	for _, r := range []struct {
		name string
		x    op.Tensor
	}{{"out", a.Out}, {"lse", a.LSE}, {"dq", back.DQ}, {"dk", back.DK}, {"dv", back.DV}} {
		got, err := m.read(r.x)
		if err != nil {
			return err
		}
		if err := c.check(r.name, got); err != nil {
			return err
		}
	}
	return nil
}
