package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func card(name string, kind Kind, backend string) adapter {
	return adapter{AdapterInfo: AdapterInfo{Name: name, Kind: kind, Backend: backend}}
}

// listed are the names and backends of adapters, in order.
func listed(all []adapter) (names []string) {
	for i, a := range sortAdapters(all) {
		if a.Index != i {
			names = append(names, fmt.Sprintf("number %d!", a.Index))
		}
		names = append(names, a.Name+", "+a.Backend)
	}
	return names
}

// TestTwoGPUs: discrete before integrated before software, the same order whichever
// way they are reached, and --device finds each by number and name.
func TestTwoGPUs(t *testing.T) {
	for _, backend := range []string{BackendVulkan, BackendVulkan + BackendThrough} {
		all := []adapter{card("llvmpipe (LLVM 15)", Unknown, backend), card("Iris", Integrated, backend), card("Virtual", Unknown, backend),
			card("RTX A", Discrete, backend), card("RTX B", Discrete, backend)}
		want := []string{"RTX A", "RTX B", "Iris", "Virtual", "llvmpipe (LLVM 15)"}
		for i := range want {
			want[i] += ", " + backend
		}
		if got := listed(all); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for device, name := range map[string]string{"": "RTX A", "auto": "RTX A", "gpu": "RTX A", "gpu:0": "RTX A", "gpu:1": "RTX B",
			"gpu:2": "Iris", "gpu:4": "llvmpipe (LLVM 15)", "iris": "Iris", "rtx b": "RTX B", "LLVMPIPE": "llvmpipe (LLVM 15)"} {
			if a, err := chooseAdapter(all, device); err != nil || a.Name != name {
				t.Errorf("--device %q: %q, %v, want %q", device, a.Name, err, name)
			}
		}
		for _, device := range []string{"gpu:5", "gpu:-1", "gpu:", "gpu:1x", "geforce"} {
			if a, err := chooseAdapter(all, device); !errors.Is(err, ErrNoAdapter) || !strings.Contains(err.Error(), "gpu:2 Iris") {
				t.Errorf("--device %q: %q, %v, want an ErrNoAdapter that lists what there is", device, a.Name, err)
			}
		}
	}
}

// TestRefusedAdapters: one that Vulkan itself cannot use is reached through the
// WebGPU layer and says why, beside others that are not; where nothing is reached
// the error tells that there was something.
func TestRefusedAdapters(t *testing.T) {
	const through = BackendVulkan + BackendThrough
	old := refusal{"Old RTX", errors.New("its driver knows Vulkan 1.1")}
	layered := search{found: []adapter{card("Iris", Integrated, through), card("Old RTX", Discrete, through)}, probed: []string{"layer: 2"}}
	for name, c := range map[string]struct {
		direct search
		want   []string
	}{
		"one of two":    {search{found: []adapter{card("Iris", Integrated, BackendVulkan)}, refused: []refusal{old}}, []string{"Old RTX, " + through, "Iris, vulkan"}},
		"all":           {search{refused: []refusal{old, {"Iris", errors.New("no queue")}}}, []string{"Old RTX, " + through, "Iris, " + through}},
		"no Vulkan":     {search{without: errors.New("no loader")}, []string{"Old RTX, " + through, "Iris, " + through}},
		"not there any": {search{found: []adapter{card("Iris", Integrated, BackendVulkan)}, refused: []refusal{{"Gone", old.why}}}, []string{"Iris, vulkan"}},
	} {
		s := c.direct.withLayered(layered)
		if got := listed(s.found); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		for _, a := range s.found {
			refused := slices.ContainsFunc(c.direct.refused, func(r refusal) bool { return r.name == a.Name })
			if (refused || c.direct.without != nil) != (a.Note != "") || a.Backend == BackendVulkan && a.Note != "" {
				t.Errorf("%s: the note of %s is %q", name, a.Name, a.Note)
			}
		}
	}
	s := search{refused: []refusal{old}, probed: []string{"vulkan: Old RTX: its driver knows Vulkan 1.1"}}.withLayered(search{probed: []string{"layer: no window extensions"}})
	err := s.err()
	if !errors.Is(err, ErrNoAdapter) || !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "Vulkan 1.1") || !strings.Contains(err.Error(), "no window extensions") {
		t.Errorf("got %v", err)
	}
	if err := (search{}).err(); !errors.Is(err, ErrNoAdapter) || errors.Is(err, ErrUnusable) {
		t.Errorf("without any GPU: got %v", err)
	}
}

// TestOpenEither: an adapter that does not open straight on Vulkan is tried through
// the WebGPU layer, with a notice, unless a backend was asked for.
func TestOpenEither(t *testing.T) {
	direct := card("RTX", Discrete, BackendVulkan)
	direct.Index = 3
	other := func(a adapter) (adapter, bool) { return card(a.Name, a.Kind, BackendVulkan+BackendThrough), true }
	broken, second := errors.New("vkCreateDevice: the driver lacks a feature"), error(nil)
	var tried []string
	open := func(a adapter) (*Device, error) {
		tried = append(tried, a.Backend)
		if a.Backend == BackendVulkan {
			return nil, broken
		}
		return NewRehearsal(a.AdapterInfo, DefaultLimits(), Features{}), second
	}
	d, err := openEither(direct, true, other, open)
	if err != nil || d.Info().Index != 3 || !strings.Contains(d.Notice(), "through WebGPU") || !strings.Contains(d.Notice(), broken.Error()) {
		t.Fatalf("%v, %+v", err, d)
	}
	second = errors.New("extension missing")
	if _, err := openEither(direct, true, other, open); !errors.Is(err, broken) || !strings.Contains(err.Error(), "extension missing") {
		t.Errorf("both ways broken: got %v", err)
	}
	tried = nil
	if _, err := openEither(direct, false, other, open); !errors.Is(err, broken) || len(tried) != 1 {
		t.Errorf("with --backend: got %v after %q", err, tried)
	}
	none := func(adapter) (adapter, bool) { return adapter{}, false }
	if _, err := openEither(direct, true, none, open); !errors.Is(err, broken) {
		t.Errorf("without another way: got %v", err)
	}
	if d, err := openEither(direct, true, none, func(a adapter) (*Device, error) {
		return NewRehearsal(a.AdapterInfo, DefaultLimits(), Features{}), nil
	}); err != nil || d.Notice() != "" {
		t.Errorf("an adapter that opens: %v, %q", err, d.Notice())
	}
}

// TestNothingIsKeptOfAnAdapterThatDoesNotOpen: the next start must probe again.
func TestNothingIsKeptOfAnAdapterThatDoesNotOpen(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("a browser has no files")
	}
	t.Setenv("TEZGAH_CACHE", t.TempDir())
	a := card("nothing opens this", Discrete, BackendVulkan)
	a.handle = 7 // of no platform: opening it panics, which openAdapter turns into an error
	for range 2 {
		f, _, err := probe(a)
		if err == nil || f != (Features{}) {
			t.Errorf("got %+v, %v, want an error", f, err)
		}
	}
	var r probeResult
	if a.load("probe", &r) && r.Version == probeVersion {
		t.Errorf("%+v was kept", r)
	}
}
