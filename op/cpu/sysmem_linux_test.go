package cpu

import (
	"os"
	"path/filepath"
	"testing"
)

// TestControlGroupLimits reads folders laid out as the two versions of control
// groups lay them out.
func TestControlGroupLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"version 2", map[string]string{"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 5\ninactive_file 100\n"}, 400},
		{"version 2 without a limit", map[string]string{"memory.max": "max\n", "memory.current": "700\n"}, -1},
		{"version 2, over the limit", map[string]string{"memory.max": "1000\n", "memory.current": "1700\n"}, 0},
		{"version 1", map[string]string{"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "700\n",
			"memory.stat": "inactive_file 7\ntotal_inactive_file 50\n"}, 350},
		{"version 1 without a limit", map[string]string{"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "7\n"}, -1},
		{"no such group", nil, -1},
		{"damaged", map[string]string{"memory.max": "10x\n", "memory.current": "\n"}, -1},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupLeft(dir); got != c.want {
			t.Errorf("%s: %d bytes left, want %d", c.name, got, c.want)
		}
	}
}

// TestAvailableBytes wants a figure between a megabyte and the whole memory.
func TestAvailableBytes(t *testing.T) {
	total, avail := meminfo("MemTotal"), availableBytes()
	if total == 0 {
		t.Skip("no /proc/meminfo")
	}
	if avail < 1<<20 || avail > total {
		t.Errorf("%d bytes available of %d", avail, total)
	}
	if n := meminfo("NoSuchField"); n != 0 {
		t.Errorf("a field that is not there is %d", n)
	}
}

// TestRefusesWhatDoesNotFit allocates in the books only.
func TestRefusesWhatDoesNotFit(t *testing.T) {
	m := memory{limit: 1 << 60, now: 1<<60 - 100<<20}
	if err := m.fits("x", 50<<20); err != nil {
		t.Error(err)
	}
	if err := m.fits("x", 150<<20); err == nil {
		t.Error("150 MiB fit 100 MiB")
	}
}
