package archtest

// rule says what one package may import. Anything not listed is forbidden,
// but the standard library (see restricted).
type rule struct {
	pkg     string   // path inside the module; "x/..." also matches everything below x
	own     []string // packages of this module; "x/..." as above
	ext     []string // other modules' packages, with everything below them
	testOwn []string // further packages for its tests, beside commonTests
	testExt []string
	why     string
}

// everything is what a program may be put together from. Programs see gpu only
// to list the adapters and open the one that a backend is then built on.
var everything = []string{
	"bench", "bpe", "chat", "checkpoint", "corpus", "eval", "generate", "gpu", "internal/...", "model", "op", "op/cpu", "op/ref", "op/optest",
	"op/webgpu", "optim", "runlog", "tensor", "train", "workbench", "workbench/engine",
}

// commonTests are the packages that any test may use: the reference, the
// backend that runs everywhere, and the suite of the backends.
var commonTests = []string{"op", "op/ref", "op/cpu", "op/optest", "tensor"}

// rules is the table, from the bottom up. The most specific pkg counts.
var rules = []rule{
	{pkg: "tensor", why: "the vocabulary that everybody shares"},
	{pkg: "internal/...", own: []string{"internal/..."}, why: "leaves without knowledge of the project"},
	{pkg: "op", own: []string{"tensor"}, why: "the contract between model and backends"},
	{pkg: "op/ref", own: []string{"op", "tensor"}, why: "plain loops, the reference of every backend"},
	{pkg: "op/optest", own: []string{"op", "op/ref", "tensor"}, why: "compares any backend with the reference"},
	{pkg: "op/cpu/...", own: []string{"op", "op/ref", "op/cpu/...", "tensor", "internal/..."}, ext: []string{"golang.org/x/sys"},
		why: "a backend; x/sys tells which instructions and how much memory there are"},
	{pkg: "op/cpu/internal/asm/gen", own: []string{"op/cpu/..."}, ext: []string{"github.com/mmcloughlin/avo"},
		why: "the only user of the assembly generator"},
	{pkg: "gpu/...", own: []string{"gpu/...", "tensor", "internal/..."}, ext: []string{"github.com/gogpu", "github.com/go-webgpu", "golang.org/x/sys"},
		why: "the only package that touches a binding; it knows buffers and kernels, no ops"},
	{pkg: "op/webgpu/...", own: []string{"op", "op/webgpu/...", "gpu", "tensor", "internal/..."}, testOwn: []string{"gpu/gputest", "model", "optim"},
		testExt: []string{"github.com/gogpu/naga"},
		why:     "a backend; the only one that dispatches through gpu; its tests compile the kernels without a device"},
	{pkg: "bpe", own: []string{"tensor", "internal/..."}, ext: []string{"golang.org/x/text"}, testExt: []string{"github.com/dlclark/regexp2"},
		why: "text to ids and back; the tests compare its matcher with a regular-expression engine"},
	{pkg: "corpus", own: []string{"bpe", "tensor", "internal/..."},
		ext: []string{"github.com/klauspost/compress", "github.com/parquet-go/parquet-go", "golang.org/x/sys"},
		why: "files in, token shards out; x/sys maps them into memory"},
	{pkg: "chat", own: []string{"bpe", "corpus", "tensor", "internal/..."}, why: "conversations to tokens and batches; knows no model"},
	{pkg: "checkpoint", own: []string{"tensor"}, ext: []string{"golang.org/x/sys"},
		why: "knows no model: configurations travel as JSON; x/sys for locks and free space"},
	{pkg: "runlog", own: []string{"tensor"}, ext: []string{"github.com/prometheus/client_golang"}, testOwn: []string{"runlog/tbtest"},
		why: "records are plain numbers"},
	{pkg: "runlog/tbtest", ext: []string{"google.golang.org/protobuf"}, why: "for tests: decodes event files with the protobuf library"},
	{pkg: "model", own: []string{"op", "tensor", "internal/..."}, testOwn: []string{"optim"},
		why: "a list of ops; the golden test takes optimizer steps too"},
	{pkg: "optim", own: []string{"model", "op", "tensor", "internal/..."}, why: "updates the model's parameter table"},
	{pkg: "generate", own: []string{"bpe", "chat", "checkpoint", "model", "op", "tensor", "internal/..."}, why: "decodes with a model that somebody gives it"},
	{pkg: "eval", own: []string{"bpe", "corpus", "model", "op", "tensor", "internal/..."}, why: "measures a model that somebody gives it"},
	{pkg: "train", own: []string{"bpe", "chat", "checkpoint", "corpus", "generate", "model", "op", "optim", "runlog", "tensor", "internal/..."},
		testOwn: []string{"runlog/tbtest"}, why: "the loop; gets its backend from the caller"},
	{pkg: "bench", own: []string{"bpe", "corpus", "generate", "model", "op", "optim", "tensor", "train", "internal/..."},
		why: "measures what the caller gives it"},
	{pkg: "workbench/engine", own: []string{"bench", "bpe", "chat", "checkpoint", "corpus", "generate", "model", "op", "optim", "runlog", "tensor", "train", "internal/..."},
		why: "the workbench without transport and without a choice of backend; it also runs in a page"},
	{pkg: "workbench", own: everything, ext: []string{"github.com/prometheus/client_golang"},
		testExt: []string{"github.com/prometheus/common"}, why: "a program's server; chooses a backend"},
	{pkg: "cmd/tezgah", own: append([]string{"archtest"}, everything...),
		ext: []string{"github.com/spf13", "golang.org/x/term", "golang.org/x/sys"}, testOwn: []string{"gpu/gputest"},
		why: "the command line; chooses a backend"},
	{pkg: "cmd/tezgah-web", own: everything, why: "the engine in a page; chooses a backend"},
	{pkg: "archtest", why: "reads the others, imports none"},
	{pkg: "scripts/...", own: everything, why: "tools for developers"},
}

// restricted are packages of the standard library that only some may import,
// tests included.
var restricted = map[string][]string{
	"syscall/js": {"gpu/...", "cmd/tezgah-web"},        // one door to the browser
	"net/http":   {"workbench", "cmd/tezgah", "bench"}, // only programs listen; it would also double the page's download
	"C":          {},                                   // no cgo anywhere
}
