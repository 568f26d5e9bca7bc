//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// openTest opens the first adapter. TEZGAH_REQUIRE_GPU=1 makes a missing one a
// failure.
func openTest(t *testing.T) *Device {
	t.Helper()
	list, notes, err := Adapters()
	if err != nil || len(list) == 0 {
		if os.Getenv("TEZGAH_REQUIRE_GPU") == "1" {
			t.Fatalf("TEZGAH_REQUIRE_GPU=1, but there is no Vulkan adapter: %v %v", err, notes)
		}
		t.Skipf("no Vulkan adapter: %v %v", err, notes)
	}
	d, err := Open(list[0], Options{})
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testBuffer(t *testing.T, d *Device, size uint64) *Buffer {
	t.Helper()
	b, err := d.NewBuffer(size)
	must(t, err)
	t.Cleanup(func() {
		if must(t, d.Wait()); b.handle != 0 {
			d.FreeBuffer(b)
		}
	})
	return b
}

func contents(t *testing.T, d *Device, b *Buffer) []byte {
	t.Helper()
	out := make([]byte, b.size)
	must(t, d.Download([]Read{{Buffer: b, Dst: out}}))
	return out
}

// script is commands on buffers, and what they do to the buffers' bytes.
type script struct {
	d       *Device
	buffers []*Buffer
	bytes   [][]byte // what the buffers must hold
}

// random adds a random command. The same numbers of shape give the same command,
// of data the same bytes to upload.
func (s *script) random(t *testing.T, shape, data *rand.Rand) {
	t.Helper()
	to, from := shape.IntN(len(s.buffers)), shape.IntN(len(s.buffers))
	off, other := 4*shape.IntN(len(s.bytes[to])/4), 4*shape.IntN(len(s.bytes[from])/4)
	n := 4 * (1 + shape.IntN(min(len(s.bytes[to])-off, len(s.bytes[from])-other)/4))
	switch kind := shape.IntN(8); {
	case kind < 3 && to != from:
		s.d.Copy(s.buffers[to], uint64(off), s.buffers[from], uint64(other), uint64(n))
		copy(s.bytes[to][off:off+n], s.bytes[from][other:other+n])
	case kind == 3:
		s.d.Clear(s.buffers[to], uint64(off), uint64(n))
		clear(s.bytes[to][off : off+n])
	default:
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(data.Uint32())
		}
		must(t, s.d.Upload(s.buffers[to], uint64(off), p))
		copy(s.bytes[to][off:], p)
	}
}

func (s *script) check(t *testing.T, what string) {
	t.Helper()
	for i, b := range s.buffers {
		if got := contents(t, s.d, b); !bytes.Equal(got, s.bytes[i]) {
			t.Fatalf("%s: buffer %d differs", what, i)
		}
	}
}

func newScript(t *testing.T, d *Device, sizes ...int) *script {
	s := &script{d: d}
	for _, n := range sizes {
		s.buffers = append(s.buffers, testBuffer(t, d, uint64(n)))
		s.bytes = append(s.bytes, make([]byte, n))
	}
	return s
}

// TestScripts runs three random scripts again and again, in any order, with other
// data to upload each time, and compares with what Go computes. Once every script
// has followed every other, nothing is recorded.
func TestScripts(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 4096, 100_000, 1028)
	run := func(seed, data uint64) {
		shape, values := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(data, 1))
		for range 3 {
			for range 12 {
				s.random(t, shape, values)
			}
			must(t, d.Submit())
		}
	}
	order := []uint64{0, 0, 1, 1, 2, 2, 0, 2, 1, 0}
	for round := range 6 {
		before := d.Recorded()
		for i, seed := range order {
			run(seed, uint64(100*round+i))
			s.check(t, "a script")
		}
		if n := d.Recorded() - before; round > 1 && n != 0 {
			t.Errorf("round %d recorded %d command buffers, want none", round, n)
		}
	}
	for i := range 200 { // no waits between
		run(uint64(i*i%3), uint64(i))
	}
	s.check(t, "scripts without waits")
}

// TestLargeUploads goes past what a batch's own staging memory takes.
func TestLargeUploads(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 9<<20)
	for i, n := range []int{maxOwnBytes - 4, 4, 4, maxOwnBytes, maxOwnBytes + 4, 12, 9 << 20, 100} {
		p := bytes.Repeat([]byte{byte(i + 1), 2, byte(i), 4}, n/4)
		off := (9<<20 - n) / 8 * 4
		must(t, d.Upload(s.buffers[0], uint64(off), p))
		copy(s.bytes[0][off:], p)
	}
	s.check(t, "uploads of all sizes")
}

// TestPendingIsNotSubmittedAgain submits one list several times without looking
// whether the GPU is done.
func TestPendingIsNotSubmittedAgain(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 64)
	submit := func(value byte) {
		must(t, d.Upload(s.buffers[0], 0, bytes.Repeat([]byte{value}, 64)))
		must(t, d.Submit())
	}
	must(t, d.Wait())
	submit(0)
	must(t, d.Wait())
	before := d.Recorded()
	for i := range byte(5) {
		submit(i)
	}
	if n := d.Recorded() - before; n != 4 {
		t.Errorf("five equal batches with the GPU, of which one was there: %d recordings, want 4", n)
	}
	seen := map[vk.CommandBuffer]bool{}
	for _, b := range d.flying {
		if seen[b.commands] {
			t.Fatal("a command buffer is with the GPU twice")
		}
		seen[b.commands] = true
	}
	copy(s.bytes[0], bytes.Repeat([]byte{4}, 64))
	s.check(t, "five uploads")
	before = d.Recorded()
	for i := range byte(5) {
		submit(i + 10)
	}
	if n := d.Recorded() - before; n != 0 {
		t.Errorf("five equal batches, all of which are there: %d recordings, want none", n)
	}
}

