package gpu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

const scaleKernel = `
struct Params { n: u32, factor: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {
  let i = gid.x + gid.y * nwg.x * 64u;
  if (i < p.n) { y[i] = x[i] * p.factor; }
}
`

const addKernel = `
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> add: f32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  if (gid.x < arrayLength(&y)) { y[gid.x] = y[gid.x] + add; }
}
`

type scaleParams struct {
	n      uint32
	factor float32
}

func pipeline(t testing.TB, d *gpu.Device, label, source string) *gpu.Pipeline {
	t.Helper()
	p, err := d.NewPipeline(label, source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func floats(t testing.TB, d *gpu.Device, label string, v []float32) *gpu.Buffer {
	t.Helper()
	b, err := d.NewBuffer(label, uint64(4*len(v)))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Upload(b, 0, gpu.Bytes(v)); err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, d *gpu.Device, b *gpu.Buffer) []float32 {
	t.Helper()
	v := make([]float32, b.Size()/4)
	if err := d.Download(b, 0, gpu.Bytes(v)); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDispatchScales(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "scale", scaleKernel)
	for _, n := range []int{1, 63, 64, 65, 1009} {
		x, junk := make([]float32, n), make([]float32, n+3)
		for i := range x {
			x[i] = float32(i) - 7
		}
		for i := range junk {
			junk[i] = float32(math.NaN())
		}
		bx, by := floats(t, d, "x", x), floats(t, d, "y", junk)
		params := scaleParams{uint32(n), 2.5}
		if err := d.Dispatch1D(p, uint64(n+63)/64, gpu.Buf(bx), gpu.Buf(by), gpu.UniformOf(&params)); err != nil {
			t.Fatal(err)
		}
		got := read(t, d, by)
		for i := range x {
			if got[i] != x[i]*2.5 {
				t.Fatalf("n=%d: y[%d] is %g, want %g", n, i, got[i], x[i]*2.5)
			}
		}
		for _, v := range got[n:] {
			if !math.IsNaN(float64(v)) {
				t.Errorf("n=%d: wrote past the end", n)
			}
		}
	}
}

// A dispatch of more than 65,535 workgroups must reach every element.
func TestDispatch1DAboveOneDimension(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "scale", scaleKernel)
	const n = 64*gpu.MaxWorkgroups + 64*100 + 1
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i % 4093)
	}
	bx, by := floats(t, d, "x", x), floats(t, d, "y", make([]float32, n))
	params := scaleParams{n, 2}
	if err := d.Dispatch1D(p, (n+63)/64, gpu.Buf(bx), gpu.Buf(by), gpu.UniformOf(&params)); err != nil {
		t.Fatal(err)
	}
	for i, v := range read(t, d, by) {
		if v != 2*x[i] {
			t.Fatalf("y[%d] is %g, want %g", i, v, 2*x[i])
		}
	}
}

func TestSplit1D(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		x, y uint32
	}{{0, 0, 1}, {1, 1, 1}, {65535, 65535, 1}, {65536, 65535, 2}, {131070, 65535, 2}, {131071, 65535, 3}} {
		if x, y := gpu.Split1D(c.n); x != c.x || y != c.y {
			t.Errorf("%d workgroups: got (%d, %d), want (%d, %d)", c.n, x, y, c.x, c.y)
		}
	}
}

