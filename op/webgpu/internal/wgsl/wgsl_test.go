package wgsl

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// files makes a folder from name and text in turn.
func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

const shared = "const WG: u32 = 256u;\n"

func load(t *testing.T, pairs ...string) *Folder {
	t.Helper()
	l, err := Load(files(append([]string{SharedFile, shared}, pairs...)...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSourceIsSharedThenPreambleThenKernel(t *testing.T) {
	l := load(t, "02_norm.wgsl", "fn help() {}\n// --- KERNEL: one ---\nfn a() {}\n// --- KERNEL: two ---\nfn b() {}\n",
		"08_cast.wgsl", "// --- KERNEL: three ---\nfn c() {}")
	if got := strings.Join(l.Kernels(), " "); got != "one three two" {
		t.Errorf("kernels are %q", got)
	}
	if l.File("two") != "02_norm.wgsl" || l.File("three") != "08_cast.wgsl" || l.File("four") != "" {
		t.Errorf("files are %q, %q, %q", l.File("two"), l.File("three"), l.File("four"))
	}
	got, err := l.Source("two", Features{})
	if err != nil {
		t.Fatal(err)
	}
	if want := shared + "\nfn help() {}\nfn b() {}\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := l.Source("four", Features{}); err == nil || !strings.Contains(err.Error(), `"four"`) {
		t.Errorf("an unknown kernel: %v", err)
	}
}

func TestLoadErrorsNameTheFile(t *testing.T) {
	const k = "// --- KERNEL: k ---\n"
	for name, c := range map[string]struct {
		fs  fstest.MapFS
		say []string
	}{
		"no shared":        {files("01.wgsl", k), []string{SharedFile}},
		"marker in shared": {files(SharedFile, "x\n"+k), []string{SharedFile + ":2", "k"}},
		"no marker":        {files(SharedFile, "", "03.wgsl", "fn a() {}"), []string{"03.wgsl"}},
		"twice":            {files(SharedFile, "", "03.wgsl", k, "04.wgsl", k), []string{"04.wgsl:1", "03.wgsl", "k"}},
		"twice in one":     {files(SharedFile, "", "03.wgsl", k+k), []string{"03.wgsl:2", "k"}},
		"enable":           {files(SharedFile, "", "03.wgsl", "enable f16;\n"+k), []string{"03.wgsl:1", "enable"}},
		"almost a marker":  {files(SharedFile, "", "03.wgsl", k+"// -- KERNEL: other --"), []string{"03.wgsl:2", "marker"}},
	} {
		_, err := Load(c.fs)
		for _, want := range c.say {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error that says %q", name, err, want)
			}
		}
	}
}

func TestEnablesOnlyWhatIsUsedAndThere(t *testing.T) {
	l := load(t, "a.wgsl", `
// --- KERNEL: plain ---
fn a() {} // no f16 and no subgroupAdd( here
// --- KERNEL: half ---
var<private> x: array<f16, 4>;
// --- KERNEL: half_literal ---
const x = 1.5h;
// --- KERNEL: sub ---
fn a(x: f32) -> f32 { return subgroupAdd(x); }
// --- KERNEL: either ---
// #if SUBGROUPS
fn a(x: f32) -> f32 { return subgroupAdd(x); }
// #else
fn a(x: f32) -> f32 { return x; }
// #endif
`)
	all := Features{F16: true, Subgroups: true}
	for _, c := range []struct {
		kernel  string
		f       Features
		enables string // "-": unsupported
	}{
		{"plain", all, ""}, {"plain", Features{}, ""},
		{"half", all, "enable f16;\n"}, {"half", Features{Subgroups: true}, "-"},
		{"half_literal", all, "enable f16;\n"},
		{"sub", all, "enable subgroups;\n"}, {"sub", Features{F16: true}, "-"},
		{"either", all, "enable subgroups;\n"}, {"either", Features{}, ""},
	} {
		got, err := l.Source(c.kernel, c.f)
		if c.enables == "-" {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "a.wgsl") {
				t.Errorf("%s with %+v: got %v, want ErrUnsupported", c.kernel, c.f, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with %+v: %v", c.kernel, c.f, err)
		}
		if head, _, _ := strings.Cut(got, "const WG"); head != c.enables {
			t.Errorf("%s with %+v begins with %q, want %q", c.kernel, c.f, head, c.enables)
		}
	}
}

func TestDefineChangesOneConstant(t *testing.T) {
	l := load(t, "a.wgsl", "const TILE_M: u32 = 64u; // rows\nconst TILE = 8;\n// --- KERNEL: k ---\nconst SUBGROUP_SIZE: u32 = 1u;\nvar<workgroup> a: array<f32, TILE_M>;\n")
	got, err := l.Source("k", Features{SubgroupSize: 32}, Define{"TILE_M", "128u"}, Define{"TILE", "4"})
	if err != nil {
		t.Fatal(err)
	}
	want := shared + "\nconst TILE_M: u32 = 128u; // rows\nconst TILE = 4;\nconst SUBGROUP_SIZE: u32 = 32u;\nvar<workgroup> a: array<f32, TILE_M>;\n\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, d := range []Define{{"TILES", "1u"}, {"TILE", ""}, {"TILE", "1; fn x() {}"}, {"TILE", "1\n"}} {
		if _, err := l.Source("k", Features{}, d); err == nil || !strings.Contains(err.Error(), d.Name) {
			t.Errorf("%+v: got %v, want an error", d, err)
		}
	}
}

func TestConditionsNestAndKeepLineNumbers(t *testing.T) {
	l := load(t, "a.wgsl", `const FUSED: bool = false;
// --- KERNEL: k ---
// #if F16
half
// #if !FUSED
half plain
// #else
half fused
// #endif
// #else
  // #if FUSED
full fused
  // #endif
full
// #endif
end`)
	for _, c := range []struct {
		f     Features
		fused string
		want  string
	}{
		{Features{}, "false", "full end"},
		{Features{}, "true", "full fused full end"},
		{Features{F16: true}, "false", "half half plain end"},
		{Features{F16: true}, "true", "half half fused end"},
	} {
		got, err := l.Source("k", c.f, Define{"FUSED", c.fused})
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(got, ";\n\n")
		_, text, _ = strings.Cut(text, ";\n")
		if words := strings.Join(strings.Fields(text), " "); words != c.want {
			t.Errorf("%+v, fused %s: got %q, want %q", c.f, c.fused, words, c.want)
		}
		if lines := strings.Count(text, "\n"); lines != 14 {
			t.Errorf("%+v: %d lines, want 14", c.f, lines)
		}
	}
}

func TestFaultyConditions(t *testing.T) {
	for _, text := range []string{
		"// #if F16\n", "// #endif\n", "// #else\n", "// #if UNKNOWN\n// #endif\n", "// #if WG\n// #endif\n",
		"// #if F16\n// #else\n// #else\n// #endif\n", "// #elif F16\n", "// #if\n// #endif\n",
	} {
		l := load(t, "a.wgsl", "// --- KERNEL: k ---\n"+text)
		if got, err := l.Source("k", Features{F16: true}); err == nil || !strings.Contains(err.Error(), "a.wgsl") {
			t.Errorf("%q: got %q and %v, want an error that names the file", text, got, err)
		}
	}
}

func FuzzSource(f *testing.F) {
	f.Add("const A: bool = true;\n// --- KERNEL: k ---\n// #if A\nx\n// #endif\n", "A", "false")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		l, err := Load(files(SharedFile, shared, "a.wgsl", text))
		if err != nil {
			return
		}
		for _, k := range l.Kernels() {
			src, err := l.Source(k, Features{F16: true, Subgroups: true}, Define{name, value})
			if err == nil && !strings.Contains(src, "const WG") && name != "WG" {
				t.Errorf("the shared preamble is lost: %q", src)
			}
		}
	})
}
