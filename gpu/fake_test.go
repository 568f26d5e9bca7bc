package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeDriver runs nothing; its next call of a kind may fail or panic.
type fakeDriver struct {
	fail    map[string]error // by method; "panic" as the error's text panics
	batch   uint64
	open    bool
	freed   []string
	live    int
	groups  int
	uploads int
	free    uint64
}

func (f *fakeDriver) freeBytes() uint64 { return f.free }

func (f *fakeDriver) do(method string) error {
	err := f.fail[method]
	if err != nil && err.Error() == "panic" {
		panic("index out of range")
	}
	return err
}

func (f *fakeDriver) newBuffer(label string, _ uint64, _ bool) (any, error) {
	f.live++
	return label, f.do("newBuffer")
}
func (f *fakeDriver) freeBuffer(b any) { f.live--; f.freed = append(f.freed, b.(string)) }
func (f *fakeDriver) newPipeline(label, source, _ string, _ []Slot) (any, error) {
	if err := f.do("newPipeline"); err != nil {
		return nil, newShaderError(label, "fake", source, err.Error())
	}
	f.live++
	return label, nil
}
func (f *fakeDriver) freePipeline(any) { f.live-- }
func (f *fakeDriver) newGroup(string, any, []driverRange) (any, error) {
	f.groups++
	return f.groups, f.do("newGroup")
}
func (f *fakeDriver) freeGroup(any) { f.groups-- }
func (f *fakeDriver) dispatch(_, _ any, _, _, _ uint32) error {
	f.open = true
	return f.do("dispatch")
}
func (f *fakeDriver) copyBuffer(any, uint64, any, uint64, uint64) error { return f.do("copy") }
func (f *fakeDriver) clear(any, uint64, uint64) error                   { return f.do("clear") }
func (f *fakeDriver) upload(any, uint64, []byte, bool) error            { f.uploads++; return f.do("upload") }
func (f *fakeDriver) download([]driverRead) error                       { return f.do("download") }
func (f *fakeDriver) submit() error {
	if f.open {
		f.open = false
		f.batch++
	}
	return f.do("submit")
}
func (f *fakeDriver) wait() error { return errors.Join(f.submit(), f.do("wait")) }
func (f *fakeDriver) pending() uint64 {
	if f.open {
		return f.batch + 1
	}
	return f.batch
}
func (f *fakeDriver) startTiming(int) error { return f.do("startTiming") }
func (f *fakeDriver) stopTiming() ([]float64, error) {
	return []float64{10, 30, 15, 70}, f.do("stopTiming")
}
func (f *fakeDriver) done() uint64 { return f.batch }
func (f *fakeDriver) close()       {}

func fakeDevice() (*Device, *fakeDriver) {
	f := &fakeDriver{fail: map[string]error{}}
	d := newDevice(AdapterInfo{Name: "fake"}, DefaultLimits(), f)
	return d, f
}

const fakeKernel = "@group(0) @binding(0) var<storage, read_write> y: array<u32>; @compute @workgroup_size(1) fn main() {}"

// A lost device fails every later call with ErrLost, and can still be closed.
func TestLostDeviceStaysLost(t *testing.T) {
	for _, method := range []string{"dispatch", "submit", "wait", "download", "upload", "newBuffer"} {
		d, f := fakeDevice()
		b, err := d.NewBuffer("b", 64)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.NewPipeline("k", fakeKernel)
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]func() error{
			"dispatch":  func() error { return d.Dispatch(p, 1, 1, 1, Buf(b)) },
			"submit":    d.Submit,
			"wait":      d.Wait,
			"download":  func() error { return d.Download(b, 0, make([]byte, 4)) },
			"upload":    func() error { return d.Upload(b, 0, make([]byte, 4)) },
			"newBuffer": func() error { _, err := d.NewBuffer("c", 4); return err },
		}
		f.fail[method] = fmt.Errorf("%w: the driver was reset", ErrLost)
		if err := calls[method](); !errors.Is(err, ErrLost) || !d.Lost() {
			t.Errorf("%s: got %v, lost %v; want ErrLost", method, err, d.Lost())
		}
		delete(f.fail, method)
		for name, call := range calls {
			if err := call(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "reset") {
				t.Errorf("%s after losing the device in %s: got %v, want the same ErrLost", name, method, err)
			}
		}
		d.Close()
	}
}

