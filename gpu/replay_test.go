package gpu_test

import (
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

// chain is a step of many dispatches, each of which needs the one before, with a
// number that changes from step to step, a copy and a clear.
type chain struct {
	d          *gpu.Device
	scale, add *gpu.Pipeline
	x, y, z    *gpu.Buffer
	number     *gpu.Buffer // 4 bytes that changing numbers go through
}

const chainSize = 1000

func newChain(t testing.TB, d *gpu.Device) *chain {
	c := &chain{d: d, scale: pipeline(t, d, "scale", scaleKernel), add: pipeline(t, d, "add", addKernel)}
	c.x, c.y, c.z = c.buffer(t, "x"), c.buffer(t, "y"), c.buffer(t, "z")
	c.number = floats(t, d, "number", []float32{0})
	return c
}

func (c *chain) buffer(t testing.TB, label string) *gpu.Buffer {
	return floats(t, c.d, label, make([]float32, chainSize))
}

// step adds number and then ones n times to x, doubles it into y each time, and
// keeps a copy in z. It returns what x and y hold then, from what x held.
func (c *chain) step(t testing.TB, n int, number, x float32) (newX, newY float32) {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	one, params := float32(1), scaleParams{chainSize, 2}
	ok(c.d.Upload(c.number, 0, gpu.Bytes([]float32{number})))
	ok(c.d.Dispatch(c.add, (chainSize+63)/64, 1, 1, gpu.Buf(c.x), gpu.Buf(c.number)))
	x += number
	for range n {
		ok(c.d.Dispatch(c.add, (chainSize+63)/64, 1, 1, gpu.Buf(c.x), gpu.UniformOf(&one)))
		ok(c.d.Dispatch(c.scale, (chainSize+63)/64, 1, 1, gpu.Buf(c.x), gpu.Buf(c.y), gpu.UniformOf(&params)))
		x++
	}
	ok(c.d.Clear(c.z, 0, 4*chainSize))
	ok(c.d.Copy(c.z, 8, c.y, 8, 4*chainSize-16))
	return x, 2 * x
}

// check reads everything and ends a step with it.
func (c *chain) check(t testing.TB, step int, x, y float32) {
	t.Helper()
	for _, b := range []struct {
		buffer *gpu.Buffer
		want   float32
	}{{c.x, x}, {c.y, y}, {c.z, y}} {
		for i, got := range read(t, c.d, b.buffer) {
			want := b.want
			if b.buffer == c.z && (i < 2 || i >= chainSize-2) {
				want = 0
			}
			if got != want {
				t.Fatalf("step %d: %s[%d] is %g, want %g", step, b.buffer.Label(), i, got, want)
			}
		}
	}
}

// recorded wants exactly n recordings by the call.
func recorded(t testing.TB, d *gpu.Device, what string, n uint64, call func()) {
	t.Helper()
	before, _ := gpu.Recorded(d)
	call()
	if after, ok := gpu.Recorded(d); ok && after-before != n {
		t.Errorf("%s: %d command buffers were recorded, want %d", what, after-before, n)
	}
}

// Equal steps submit the same command buffers again, with the numbers of their
// own. BatchSize cuts a step into several of them. (The second step's first
// barrier depends on the first step, so the third is the first that is equal.)
func TestEqualStepsAreRecordedOnce(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 20})
	c := newChain(t, d)
	x, y := float32(0), float32(0)
	for i := range 2 {
		x, y = c.step(t, 35, 3, x)
		c.check(t, i, x, y)
	}
	recorded(t, d, "equal steps", 0, func() {
		for i := range 20 {
			x, y = c.step(t, 35, float32(i%7)*0.5, x)
			c.check(t, i, x, y)
		}
	})
}

// Steps of two lengths take turns.
func TestTwoKindsOfSteps(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 16})
	c := newChain(t, d)
	x, y := float32(0), float32(0)
	for i := range 4 {
		x, y = c.step(t, 10+13*(i%2), 1, x)
		c.check(t, i, x, y)
	}
	recorded(t, d, "both kinds again", 0, func() {
		for i := range 10 {
			x, y = c.step(t, 10+13*(i%2), 2, x)
			c.check(t, i, x, y)
		}
	})
}

// The host runs ahead: a command buffer that is with the GPU must not be
// submitted, so equal ones are recorded, and kept for the next time.
func TestStepsAheadOfTheGPU(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 20})
	c := newChain(t, d)
	x, y := float32(0), float32(0)
	ahead := func() {
		for i := range 5 {
			x, y = c.step(t, 25, float32(i), x)
			if err := d.Submit(); err != nil { // a step ends at the end of a batch
				t.Fatal(err)
			}
		}
		c.check(t, 0, x, y)
	}
	ahead()
	ahead()
	recorded(t, d, "five steps ahead, again", 0, ahead)
}

