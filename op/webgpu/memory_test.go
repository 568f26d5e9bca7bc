package webgpu

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// board is a backend with helpers for the tests below.
type board struct {
	*Backend
	t testing.TB
	r *op.Runner
}

func newBoard(t testing.TB, o gpu.Options) *board {
	b := open(t, o, Options{})
	t.Cleanup(func() { b.Close() })
	return &board{b, t, op.NewRunner(b)}
}

func (b *board) buffer(typ tensor.DType, n int) op.Buffer {
	b.t.Helper()
	buf, err := b.Alloc("test", typ, n)
	if err != nil {
		b.t.Fatal(err)
	}
	return buf
}

func (b *board) floats(v ...float32) op.Tensor {
	x := op.Of(b.buffer(tensor.F32, len(v)), 0, len(v))
	op.WriteSlice(b.r, x, v)
	return x
}

func (b *board) read(x op.Tensor) []float32 {
	b.t.Helper()
	v := make([]float32, x.Len())
	if err := op.ReadSlice(b.r, v, x); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// numbers is from, from + 1, ….
func numbers(from, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(from + i)
	}
	return v
}

// TestOddOffsets has tensors that begin where no device can bind them.
func TestOddOffsets(t *testing.T) {
	b := newBoard(t, gpu.Options{ForceDefaultLimits: true})
	x := b.floats(numbers(0, 1000)...)
	dst, src := op.Of(x.Buf, 7, 100), op.Of(x.Buf, 301, 100)
	b.r.Add(op.Add{Dst: dst, Src: src})
	got := b.read(x)
	for i, v := range got {
		want := float32(i)
		if i >= 7 && i < 107 {
			want += float32(i - 7 + 301)
		}
		if v != want {
			t.Fatalf("x[%d] is %v, want %v", i, v, want)
		}
	}
}

// TestOneBuffer has inputs and outputs in one buffer, apart and in one place.
func TestOneBuffer(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	x := b.floats(numbers(0, 1024)...)
	b.r.Add(op.Add{Dst: op.Of(x.Buf, 0, 200), Src: op.Of(x.Buf, 512, 200)}) // apart
	b.r.Add(op.Add{Dst: op.Of(x.Buf, 256, 100), Src: op.Of(x.Buf, 256, 100)})
	got := b.read(x)
	for i, v := range got {
		want := float32(i)
		switch {
		case i < 200:
			want += float32(i + 512)
		case i >= 256 && i < 356:
			want *= 2
		}
		if v != want {
			t.Fatalf("x[%d] is %v, want %v", i, v, want)
		}
	}
}

// TestSmallElements writes, copies and clears parts of words.
func TestSmallElements(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	x := op.Of(b.buffer(tensor.I8, 23), 0, 23)
	bytes := make([]int8, 23)
	for i := range bytes {
		bytes[i] = int8(i + 1)
	}
	op.WriteSlice(b.r, x, bytes)
	op.WriteSlice(b.r, op.Of(x.Buf, 5, 3), []int8{-1, -2, -3})
	b.r.Copy(op.Of(x.Buf, 20, 3), op.Of(x.Buf, 5, 3))
	b.r.Zero(op.Of(x.Buf, 9, 2))
	copy(bytes[5:], []int8{-1, -2, -3})
	copy(bytes[20:], bytes[5:8])
	bytes[9], bytes[10] = 0, 0
	got := make([]int8, 23)
	if err := op.ReadSlice(b.r, got, x); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != bytes[i] {
			t.Fatalf("got %v, want %v", got, bytes)
		}
	}
}

// TestAllocRefuses lists what cannot be allocated.
func TestAllocRefuses(t *testing.T) {
	b := newBoard(t, gpu.Options{DisableF16: true})
	for say, call := range map[string]func() (op.Buffer, error){
		"at least 1": func() (op.Buffer, error) { return b.Alloc("x", tensor.F32, 0) },
		"float16":    func() (op.Buffer, error) { return b.Alloc("x", tensor.F16, 4) },
		"want F32":   func() (op.Buffer, error) { return b.Alloc("x", tensor.I64, 4) },
		"split":      func() (op.Buffer, error) { return b.Alloc("x", tensor.F32, 1<<30) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want an error that says %q", err, say)
		}
	}
	if now, _ := b.MemoryBytes(); now != 0 {
		t.Errorf("%d bytes are counted after allocations that failed", now)
	}
}

// TestSteadyState repeats an optimizer's step and a position of decoding a
// thousand times, and now and then a whole training step: nothing may be
// compiled, allocated on the device, or kept on the host after the first rounds.
func TestSteadyState(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	s := newStepBench(t, b.Backend, stepConfig{b: 1, t: 12, c: 32, l: 1, h: 2, kvh: 1, f: 16, v: 16, headRows: 12}, true)
	cache := [2]op.Tensor{s.f32(1, 64, 1, 16), s.f32(1, 64, 1, 16)}
	one, q, out := s.f32(1, 1, 1, 16), s.f32(1, 2, 16), s.f32(1, 2, 16)
	round := func(i int) {
		b.r.KVAppend(op.KVAppend{K: one, V: one, KCache: cache[0], VCache: cache[1], Pos: i})
		b.r.AttentionDecode(op.AttentionDecode{Q: q, KCache: cache[0], VCache: cache[1], Out: out, Len: i%64 + 1, Scale: 1})
		s.params = s.params[:2]
		s.optimize()
		if i%50 == 0 {
			s.forward()
			s.headLoss()
			s.backward()
		}
		if err := b.r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 1, 50} {
		round(i)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	compiled, memory, before := b.Compiled(), b.dev.Memory(), heap()
	const rounds = 1000
	for i := range rounds {
		round(i)
	}
	if got := b.Compiled(); got != compiled {
		t.Errorf("%d kernels were compiled after the first rounds", got-compiled)
	}
	if got := b.dev.Memory(); got.Live != memory.Live || got.Buffers != memory.Buffers {
		t.Errorf("device memory went from %+v to %+v", memory, got)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes in %d rounds", before, after, rounds)
	}
}

// TestStepIsDeterministic runs the same steps on two backends: all weights must
// be equal to the bit.
func TestStepIsDeterministic(t *testing.T) {
	weights := func() [][]float32 {
		b := newBoard(t, gpu.Options{})
		s := newStepBench(t, b.Backend, stepConfig{b: 2, t: 40, c: 48, l: 2, h: 3, kvh: 1, f: 80, v: 130, headRows: 40}, true)
		for range 3 {
			if err := s.run(); err != nil {
				t.Fatal(err)
			}
		}
		var all [][]float32
		for _, p := range s.params {
			all = append(all, b.read(p.w))
		}
		return all
	}
	first, second := weights(), weights()
	moved := false
	for p := range first {
		for i := range first[p] {
			if math.Float32bits(first[p][i]) != math.Float32bits(second[p][i]) {
				t.Fatalf("weight %d of parameter %d is %v and then %v", i, p, first[p][i], second[p][i])
			}
			moved = moved || first[p][i] != first[p][0]
		}
	}
	if !moved {
		t.Error("all weights are equal: the steps did nothing")
	}
}
