package optest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// env is one running case: tensors that exist on two sides, the device under
// test and the float64 reference.
type env struct {
	name    string
	seed    uint64
	streams uint64
	dev     *op.Runner
	ref     *op.Runner
	refMem  *ref.Backend[float64]
	all     []*tens
	res     Result
	n       int          // tensors made, for their offsets
	round   tensor.DType // of drawn values; F32 leaves them

	operands tensor.DType // the type of operand tensors
}

func newEnv(name string, dev *op.Runner) *env {
	h := fnv.New64a()
	h.Write([]byte(name))
	mem := ref.New[float64]()
	return &env{name: name, seed: h.Sum64(), dev: dev, ref: op.NewRunner(mem), refMem: mem}
}

// role says what an op may do to a tensor.
type role uint8

const (
	input  role = iota // read only
	output             // starts as junk and is written wholly
	inout              // starts with values and is changed
)

// tens is one tensor on both sides. It lies inside a larger buffer whose rest
// must not change.
type tens struct {
	label  string
	typ    tensor.DType
	role   role
	dims   []int
	init   []byte // the whole buffer, guards included, as first written
	got    []byte // the tensor's bytes on the device, after the call
	off, n int    // in elements
	onDev  op.Tensor
	onRef  op.Tensor
}

// guardElems follow every tensor, and are as many as precede it at an offset.
const guardElems = op.AlignElems

func (e *env) add(label string, typ tensor.DType, r role, data []byte, dims []int) *tens {
	x := &tens{label: label, typ: typ, role: r, dims: dims, n: op.Of(nil, 0, dims...).Len()}
	x.off = e.n % 3 * op.AlignElems
	e.n++
	size := typ.Size()
	x.init = make([]byte, (x.off+x.n+guardElems)*size)
	for i := range x.init {
		x.init[i] = junk(typ, i)
	}
	copy(x.init[x.off*size:], data)
	e.all = append(e.all, x)
	return x
}

// junk is byte i of a buffer of NaN: all ones as F32 (and −1 as an integer), the
// NaN that every conversion keeps, 0xfe00, as F16.
func junk(typ tensor.DType, i int) byte {
	switch {
	case typ != tensor.F16:
		return 0xff
	case i%2 == 0:
		return 0
	}
	return 0xfe
}

// in makes an input of the given values.
func (e *env) in(label string, v []float32, dims ...int) *tens {
	return e.add(label, tensor.F32, input, tensor.Bytes(v), dims)
}

// acc makes a tensor of the given values that the op changes.
func (e *env) acc(label string, v []float32, dims ...int) *tens {
	return e.add(label, tensor.F32, inout, tensor.Bytes(v), dims)
}

// out makes an output, full of NaN.
func (e *env) out(label string, dims ...int) *tens {
	return e.add(label, tensor.F32, output, nil, dims)
}

// out16 is out with float16 elements.
func (e *env) out16(label string, dims ...int) *tens {
	return e.add(label, tensor.F16, output, nil, dims)
}

// weight makes an input of type F32, or of F16 by rounding.
func (e *env) weight(label string, half bool, v []float32, dims ...int) *tens {
	if !half {
		return e.in(label, v, dims...)
	}
	return e.add(label, tensor.F16, input, tensor.Bytes(toHalf(v)), dims)
}

// operand makes an operand tensor of the case's type that the op reads.
func (e *env) operand(label string, v []float32, dims ...int) *tens {
	if e.operands == tensor.F32 {
		return e.in(label, v, dims...)
	}
	bits := make([]uint16, len(v))
	for i, x := range v {
		bits[i] = operandBits(e.operands, x)
	}
	return e.add(label, e.operands, input, tensor.Bytes(bits), dims)
}

// accOperand is acc for an operand tensor of the case's type.
func (e *env) accOperand(label string, v []float32, dims ...int) *tens {
	x := e.operand(label, v, dims...)
	x.role = inout
	return x
}

// outOperand is out for an operand tensor of the case's type.
func (e *env) outOperand(label string, dims ...int) *tens {
	return e.add(label, e.operands, output, nil, dims)
}

func toHalf(v []float32) []uint16 {
	h := make([]uint16, len(v))
	for i, x := range v {
		h[i] = tensor.ToF16(x)
	}
	return h
}

