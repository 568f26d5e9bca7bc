package matrix

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSourcesAndModulesBelongTogether: SHA256SUMS, which gen.sh writes last, lists
// every file as it is now. A source that was changed without compiling fails.
func TestSourcesAndModulesBelongTogether(t *testing.T) {
	sums, err := os.ReadFile("SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: what is %q?", lines.Text())
		}
		listed[name] = sum
	}
	var files []string
	for _, pattern := range []string{"*.comp", "*.glsl", "*.spv"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != len(listed) || len(files) == 0 {
		t.Errorf("%d files, but SHA256SUMS lists %d: run go generate", len(files), len(listed))
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); listed[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is not what SHA256SUMS says: run go generate", name)
		}
	}
}

// TestModulesAreWhatTheSourcesGive compiles again where the right glslang is.
func TestModulesAreWhatTheSourcesGive(t *testing.T) {
	glslang := os.Getenv("GLSLANG")
	if glslang == "" {
		glslang = "glslang"
	}
	out, err := exec.Command(glslang, "--version").Output()
	if err != nil || !strings.Contains(strings.SplitN(string(out), "\n", 2)[0], ":16.6.0") {
		t.Skip("glslang 16.6.0 is not here")
	}
	dir := t.TempDir()
	for _, pattern := range []string{"*.comp", "*.glsl", "gen.sh"} {
		found, _ := filepath.Glob(pattern)
		for _, name := range found {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command(filepath.Join(dir, "gen.sh")).CombinedOutput(); err != nil {
		t.Fatalf("gen.sh: %v\n%s", err, out)
	}
	modules, _ := filepath.Glob("*.spv")
	for _, name := range modules {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source gives (%v)", name, err)
		}
	}
}

// TestModulesParse: every kernel is there for both inputs and begins as SPIR-V
// does.
func TestModulesParse(t *testing.T) {
	sources, err := filepath.Glob("*.comp")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	for _, s := range sources {
		for _, input := range []string{"f16", "bf16"} {
			code, err := Module(strings.TrimSuffix(s, ".comp"), input)
			if err != nil || len(code) < 5 || code[0] != 0x07230203 {
				t.Errorf("%s for %s: %v, %d words", s, input, err, len(code))
			}
		}
	}
	if _, err := Module("nothing", "f16"); err == nil {
		t.Error("a kernel that is not there was found")
	}
}