// TestBarriersArePartOfABatch submits the same copy after what it must wait for
// and after what it need not.
func TestBarriersArePartOfABatch(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 64, 64, 64)
	x, y, z := s.buffers[0], s.buffers[1], s.buffers[2]
	last := func() command { return d.list.commands[len(d.list.commands)-1] }
	settle := func() { // a barrier that only z is after
		d.Clear(z, 0, 64)
		d.Clear(z, 0, 64)
		must(t, d.Wait())
	}
	var barriers []bool
	for _, wait := range []bool{false, true, false, true} {
		settle()
		if wait {
			d.Clear(x, 0, 64)
			must(t, d.Wait())
		}
		before := d.Recorded()
		d.Copy(y, 0, x, 0, 64)
		if last().barrier != wait {
			t.Fatalf("after a write %v: barrier %v", wait, last().barrier)
		}
		must(t, d.Wait())
		if n := d.Recorded() - before; n != 1 && len(barriers) < 2 || n != 0 && len(barriers) >= 2 {
			t.Errorf("copy %d was recorded %d times", len(barriers), n)
		}
		barriers = append(barriers, wait)
	}
}

// TestFreedObjectsAreForgotten frees a buffer that batches copy from and to.
func TestFreedObjectsAreForgotten(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 256, 256, 256)
	gone, kept := s.buffers[0], s.buffers[1:]
	for _, pair := range [][2]*Buffer{{gone, kept[0]}, {kept[0], gone}, {kept[0], kept[1]}} {
		d.Copy(pair[0], 0, pair[1], 0, 256)
		must(t, d.Wait())
	}
	d.FreeBuffer(gone)
	d.Copy(kept[1], 0, kept[0], 0, 256)
	must(t, d.Wait())
	for _, b := range d.idle {
		for _, c := range b.holds {
			if c.src == gone || c.dst == gone || c.stale() {
				t.Fatal("a batch still holds a command with a freed buffer")
			}
		}
	}
	before, batches := d.Recorded(), len(d.idle)
	d.Copy(kept[0], 0, kept[1], 128, 64)
	must(t, d.Wait())
	if d.Recorded() != before+1 || len(d.idle) != batches {
		t.Errorf("%d batches after %d: one that holds nothing any more must be used before a new one is made", len(d.idle), batches)
	}
}

// TestStale looks at every kind of object that a command names.
func TestStale(t *testing.T) {
	p, g, b := &Pipeline{handle: 1}, &Group{set: 1}, &Buffer{handle: 1}
	live := command{pipeline: p, group: g, src: b, dst: b}
	if live.stale() || (command{}).stale() {
		t.Error("live objects are taken for freed ones")
	}
	for what, c := range map[string]command{
		"pipeline": {pipeline: &Pipeline{}, group: g}, "group": {pipeline: p, group: &Group{}},
		"source": {src: &Buffer{}, dst: b}, "destination": {src: b, dst: &Buffer{}},
	} {
		if !c.stale() {
			t.Errorf("a freed %s is taken for a live one", what)
		}
		keep, drop := &batch{holds: []command{live}}, &batch{holds: []command{live, c}}
		d := &Device{idle: []*batch{keep, drop}, stale: true}
		d.dropStale()
		if len(keep.holds) != 1 || len(drop.holds) != 0 || d.idle[0] != drop || d.idle[1] != keep || d.stale {
			t.Errorf("a freed %s: the batch with it must hold nothing and come first", what)
		}
	}
}

// TestManyDifferentBatches bounds what is kept, and finds what was used last.
func TestManyDifferentBatches(t *testing.T) {
	d := openTest(t)
	x, y := testBuffer(t, d, 4096), testBuffer(t, d, 4096)
	submit := func(i int) {
		d.Copy(y, uint64(4*i), x, 0, 4)
		d.Copy(x, 8, y, uint64(4*i), 4)
		must(t, d.Submit())
	}
	for i := range 3 * maxBatches {
		submit(i)
		if i%40 == 0 {
			must(t, d.Wait())
		}
	}
	must(t, d.Wait())
	if n := len(d.idle); n > maxBatches {
		t.Errorf("%d batches are kept, want at most %d", n, maxBatches)
	}
	before := d.Recorded()
	for i := 3*maxBatches - 100; i < 3*maxBatches; i++ {
		submit(i)
	}
	if n := d.Recorded() - before; n > 1 { // the first one's barrier may differ
		t.Errorf("%d of the last 100 batches were recorded again", n)
	}
}

// TestLostBatch fails a submission: its work is lost, and what comes next waits for
// all before it.
func TestLostBatch(t *testing.T) {
	d := openTest(t)
	s := newScript(t, d, 64, 64)
	must(t, d.Wait())
	d.Copy(s.buffers[0], 0, s.buffers[1], 0, 64)
	d.list.commands = append(d.list.commands, command{kind: upload, dst: s.buffers[0], n: 1 << 62})
	d.list.uploads = make([]byte, 64)
	d.memory.types.MemoryTypeCount = 0 // there is no memory for its uploads
	err := d.Submit()
	d.cmds.GetPhysicalDeviceMemoryProperties(d.a.physical, &d.memory.types)
	if err == nil || !d.list.empty() {
		t.Fatalf("a batch without memory for its uploads gave %v and left %d commands", err, len(d.list.commands))
	}
	d.Clear(s.buffers[1], 0, 64)
	if !d.list.commands[0].barrier {
		t.Error("the first command after a lost batch does not wait")
	}
	s.check(t, "after a lost batch")
}