// ids makes an input of integers.
func (e *env) ids(label string, v []int32, dims ...int) *tens {
	return e.add(label, tensor.I32, input, tensor.Bytes(v), dims)
}

// codes makes 8-bit integers that the op changes.
func (e *env) codes(label string, v []int8, dims ...int) *tens {
	return e.add(label, tensor.I8, inout, tensor.Bytes(v), dims)
}

// normal draws n values of mean 0 and the given standard deviation from the
// case's generator: the sum of four uniform values, which is nearly normal and
// cheap enough for millions.
func (e *env) normal(std float64, n int) []float32 {
	e.streams++
	v := make([]float32, n)
	state := e.seed + e.streams*0x9e3779b97f4a7c15
	for i := range v {
		// SplitMix64 (Steele, Lea and Flood, 2014).
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		sum := z&0xffff + z>>16&0xffff + z>>32&0xffff + z>>48
		v[i] = float32((float64(sum)/(1<<16) - 2 + 0x1p-15) * math.Sqrt(3) * std)
	}
	return rounded(v, e.round)
}

// intn draws n integers in [0, limit).
func (e *env) intn(limit, n int) []int32 {
	e.streams++
	g := tensor.NewRNG(e.seed, e.streams)
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(g.Intn(uint64(i), limit))
	}
	return v
}

// side is where a case's calls go.
type side struct {
	*op.Runner
	ref bool
}

// t is the side's tensor; nil stands for an absent argument.
func (s side) t(x *tens) op.Tensor {
	switch {
	case x == nil:
		return op.Tensor{}
	case s.ref:
		return x.onRef
	}
	return x.onDev
}

// write replaces a tensor's values between two calls of a case.
func (s side) write(x *tens, v []float32) { op.WriteSlice(s.Runner, s.t(x), v) }

// run allocates all tensors, makes the calls once on the reference and twice on
// the device from the same beginning, and keeps the device's results. Different
// bits the second time, a changed input, or anything written outside a tensor
// is an error.
func (e *env) run(calls func(s side)) {
	e.alloc(e.ref, true)
	e.alloc(e.dev, false)
	if e.res.Err != nil {
		return
	}
	calls(side{e.ref, true})
	if err := e.ref.Err(); err != nil {
		e.fail(fmt.Errorf("reference: %w", err))
		return
	}
	for again := range 2 {
		for _, x := range e.all {
			whole := op.Of(x.onDev.Buf, 0, x.onDev.Buf.Len())
			e.dev.Write(whole, x.init)
		}
		calls(side{e.dev, false})
		for _, x := range e.all {
			e.collect(x, again == 1)
		}
		if e.res.Err != nil {
			return
		}
	}
}

func (e *env) alloc(r *op.Runner, onRef bool) {
	for _, x := range e.all {
		buf, err := r.Backend().Alloc(x.label, x.typ, x.off+x.n+guardElems)
		if err != nil {
			e.fail(err)
			return
		}
		view := op.Of(buf, x.off, x.dims...)
		if onRef {
			x.onRef = view
			r.Write(op.Of(buf, 0, buf.Len()), x.init)
		} else {
			x.onDev = view
		}
	}
}

// collect reads a tensor with its surroundings and checks what must not change.
func (e *env) collect(x *tens, again bool) {
	if e.res.Err != nil {
		return
	}
	whole := make([]byte, len(x.init))
	if err := e.dev.Read(whole, op.Of(x.onDev.Buf, 0, x.onDev.Buf.Len())); err != nil {
		e.fail(err)
		return
	}
	size := x.typ.Size()
	lo, hi := x.off*size, (x.off+x.n)*size
	if i := differ(whole[:lo], x.init[:lo]); i >= 0 {
		e.fail(fmt.Errorf("%s: element %d before the tensor was overwritten", x.label, x.off-i/size))
	}
	if i := differ(whole[hi:], x.init[hi:]); i >= 0 {
		e.fail(fmt.Errorf("%s: element %d after the tensor was overwritten", x.label, i/size+1))
	}
	if i := differ(whole[lo:hi], x.init[lo:hi]); i >= 0 && x.role == input {
		e.fail(fmt.Errorf("%s%v is an input and was changed", x.label, x.index(i/size)))
	}
	if i := differ(whole[lo:hi], x.got); again && i >= 0 {
		e.fail(fmt.Errorf("%s%v: the same call again gave other bits", x.label, x.index(i/size)))
	}
	x.got = whole[lo:hi]
}