// Every dispatch depends on the one before; a missing barrier shows as a sum
// that is too small. Uploads and copies between them must keep their place.
func TestEverythingHappensInCallOrder(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 7})
	p := pipeline(t, d, "add", addKernel)
	const n = 10_000
	y := floats(t, d, "y", make([]float32, n))
	early, err := d.NewBuffer("early", 4*n)
	if err != nil {
		t.Fatal(err)
	}
	want := float32(0)
	for i := range 200 {
		add := float32(i%5 + 1)
		if err := d.Dispatch(p, (n+63)/64, 1, 1, gpu.Buf(y), gpu.UniformOf(&add)); err != nil {
			t.Fatal(err)
		}
		want += add
		if i == 99 {
			if err := d.Copy(early, 0, y, 0, 4*n); err != nil {
				t.Fatal(err)
			}
		}
		if i == 150 { // overwrite the first element and go on
			if err := d.Upload(y, 0, gpu.Bytes([]float32{want})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, v := range read(t, d, y) {
		if v != want {
			t.Fatalf("y[%d] is %g, want %g", i, v, want)
		}
	}
	if v := read(t, d, early)[n-1]; v != 300 {
		t.Errorf("the copy after 100 dispatches has %g, want 300", v)
	}
}

func TestInvalidDispatches(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	other := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "scale", scaleKernel)
	x, y := floats(t, d, "x", make([]float32, 1000)), floats(t, d, "y", make([]float32, 1000))
	foreign := floats(t, other, "foreign", make([]float32, 8))
	gone := floats(t, d, "gone", make([]float32, 8))
	gone.Release()
	u := gpu.Uniform(make([]byte, 8))
	for name, c := range map[string]struct {
		args []gpu.Binding
		say  string
	}{
		"too few":           {[]gpu.Binding{gpu.Buf(x), u}, "want 3"},
		"nil":               {[]gpu.Binding{gpu.Buf(nil), gpu.Buf(y), u}, "nil"},
		"released":          {[]gpu.Binding{gpu.Buf(gone), gpu.Buf(y), u}, "released"},
		"foreign":           {[]gpu.Binding{gpu.Buf(foreign), gpu.Buf(y), u}, "another device"},
		"past the end":      {[]gpu.Binding{gpu.Range(x, 256, 4000), gpu.Buf(y), u}, "outside"},
		"from the end on":   {[]gpu.Binding{gpu.Range(x, 4096, 0), gpu.Buf(y), u}, "outside"},
		"unaligned":         {[]gpu.Binding{gpu.Range(x, 8, 8), gpu.Buf(y), u}, "multiple of"},
		"read and write":    {[]gpu.Binding{gpu.Range(x, 0, 8), gpu.Range(x, 256, 8), u}, "WebGPU forbids"},
		"uniform for read":  {[]gpu.Binding{u, gpu.Buf(y), u}, "binding 0 (x)"},
		"no contents":       {[]gpu.Binding{gpu.Buf(x), gpu.Buf(y), gpu.Uniform([]byte{})}, "binding 2 (p)"},
		"too much contents": {[]gpu.Binding{gpu.Buf(x), gpu.Buf(y), gpu.Uniform(make([]byte, 257))}, "257 bytes"},
	} {
		err := d.Dispatch(p, 1, 1, 1, c.args...)
		if !errors.Is(err, gpu.ErrValidation) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "scale") {
			t.Errorf("%s: got %v, want an ErrValidation that names scale and says %q", name, err, c.say)
		}
	}
	if err := d.Dispatch(p, 65536, 1, 1, gpu.Buf(x), gpu.Buf(y), u); !errors.Is(err, gpu.ErrValidation) {
		t.Errorf("65,536 workgroups in one dimension: got %v, want an ErrValidation", err)
	}
	if err := errors.Join(d.Dispatch(p, 0, 1, 1, gpu.Buf(x), gpu.Buf(y), u), d.Dispatch(p, 1, 1, 1, gpu.Buf(x), gpu.Buf(y), u), d.Wait()); err != nil {
		t.Errorf("the device does not work after invalid dispatches: %v", err)
	}
}

// What the browser would find only later must be an error too, at the latest
// from Wait.
func TestBindingsSmallerThanTheKernelReads(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "large", `
struct Large { a: vec4<f32>, b: vec4<f32>, c: f32 }
@group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> u: Large;
@compute @workgroup_size(1) fn main() { y[0] = u.a + u.b * u.c; }`)
	y, four := floats(t, d, "y", make([]float32, 64)), floats(t, d, "four", make([]float32, 1))
	for name, args := range map[string][]gpu.Binding{
		"uniform": {gpu.Buf(y), gpu.Uniform(make([]byte, 16))},
		"array":   {gpu.Buf(four), gpu.Uniform(make([]byte, 48))},
		"range":   {gpu.Range(y, 0, 8), gpu.Uniform(make([]byte, 48))},
		"buffer":  {gpu.Buf(y), gpu.Buf(four)},
	} {
		err := d.Dispatch(p, 1, 1, 1, args...)
		if err == nil {
			err = d.Wait()
		}
		if !errors.Is(err, gpu.ErrValidation) || !strings.Contains(err.Error(), "large") {
			t.Errorf("%s: got %v, want an ErrValidation that names large", name, err)
		}
	}
	if err := errors.Join(d.Dispatch(p, 1, 1, 1, gpu.Buf(y), gpu.Uniform(make([]byte, 48))), d.Wait()); err != nil {
		t.Errorf("the device does not work after it: %v", err)
	}
}