func TestOutOfMemoryLeavesTheDeviceUsable(t *testing.T) {
	d, f := fakeDevice()
	held, err := d.NewBuffer("held", 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	f.free = 3 << 19
	f.fail["newBuffer"] = fmt.Errorf("%w: vkAllocateMemory returned -2", ErrOutOfMemory)
	_, err = d.NewBuffer("big", 1<<20)
	for _, say := range []string{`"big" of 1048576 bytes`, "3.0 MiB are in this program's buffers", "1.5 MiB free", "close what else uses the GPU"} {
		if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want an ErrOutOfMemory that says %q", err, say)
		}
	}
	delete(f.fail, "newBuffer")
	held.Release()
	if _, err := d.NewBuffer("small", 4); err != nil || d.Lost() {
		t.Errorf("after it: %v, lost %v", err, d.Lost())
	}
	if m := d.Memory(); m.Live != 4 || m.Buffers != 1 {
		t.Errorf("memory is %+v, want 4 bytes in 1 buffer", m)
	}
}

func TestPanicInTheBindingIsAnError(t *testing.T) {
	d, f := fakeDevice()
	b, _ := d.NewBuffer("b", 64)
	p, err := d.NewPipeline("kern", fakeKernel)
	if err != nil {
		t.Fatal(err)
	}
	f.fail["dispatch"] = errors.New("panic")
	err = d.Dispatch(p, 1, 1, 1, Buf(b))
	if err == nil || !strings.Contains(err.Error(), "kern") || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("got %v, want an error with the kernel and the panic", err)
	}
	f.fail["wait"] = errors.New("panic")
	if err := d.Wait(); err == nil {
		t.Error("a panic in wait vanished")
	}
}

