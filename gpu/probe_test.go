package gpu

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestHalvesOfTheProbe(t *testing.T) {
	for i := range probeThreads {
		if got := halfValue(smallHalf(i)); got != float32(i)/8 {
			t.Errorf("%d/8 became %g", i, got)
		}
	}
	if got := halfValue(0xc100); got != -2.5 {
		t.Errorf("0xc100 is %g, want -2.5", got)
	}
}

// answers are what threads report with subgroups of the given size.
func answers(size uint32) []uint32 {
	var a []uint32
	members := min(size, probeThreads)
	for i := range uint32(probeThreads) {
		first := i / members * members
		sum := uint32(0)
		for j := range members {
			sum += first + j
		}
		a = append(a, size, first, sum, first+members-1)
	}
	return a
}

func TestCheckSubgroups(t *testing.T) {
	for _, size := range []uint32{4, 8, 16, 32, 64, 128} {
		got, err := checkSubgroups(answers(size))
		if err != nil || got != int(size) {
			t.Errorf("size %d: got %d, %v", size, got, err)
		}
		for _, spoil := range []int{0, 5, 4*probeThreads - 1, 4*probeThreads - 2} {
			a := answers(size)
			a[spoil]++
			if _, err := checkSubgroups(a); err == nil {
				t.Errorf("size %d: a wrong answer at %d was believed", size, spoil)
			}
		}
	}
	for _, size := range []uint32{1, 2, 256} {
		if _, err := checkSubgroups(answers(size)); err == nil {
			t.Errorf("a subgroup size of %d was believed", size)
		}
	}
	if _, err := checkSubgroups(make([]uint32, 4*probeThreads)); err == nil {
		t.Error("zeros were believed")
	}
}

func TestCache(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("a browser has no files")
	}
	folder := filepath.Join(t.TempDir(), "new", "folder")
	t.Setenv("TEZGAH_CACHE", folder)
	a := AdapterInfo{Name: "card", Backend: "vulkan", Driver: "1"}
	var got map[string]int
	if a.load("tiles", &got) {
		t.Error("something was kept before anything was saved")
	}
	if err := a.save("tiles", map[string]int{"m": 128}); err != nil {
		t.Fatal(err)
	}
	if !a.load("tiles", &got) || got["m"] != 128 {
		t.Errorf("got %v back", got)
	}
	for _, other := range []AdapterInfo{{Name: "card", Backend: "vulkan", Driver: "2"}, {Name: "other", Backend: "vulkan", Driver: "1"}} {
		if other.load("tiles", &got) {
			t.Errorf("%+v got what another adapter or driver saved", other)
		}
	}
	path := a.cachePath("tiles")
	for _, junk := range []string{"", "{", "\x00\xff", `"text"`, "null\n"} {
		if err := os.WriteFile(path, []byte(junk), 0o644); err != nil {
			t.Fatal(err)
		}
		if a.load("tiles", &got) {
			t.Errorf("the file %q was believed", junk)
		}
	}
	if name := filepath.Base(a.cachePath("../../etc/passwd")); strings.ContainsAny(name, "/\\") || filepath.Dir(a.cachePath("../x")) != folder {
		t.Errorf("a name leaves the folder: %s", a.cachePath("../x"))
	}
	t.Setenv("TEZGAH_CACHE", "off")
	if a.load("tiles", &got) || a.save("tiles", 1) != nil {
		t.Error(`"off" still reads or fails to write`)
	}
}

func TestProbeUsesTheCacheAndRemembersACrash(t *testing.T) {
	found, err := listAdapters("")
	if err != nil {
		if os.Getenv("TEZGAH_REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if runtime.GOOS == "js" {
		t.Skip("a browser has no files")
	}
	t.Setenv("TEZGAH_CACHE", t.TempDir())
	a := found[0]
	probe := func(a adapter) (Features, string) {
		t.Helper()
		f, notice, err := probe(a)
		if err != nil {
			t.Error(err)
		}
		return f, notice
	}
	real, notice := probe(a)
	if notice != "" {
		t.Errorf("notice %q", notice)
	}
	fake := Features{F16: !real.F16, Subgroups: true, SubgroupSize: 77}
	save := func(r probeResult) {
		t.Helper()
		if err := a.save("probe", r); err != nil {
			t.Fatal(err)
		}
	}
	save(probeResult{Version: probeVersion, Features: fake})
	if got, _ := probe(a); got != fake {
		t.Errorf("got %+v, want what was cached, %+v", got, fake)
	}
	save(probeResult{Version: probeVersion + 1, Features: fake})
	if got, _ := probe(a); got != real {
		t.Errorf("got %+v from another version's cache, want %+v", got, real)
	}
	// Another process may be probing now: believe nothing of it.
	save(probeResult{Version: probeVersion, Running: "f16", Started: time.Now(), Features: fake})
	if got, notice := probe(a); got != real || notice != "" {
		t.Errorf("beside another process: got %+v, notice %q, want %+v", got, notice, real)
	}
	save(probeResult{Version: probeVersion, Running: "f16", Started: time.Now().Add(-time.Hour)})
	got, notice := probe(a)
	if got.F16 || got.SubgroupSize != real.SubgroupSize || !strings.Contains(notice, "f16") {
		t.Errorf("after a crash: got %+v, notice %q", got, notice)
	}
	if again, notice := probe(a); again != got || notice != "" {
		t.Errorf("the start after it: got %+v, notice %q, want %+v", again, notice, got)
	}
}

func TestHalfValueOfLargest(t *testing.T) {
	if got := halfValue(0x7bff); got != 65504 || math.IsInf(float64(got), 0) {
		t.Errorf("0x7bff is %g, want 65504", got)
	}
}