func TestTiming(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 3})
	scale, add := pipeline(t, d, "scale", scaleKernel), pipeline(t, d, "add", addKernel)
	const n = 1 << 20
	x, y := floats(t, d, "x", make([]float32, n)), floats(t, d, "y", make([]float32, n))
	err := d.StartTiming(7)
	if errors.Is(err, gpu.ErrNoTimestamps) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	one, params := float32(1), scaleParams{n, 2}
	for range 5 {
		if err := errors.Join(d.Dispatch1D(add, n/64, gpu.Buf(y), gpu.UniformOf(&one)),
			d.Dispatch1D(scale, 1, gpu.Buf(x), gpu.Buf(y), gpu.UniformOf(&params))); err != nil {
			t.Fatal(err)
		}
	}
	times, err := d.StopTiming()
	if err != nil || len(times) != 7 {
		t.Fatalf("got %v, %v, want 7 times", times, err)
	}
	large, small := math.Inf(1), math.Inf(1) // the shortest: other work comes between
	for i, k := range times {
		if want := [...]string{"add", "scale"}[i%2]; k.Kernel != want || k.Nanoseconds < 0 || k.Nanoseconds > 1e11 {
			t.Errorf("time %d is %+v, want one of %s", i, k, want)
		}
		if i%2 == 0 {
			large = min(large, k.Nanoseconds)
		} else {
			small = min(small, k.Nanoseconds)
		}
	}
	t.Logf("a million additions take %.0f ns, one workgroup %.0f ns", large, small)
	if large <= small {
		t.Errorf("a million additions take %.0f ns, one workgroup %.0f ns", large, small)
	}
	if v := read(t, d, y)[n-1]; v != 5 {
		t.Errorf("y is %g, want 5", v)
	}
}

func TestWorkgroupsAboveTheLimits(t *testing.T) {
	d := gputest.Open(t, gpu.Options{ForceDefaultLimits: true})
	for name, c := range map[string]struct {
		memory, threads int
		ok              bool
	}{
		"all there is": {4096, 256, true},
		"memory":       {4097, 64, false},
		"threads":      {16, 512, false},
	} {
		source := fmt.Sprintf(`
var<workgroup> unused: array<f32, 4096>;
var<workgroup> s: array<f32, %d>;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
fn other() -> f32 { return unused[3]; }
@compute @workgroup_size(%d)
fn main(@builtin(local_invocation_index) i: u32) {
  s[i %% 16u] = 1.0;
  workgroupBarrier();
  if (i == 0u) { y[0] = s[5]; }
}`, c.memory, c.threads)
		_, err := d.NewPipeline(name, source)
		if c.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ok && !errors.Is(err, gpu.ErrShader) {
			t.Errorf("%s: got %v, want an ErrShader", name, err)
		}
	}
}

func TestOverlappingWritesAreRefused(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "two", `
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(1) fn main() { a[0] = 1u; b[0] = 2u; }`)
	m, err := d.NewBuffer("m", 1024)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Dispatch(p, 1, 1, 1, gpu.Range(m, 0, 512), gpu.Range(m, 256, 512)); !errors.Is(err, gpu.ErrValidation) {
		t.Errorf("overlapping: got %v, want an ErrValidation", err)
	}
	if err := d.Dispatch(p, 1, 1, 1, gpu.Range(m, 0, 512), gpu.Range(m, 512, 512)); err != nil {
		t.Errorf("apart: %v", err)
	}
	got := make([]uint32, 256)
	if err := d.Download(m, 0, gpu.Bytes(got)); err != nil || got[0] != 1 || got[128] != 2 {
		t.Errorf("got %d and %d (%v), want 1 and 2", got[0], got[128], err)
	}
}

func TestShaderErrorsShowTheLine(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	for name, c := range map[string]struct {
		source string
		line   int
	}{
		"syntax":  {strings.Replace(addKernel, "y[gid.x] +", "y[gid.x] + * )", 1), 6},
		"unknown": {strings.Replace(addKernel, "+ add", "+ nothing", 1), 6},
	} {
		_, err := d.NewPipeline("broken", c.source)
		var shader *gpu.ShaderError
		if !errors.As(err, &shader) || !errors.Is(err, gpu.ErrShader) {
			t.Errorf("%s: got %v, want a ShaderError", name, err)
			continue
		}
		t.Logf("%s:\n%v", name, err)
		if c.line > 0 && (shader.Line != c.line || !strings.Contains(shader.Excerpt, "gid.x < arrayLength")) {
			t.Errorf("%s: line %d with excerpt\n%s\nwant line %d", name, shader.Line, shader.Excerpt, c.line)
		}
		for _, want := range []string{"broken", d.Info().Name, "fallback"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the message lacks %q", name, want)
			}
		}
	}
}

func TestInvalidModules(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	for name, source := range map[string]string{
		"empty":       "",
		"no entry":    "@group(0) @binding(0) var<storage> a: array<u32>;",
		"no bindings": "@compute @workgroup_size(1) fn main() {}",
		"gap":         "@group(0) @binding(1) var<storage> a: array<u32>; @compute @workgroup_size(1) fn main() {}",
		"group 1":     "@group(1) @binding(0) var<storage> a: array<u32>; @compute @workgroup_size(1) fn main() {}",
		"private":     "@group(0) @binding(0) var<private> a: u32; @compute @workgroup_size(1) fn main() {}",
	} {
		if _, err := d.NewPipeline(name, source); !errors.Is(err, gpu.ErrValidation) {
			t.Errorf("%s: got %v, want an ErrValidation", name, err)
		}
	}
}

