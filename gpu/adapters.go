package gpu

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Kind says what an adapter is.
type Kind int

// The kinds, in the order in which Open prefers them.
const (
	Discrete Kind = iota
	Integrated
	Unknown
	Software // a CPU that imitates a GPU: llvmpipe, SwiftShader, WARP
)

// String names the kind in lower case.
func (k Kind) String() string {
	return [...]string{"discrete", "integrated", "unknown", "software"}[k]
}

// AdapterInfo describes a GPU that can be opened.
type AdapterInfo struct {
	Index   int    // N of "gpu:N"
	Name    string // as the driver gives it
	Vendor  string
	Kind    Kind
	Backend string // "vulkan", "vulkan through WebGPU", "metal …", "dx12 …" or "browser"
	Driver  string // driver or API version, as far as it can be known
	Limits  Limits
	Matrix  []MatrixShape // products that the matrix units do; none where they cannot be reached
	Matrix2 bool          // VK_NV_cooperative_matrix2: a sum can become a factor without going through memory
	Note    string        // why it is not reached straight on Vulkan although Vulkan is there, "" otherwise
}

// MatrixShape is one product of a subgroup's matrix units: (M, K) × (K, N) of
// 16-bit numbers, accumulated in float32.
type MatrixShape struct {
	M, N, K int
	Input   string // "f16" or "bf16"
}

// The values of Options.Backend, and what AdapterInfo.Backend ends with when
// the WebGPU layer is between this package and the driver.
const (
	BackendVulkan  = "vulkan"
	BackendWebGPU  = "webgpu"
	BackendThrough = " through WebGPU"
)

// String is one line for a person.
func (a AdapterInfo) String() string {
	return fmt.Sprintf("gpu:%d %s (%s, %s, %s)", a.Index, a.Name, a.Kind, a.Backend, a.Driver)
}

// adapter is an AdapterInfo and what the platform needs to open it.
type adapter struct {
	AdapterInfo
	handle any
}

// search is what looking for adapters came to.
type search struct {
	found   []adapter
	refused []refusal
	without error    // why there is no Vulkan for gpu/vulkan at all, where it might be
	named   bool     // the environment names drivers, which somebody expects to work
	probed  []string // what was looked at, a line each
}

// refusal is an adapter that is there and that gpu/vulkan cannot use.
type refusal struct {
	name string
	why  error
}

// withLayered adds adapters that are reached through the WebGPU layer: those that
// were refused, or all where no other was found.
func (s search) withLayered(layered search) search {
	s.probed = append(s.probed, layered.probed...)
	all := len(s.found) == 0
	for _, a := range layered.found {
		i := slices.IndexFunc(s.refused, func(r refusal) bool { return r.name == a.Name })
		if i >= 0 {
			a.Note = s.refused[i].why.Error()
		} else if s.without != nil {
			a.Note = s.without.Error()
		}
		if i >= 0 || all {
			s.found = append(s.found, a)
		}
	}
	return s
}

// err says that nothing was found, and why.
func (s search) err() error {
	kind := ErrNoAdapter
	if len(s.refused) > 0 || s.named {
		kind = errUnusable
	}
	return fmt.Errorf("gpu: %w\n%s\n%s", kind, "  "+strings.Join(s.probed, "\n  "), noAdapterHint)
}

// Adapters lists the GPUs of this machine, best first: discrete before
// integrated, software last. The error wraps ErrNoAdapter and says what was
// probed when there are none.
func Adapters() ([]AdapterInfo, error) { return AdaptersOf("") }

// AdaptersOf is Adapters for a choice of Options.Backend.
func AdaptersOf(backend string) ([]AdapterInfo, error) {
	found, err := listAdapters(backend)
	if err != nil {
		return nil, err
	}
	infos := make([]AdapterInfo, len(found))
	for i, a := range found {
		infos[i] = a.AdapterInfo
	}
	return infos, nil
}

// backendEnv is the choice of a backend for programs that do not say.
const backendEnv = "TEZGAH_BACKEND"

// backendChoice is an Options.Backend, or what the environment says.
func backendChoice(backend string) string {
	if backend == "" {
		return os.Getenv(backendEnv)
	}
	return backend
}

// listAdapters asks the platform, sorts and numbers the answer.
func listAdapters(backend string) (_ []adapter, err error) {
	defer rescue("list adapters", &err)
	backend = backendChoice(backend)
	if backend != "" && backend != BackendVulkan && backend != BackendWebGPU {
		return nil, fmt.Errorf("gpu: there is no backend %q: want %s or %s", backend, BackendVulkan, BackendWebGPU)
	}
	s := platformAdapters(backend)
	if len(s.found) == 0 {
		return nil, s.err()
	}
	return sortAdapters(s.found), nil
}

// sortAdapters orders adapters by kind and numbers them. Within a kind they keep
// the order in which they were found, which is that of Vulkan's loader both ways.
func sortAdapters(found []adapter) []adapter {
	for i := range found {
		if looksLikeSoftware(found[i].Name) {
			found[i].Kind = Software
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Kind < found[j].Kind })
	for i := range found {
		found[i].Index = i
	}
	return found
}

// looksLikeSoftware catches software rasterizers that report another kind.
func looksLikeSoftware(name string) bool {
	name = strings.ToLower(name)
	for _, s := range []string{"llvmpipe", "lavapipe", "swiftshader", "basic render driver"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}

// chooseAdapter finds the adapter that device asks for: "", "auto" or "gpu"
// (the best that is not software), "gpu:N" (number N of the list), or a part
// of a name in any case.
func chooseAdapter(all []adapter, device string) (adapter, error) {
	switch {
	case device == "" || device == "auto" || device == "gpu":
		if all[0].Kind != Software {
			return all[0], nil
		}
		return adapter{}, fmt.Errorf("gpu: %w: there is only the software adapter %q; ask for it by name (--device %s) or use --device cpu, which is faster",
			ErrNoAdapter, all[0].Name, firstWord(all[0].Name))
	case strings.HasPrefix(device, "gpu:"):
		n, err := strconv.Atoi(device[len("gpu:"):])
		if err != nil || n < 0 || n >= len(all) {
			return adapter{}, fmt.Errorf("gpu: %w: there is no %s; have %s", ErrNoAdapter, device, summary(all))
		}
		return all[n], nil
	}
	for _, a := range all {
		if strings.Contains(strings.ToLower(a.Name), strings.ToLower(device)) {
			return a, nil
		}
	}
	return adapter{}, fmt.Errorf("gpu: %w: no adapter has %q in its name; have %s", ErrNoAdapter, device, summary(all))
}

// summary lists adapters on one line.
func summary(all []adapter) string {
	lines := make([]string, len(all))
	for i, a := range all {
		lines[i] = a.String()
	}
	return strings.Join(lines, "; ")
}

// firstWord is the name up to the first space, for a --device argument.
func firstWord(name string) string {
	word, _, _ := strings.Cut(name, " ")
	return word
}
