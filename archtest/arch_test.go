package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "tezgah"

// platforms are those whose files are looked at: imports differ.
var platforms = []string{"linux/amd64", "windows/amd64", "darwin/arm64", "js/wasm"}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// readFolders lists every folder of the module. The go command remembers the
// result of a test until a file or folder that it has opened changes, and it
// cannot see what `go list` opens.
func readFolders(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.' {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestImports checks every import of the module on every platform.
func TestImports(t *testing.T) {
	readFolders(t)
	for _, platform := range platforms {
		t.Run(platform, func(t *testing.T) {
			pkgs := list(t, platform)
			if len(pkgs) < 10 {
				t.Fatalf("go list found %d packages", len(pkgs))
			}
			for _, p := range pkgs {
				for _, problem := range problems(p) {
					t.Error(problem)
				}
			}
		})
	}
}

// list reads the module's packages as they are built for a platform.
func list(t *testing.T, platform string) []pkg {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("reading the imports needs the go command: %v", err)
	}
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.Command(goTool, "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// problems lists the imports of p that no rule allows.
func problems(p pkg) []string {
	name := strings.TrimPrefix(p.ImportPath, module+"/")
	r := ruleFor(name)
	if r == nil {
		return []string{fmt.Sprintf("package %s has no line in archtest/rules_test.go: add one with its reason", name)}
	}
	var bad []string
	complain := func(imports []string, own, ext []string, where string) {
		for _, i := range imports {
			if reason := forbidden(name, i, own, ext); reason != "" {
				bad = append(bad, fmt.Sprintf("%s%s imports %s: %s (%s: %s)", name, where, i, reason, r.pkg, r.why))
			}
		}
	}
	complain(p.Imports, r.own, r.ext, "")
	own := slices.Concat(r.own, r.testOwn, commonTests, []string{name})
	ext := slices.Concat(r.ext, r.testExt)
	complain(p.TestImports, own, ext, " (test)")
	complain(p.XTestImports, own, ext, " (test)")
	return bad
}

// forbidden says why package name may not import path, "" if it may.
func forbidden(name, path string, own, ext []string) string {
	if only, ok := restricted[path]; ok {
		if !slices.ContainsFunc(only, func(p string) bool { return matches(p, name) }) {
			return fmt.Sprintf("only %q may", only)
		}
		return ""
	}
	if inner, ok := strings.CutPrefix(path, module+"/"); ok {
		if !slices.ContainsFunc(own, func(p string) bool { return matches(p, inner) }) {
			return "the edge is not in archtest/rules_test.go"
		}
		return ""
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	if !slices.ContainsFunc(ext, func(p string) bool { return matches(p+"/...", path) }) {
		return "the module is not allowed here by archtest/rules_test.go"
	}
	return ""
}

// ruleFor finds the most specific rule for a package.
func ruleFor(name string) *rule {
	var best *rule
	for i := range rules {
		r := &rules[i]
		if matches(r.pkg, name) && (best == nil || len(strings.TrimSuffix(r.pkg, "/...")) > len(strings.TrimSuffix(best.pkg, "/..."))) {
			best = r
		}
	}
	return best
}

// matches reports whether path is pattern, or below it when the pattern ends
// in "/...".
func matches(pattern, path string) bool {
	base, tree := strings.CutSuffix(pattern, "/...")
	return path == base || tree && strings.HasPrefix(path, base+"/")
}

// TestRulesBite feeds the checker imports that must and must not pass.
func TestRulesBite(t *testing.T) {
	cases := []struct {
		name, path string
		test, ok   bool
	}{
		{"model", "tezgah/op", false, true},
		{"model", "tezgah/op/cpu", false, false},
		{"model", "tezgah/op/cpu", true, true},
		{"model", "tezgah/train", true, false},
		{"train", "tezgah/op/webgpu", false, false},
		{"cmd/tezgah", "tezgah/op/webgpu", false, true},
		{"cmd/tezgah", "tezgah/gpu", false, true},
		{"train", "tezgah/gpu", false, false},
		{"cmd/tezgah", "github.com/gogpu/wgpu", false, false},
		{"op/webgpu", "tezgah/gpu", false, true},
		{"op/webgpu/internal/x", "tezgah/gpu", false, true},
		{"op/webgpu", "github.com/gogpu/wgpu", false, false},
		{"gpu", "github.com/gogpu/wgpu/hal", false, true},
		{"gpu", "github.com/gogpux", false, false},
		{"gpu", "syscall/js", false, true},
		{"checkpoint", "syscall/js", true, false},
		{"checkpoint", "tezgah/model", true, false},
		{"checkpoint", "encoding/json", false, true},
		{"tensor", "C", false, false},
		{"op/cpu/internal/asm/gen", "github.com/mmcloughlin/avo/build", false, true},
		{"op/cpu/internal/kern", "github.com/mmcloughlin/avo/build", false, false},
		{"newcomer", "fmt", false, false},
	}
	for _, c := range cases {
		p := pkg{ImportPath: module + "/" + c.name, Imports: []string{c.path}}
		if c.test {
			p.Imports, p.TestImports = nil, p.Imports
		}
		if got := problems(p); (len(got) == 0) != c.ok {
			t.Errorf("%s importing %s (test %v): problems %q, want ok %v", c.name, c.path, c.test, got, c.ok)
		}
	}
}

// TestRulesAreSound: every rule has a reason, none comes twice.
func TestRulesAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules {
		if r.why == "" || seen[r.pkg] {
			t.Errorf("rule for %s: reason %q, twice %v", r.pkg, r.why, seen[r.pkg])
		}
		seen[r.pkg] = true
	}
}