// Releasing a buffer takes its bind groups with it, but not before the work
// that uses them is submitted and done.
func TestReleaseFreesBindGroups(t *testing.T) {
	d, f := fakeDevice()
	b, _ := d.NewBuffer("b", 1024)
	keep, _ := d.NewBuffer("keep", 1024)
	p, err := d.NewPipeline("k", fakeKernel)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4) {
		for range 3 {
			if err := d.Dispatch(p, 1, 1, 1, Range(b, 256*i, 256)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Dispatch(p, 1, 1, 1, Buf(keep)); err != nil {
		t.Fatal(err)
	}
	if f.groups != 5 {
		t.Errorf("%d bind groups after 13 dispatches, want 5", f.groups)
	}
	b.Release()
	if f.groups != 5 || len(f.freed) != 0 {
		t.Errorf("freed while recorded: %d groups, buffers %v", f.groups, f.freed)
	}
	if err := d.Submit(); err != nil {
		t.Fatal(err)
	}
	if f.groups != 1 || len(f.freed) != 1 || f.freed[0] != "b" {
		t.Errorf("after the work: %d groups (want 1), freed %v (want b)", f.groups, f.freed)
	}
	if err := d.Dispatch(p, 1, 1, 1, Buf(keep)); err != nil || f.groups != 1 {
		t.Errorf("the other buffer's group: %v, %d groups", err, f.groups)
	}
	d.Close()
	if f.groups != 0 || f.live != 0 {
		t.Errorf("after Close: %d groups, %d objects", f.groups, f.live)
	}
}

func TestBindGroupCacheIsBounded(t *testing.T) {
	d, f := fakeDevice()
	p, err := d.NewPipeline("k", strings.Replace(fakeKernel, "@compute", "@group(0) @binding(1) var<uniform> u: u32; @compute", 1))
	if err != nil {
		t.Fatal(err)
	}
	var bufs [5]*Buffer
	for i := range bufs {
		bufs[i], _ = d.NewBuffer("b", 64)
	}
	for i := range 4000 {
		for _, b := range bufs {
			if err := d.Dispatch(p, 1, 1, 1, Buf(b), Uniform([]byte{byte(i), byte(i >> 8), 0, 0})); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Wait(); err != nil {
		t.Fatal(err)
	}
	if f.groups != maxGroups || len(d.groups.byKey) != maxGroups {
		t.Errorf("%d bind groups alive and %d cached after 20,000 different ones, want %d", f.groups, len(d.groups.byKey), maxGroups)
	}
	if f.uploads != 4000 {
		t.Errorf("%d uploads for 4,000 different uniforms", f.uploads)
	}
}

func TestSamePipelineForSameSource(t *testing.T) {
	d, f := fakeDevice()
	p, err := d.NewPipeline("one", fakeKernel)
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewPipeline("two", fakeKernel)
	if err != nil || p != q {
		t.Errorf("the same source compiled twice (%v)", err)
	}
	f.fail["newPipeline"] = errors.New("3:9: unknown name")
	_, err = d.NewPipeline("bad", fakeKernel+"\n\nlet x = y;")
	var s *ShaderError
	if !errors.As(err, &s) || s.Line != 3 || !strings.Contains(s.Excerpt, "let x = y;") {
		t.Errorf("got %v, want a ShaderError of line 3", err)
	}
}

// The second dispatch was noted as started before the first ended.
func TestTimesDoNotOverlap(t *testing.T) {
	d, f := fakeDevice()
	b, _ := d.NewBuffer("b", 4)
	p, err := d.NewPipeline("k", fakeKernel)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.StartTiming(2), d.Dispatch(p, 1, 1, 1, Buf(b)), d.Dispatch(p, 1, 1, 1, Buf(b)), d.Dispatch(p, 1, 1, 1, Buf(b))); err != nil {
		t.Fatal(err)
	}
	times, err := d.StopTiming()
	if want := []KernelTime{{"k", 20}, {"k", 40}}; err != nil || !slices.Equal(times, want) {
		t.Errorf("got %v, %v, want %v", times, err, want)
	}
	f.fail["startTiming"] = ErrNoTimestamps
	if err := d.StartTiming(1); !errors.Is(err, ErrNoTimestamps) {
		t.Errorf("got %v, want ErrNoTimestamps", err)
	}
	if _, err := d.StopTiming(); !errors.Is(err, ErrValidation) {
		t.Errorf("StopTiming alone: got %v, want ErrValidation", err)
	}
}

func TestLineInMessage(t *testing.T) {
	for message, want := range map[string]int{
		"12:5: x": 12, "error at line 7, column 3": 7, "vulkan failed: -13": 0, "": 0, "a:b 3: 4": 0, "v1.2 at 40:1": 40,
		"line 99999999999999": 999999999,
	} {
		if got := lineInMessage(message); got != want {
			t.Errorf("%q: line %d, want %d", message, got, want)
		}
	}
}

// manyDriver takes kernels from several goroutines at once and counts them.
type manyDriver struct {
	*fakeDriver
	sync.Mutex
	compiled map[string]int // by label
}

func (m *manyDriver) compile(label string, broken bool) (any, error) {
	m.Lock()
	defer m.Unlock()
	m.compiled[label]++
	if broken {
		return nil, errors.New("no")
	}
	return label, nil
}
func (m *manyDriver) newPipeline(label, _, _ string, _ []Slot) (any, error) {
	return m.compile(label, false)
}
func (m *manyDriver) newModule(label string, o Module) (any, error) {
	return m.compile(label, len(o.Code) == 0)
}

// TestPrepareCompilesOnce: what Prepare made is not compiled again, neither by a second
// Prepare nor by NewPipeline and NewModule; what it could not make is.
func TestPrepareCompilesOnce(t *testing.T) {
	m := &manyDriver{fakeDriver: &fakeDriver{fail: map[string]error{}}, compiled: map[string]int{}}
	d := newDevice(AdapterInfo{Name: "fake"}, DefaultLimits(), m)
	good, bad := Module{Code: []uint32{1}, Entry: "main"}, Module{Entry: "main"}
	list := []Source{{Label: "text", WGSL: fakeKernel}, {Label: "twice", WGSL: fakeKernel}, {Label: "good", Module: &good}, {Label: "bad", Module: &bad}}
	d.Prepare(list)
	if want := map[string]int{"text": 1, "good": 1, "bad": 1}; !maps.Equal(m.compiled, want) {
		t.Errorf("Prepare compiled %v, want %v", m.compiled, want)
	}
	d.Prepare(list)
	if _, err := d.NewPipeline("text", fakeKernel); err != nil {
		t.Error(err)
	}
	if _, err := d.NewModule("good", good); err != nil {
		t.Error(err)
	}
	if _, err := d.NewModule("bad", bad); err == nil {
		t.Error("the bad module was made")
	}
	if want := map[string]int{"text": 1, "good": 1, "bad": 3}; !maps.Equal(m.compiled, want) {
		t.Errorf("in the end %v were compiled, want %v", m.compiled, want)
	}
}
