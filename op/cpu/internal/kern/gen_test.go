package kern

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated runs the generator and wants the committed assembly, byte for byte. It is skipped
// only where the generator's own dependency, avo, is not in the module cache and cannot be fetched.
func TestGenerated(t *testing.T) {
	if out, err := exec.Command("go", "mod", "download", "-C", "gen").CombinedOutput(); err != nil {
		t.Skipf("avo, which generates the assembly, cannot be fetched: %v\n%s", err, out)
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-C", "gen", ".", "-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("go run ./gen: %v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	committed, err := filepath.Glob("asm_*")
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 || len(made) != len(committed) {
		t.Fatalf("the generator wrote %d files, %d are committed; run go generate", len(made), len(committed))
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Base(path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes (%v); run go generate", filepath.Base(path), err)
		}
	}
}