// A uniform with other contents is another command; the old one comes back.
func TestReplayedStepsSeeTheirUniforms(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p, y := pipeline(t, d, "add", addKernel), floats(t, d, "y", make([]float32, 64))
	want := float32(0)
	for i := range 30 {
		add := float32(i%3) + 0.25
		for range 3 {
			if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(y), gpu.UniformOf(&add)); err != nil {
				t.Fatal(err)
			}
			want += add
		}
		if got := read(t, d, y)[63]; got != want {
			t.Fatalf("step %d: got %g, want %g", i, got, want)
		}
	}
}

// The step's buffers are released and made anew, so that new ones may lie where
// the old ones did, under the old handles. What lies there now and has nothing to
// do with the step must stay as it is.
func TestReleasedBuffersAreNotReplayed(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 20})
	c := newChain(t, d)
	for round := range 12 {
		x, y := float32(0), float32(0)
		for i := range 3 {
			x, y = c.step(t, 25, float32(round), x)
			c.check(t, i, x, y)
		}
		for _, b := range []*gpu.Buffer{c.x, c.y, c.z} {
			b.Release()
		}
		if err := d.Wait(); err != nil { // the memory is free
			t.Fatal(err)
		}
		bystander := c.buffer(t, "bystander")
		c.x, c.y, c.z = c.buffer(t, "x"), c.buffer(t, "y"), c.buffer(t, "z")
		x, y = c.step(t, 25, 1, 0)
		c.check(t, 3, x, y)
		for i, v := range read(t, d, bystander) {
			if v != 0 {
				t.Fatalf("round %d: the step wrote %g to element %d of a buffer that it does not use", round, v, i)
			}
		}
		bystander.Release()
		c.x.Release()
		c.x = c.buffer(t, "x")
	}
}

// Buffers go while work that uses them is recorded and submitted again.
func TestBuffersReleasedInUse(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 8})
	p := pipeline(t, d, "scale", scaleKernel)
	y := floats(t, d, "y", make([]float32, 64))
	for i := range 60 {
		x := floats(t, d, "x", []float32{float32(i)})
		params := scaleParams{1, 3}
		for range 3 {
			if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(x), gpu.Buf(y), gpu.UniformOf(&params)); err != nil {
				t.Fatal(err)
			}
		}
		x.Release()
		if i%4 == 3 {
			if got := read(t, d, y)[0]; got != 3*float32(i) {
				t.Fatalf("step %d gave %g, want %d", i, got, 3*i)
			}
		}
	}
}

// Timed steps are recorded each time, give the same numbers, and leave the
// others' command buffers as they were.
func TestTimingBetweenReplayedSteps(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 20})
	c := newChain(t, d)
	x, y := float32(0), float32(0)
	for i := range 6 {
		again := func() {
			x, y = c.step(t, 25, 1, x)
			c.check(t, i, x, y)
		}
		if i < 2 {
			again()
		} else {
			recorded(t, d, "a step without timing", 0, again)
		}
		err := d.StartTiming(100)
		if err == nil {
			x, y = c.step(t, 25, 1, x)
			var times []gpu.KernelTime
			if times, err = d.StopTiming(); len(times) != 51 && err == nil {
				t.Fatalf("%d dispatches were timed, want 51", len(times))
			}
			c.check(t, i, x, y)
		}
		if err != nil {
			t.Skip(err)
		}
	}
}

// A dispatch whose bind group is known makes no object.
func TestDispatchAllocatesNothing(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 10_000}) // none is handed over
	if _, ok := gpu.Recorded(d); !ok {
		t.Skip("the binding makes objects")
	}
	c := newChain(t, d)
	one, params := float32(1), scaleParams{chainSize, 2}
	add := []gpu.Binding{gpu.Buf(c.x), gpu.UniformOf(&one)}
	scale := []gpu.Binding{gpu.Buf(c.x), gpu.Buf(c.y), gpu.UniformOf(&params)}
	step := func() {
		for range 50 {
			if err := d.Dispatch(c.add, 1, 1, 1, add...); err != nil {
				t.Fatal(err)
			}
			if err := d.Dispatch(c.scale, 1, 1, 1, scale...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("%v objects for 100 dispatches, want none", n)
	}
}