func TestDefaultLimits(t *testing.T) {
	d := gputest.Open(t, gpu.Options{ForceDefaultLimits: true, DisableF16: true, DisableSubgroups: true})
	l := d.Limits()
	if l.StorageBuffers > 8 || l.BindingSize > 128<<20 || l.StorageAlign != 256 || l.WorkgroupMemory > 16<<10 || l.Invocations > 256 {
		t.Errorf("limits are above WebGPU's defaults: %+v", l)
	}
	if d.Features() != (gpu.Features{}) {
		t.Errorf("features are %+v, want none", d.Features())
	}
	var nine strings.Builder
	for i := range 9 {
		fmt.Fprintf(&nine, "@group(0) @binding(%d) var<storage, read> b%d: array<u32>;\n", i, i)
	}
	nine.WriteString("@compute @workgroup_size(1) fn main() {}")
	if _, err := d.NewPipeline("nine", nine.String()); !errors.Is(err, gpu.ErrValidation) {
		t.Errorf("nine storage buffers: got %v, want an ErrValidation", err)
	}
	ten := strings.NewReplacer("9) var<storage, read> b9: array<u32>", "9) var<uniform> b9: u32",
		"8) var<storage, read> b8: array<u32>", "8) var<uniform> b8: u32",
		"7) var<storage, read> b7: array<u32>", "7) var<uniform> b7: u32").Replace(
		strings.Replace(nine.String(), "@compute", "@group(0) @binding(9) var<storage, read> b9: array<u32>;\n@compute", 1))
	if _, err := d.NewPipeline("ten", ten); err != nil {
		t.Errorf("7 storage and 3 uniform buffers: %v", err)
	}
}

// Bind groups and uniforms are kept, but not without end, and go with their
// buffers; a thousand steps with changing contents must not grow anything.
func TestThousandStepsDoNotGrow(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	p := pipeline(t, d, "scale", scaleKernel)
	x, y := floats(t, d, "x", []float32{1}), floats(t, d, "y", []float32{0})
	step := func(i int) {
		tmp, err := d.NewBuffer("tmp", 1024)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 8 {
			params := scaleParams{1, float32(8*i + j)}
			if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(x), gpu.Buf(y), gpu.UniformOf(&params)); err != nil {
				t.Fatal(err)
			}
			if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(x), gpu.Range(tmp, uint64(j&3)*256, 256), gpu.UniformOf(&params)); err != nil {
				t.Fatal(err)
			}
		}
		tmp.Release()
		if i%20 != 19 { // a step ends with the same handful of calls, a read-back is slow
			if err := d.Submit(); err != nil {
				t.Fatal(err)
			}
			return
		}
		if got := read(t, d, y)[0]; got != float32(8*i+7) {
			t.Fatalf("step %d gave %g, want %d", i, got, 8*i+7)
		}
	}
	for i := range 600 {
		step(i)
	}
	heap, before := heapBytes(), d.Memory()
	for i := range 1000 {
		step(i + 600)
	}
	after := d.Memory()
	if after.Live != before.Live || after.Buffers != before.Buffers {
		t.Errorf("memory went from %+v to %+v", before, after)
	}
	if grown := int64(heapBytes()) - int64(heap); grown > 1<<20 {
		t.Errorf("the Go heap grew by %d bytes", grown)
	}
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Uniform contents of 16 pages and more: places are used again, and earlier
// dispatches still see what they were given.
func TestMoreUniformsThanPlaces(t *testing.T) {
	d := gputest.Open(t, gpu.Options{BatchSize: 1000})
	p := pipeline(t, d, "record", `
struct U { at: u32, value: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@group(0) @binding(1) var<uniform> u: U;
@compute @workgroup_size(1) fn main() { y[u.at] = u.value; }`)
	const n = 9001
	y, err := d.NewBuffer("y", 4*n)
	if err != nil {
		t.Fatal(err)
	}
	var u [8]byte
	for i := range uint32(n) {
		binary.LittleEndian.PutUint32(u[:], i)
		binary.LittleEndian.PutUint32(u[4:], i*2654435761)
		if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(y), gpu.Uniform(u[:])); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]uint32, n)
	if err := d.Download(y, 0, gpu.Bytes(got)); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if want := uint32(i) * 2654435761; v != want {
			t.Fatalf("y[%d] is %d, want %d", i, v, want)
		}
	}
}