// differ is the first position where a and b differ, −1 if they are equal.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// free gives the device's buffers back.
func (e *env) free() {
	for _, x := range e.all {
		if x.onDev.Buf != nil {
			e.dev.Backend().Free(x.onDev.Buf)
		}
	}
}

func (e *env) fail(err error) {
	if e.res.Err == nil {
		e.res.Err = err
	}
}

// index turns a flat index into one per dimension.
func (x *tens) index(i int) []int {
	at := make([]int, len(x.dims))
	for d := len(x.dims) - 1; d >= 0; d-- {
		at[d] = i % x.dims[d]
		i /= x.dims[d]
	}
	return at
}

// values decodes a tensor's bytes.
func (x *tens) values(b []byte) []float64 {
	v := make([]float64, x.n)
	for i := range v {
		switch x.typ {
		case tensor.F32:
			v[i] = float64(math.Float32frombits(le32(b[4*i:])))
		case tensor.F16:
			v[i] = float64(tensor.FromF16(uint16(b[2*i]) | uint16(b[2*i+1])<<8))
		case tensor.BF16:
			v[i] = float64(tensor.FromBF16(uint16(b[2*i]) | uint16(b[2*i+1])<<8))
		case tensor.I32:
			v[i] = float64(int32(le32(b[4*i:])))
		case tensor.I8:
			v[i] = float64(int8(b[i]))
		}
	}
	return v
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// before and after are a tensor's values on the device before and after the
// calls; want is what the reference computed.
func (x *tens) before() []float64 { return x.values(x.init[x.off*x.typ.Size():]) }
func (x *tens) after() []float64  { return x.values(x.got) }
func (e *env) want(x *tens) []float64 {
	return e.refMem.Data(x.onRef.Buf)[x.off : x.off+x.n]
}

// compare holds every element of x against the reference. bound gives the error
// allowed for element i.
func (e *env) compare(x *tens, bound func(i int) float64) {
	if e.res.Err != nil {
		return
	}
	e.compareTo(x.label, x, x.after(), e.want(x), bound)
}

// exact holds x against the reference without any allowance.
func (e *env) exact(x *tens) { e.compare(x, func(int) float64 { return 0 }) }

// unchanged says that the calls must not have touched x.
func (e *env) unchanged(x *tens) {
	if e.res.Err != nil {
		return
	}
	size := x.typ.Size()
	if i := differ(x.got, x.init[x.off*size:(x.off+x.n)*size]); i >= 0 {
		e.fail(fmt.Errorf("%s%v was changed, want it untouched", x.label, x.index(i/size)))
	}
}

func (e *env) compareTo(label string, x *tens, got, want []float64, bound func(i int) float64) {
	if e.res.Err != nil {
		return
	}
	for i, g := range got {
		err, limit := distance(g, want[i]), bound(i)
		if math.IsNaN(limit) || limit < 0 {
			e.fail(fmt.Errorf("%s%v: the case computed a bound of %v", label, x.index(i), limit))
			return
		}
		if e.worse(err, limit) {
			e.res.MaxErr, e.res.Bound = err, limit
			e.res.Where = fmt.Sprintf("%s%v = %.9g, want %.9g", label, x.index(i), g, want[i])
		}
	}
}

// worse reports whether an error is nearer to its bound than the worst so far.
func (e *env) worse(err, limit float64) bool {
	if e.res.Where == "" {
		return true
	}
	over, before := err > limit, e.res.MaxErr > e.res.Bound
	if over != before {
		return over
	}
	return err*e.res.Bound > e.res.MaxErr*limit
}

// distance is |got − want|; it is 0 for two NaN or the same infinity, and
// infinite where only one is such a value.
func distance(got, want float64) float64 {
	switch {
	case math.IsNaN(got) && math.IsNaN(want), got == want:
		return 0
	case math.IsNaN(got-want) || math.IsInf(got-want, 0):
		return math.Inf(1)
	}
	return math.Abs(got - want)
}
