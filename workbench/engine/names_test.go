package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// badNames are not names, and most would leave the folder if they became paths.
var badNames = []string{
	"", ".", "..", ".hidden", "a.", "a/b", "../a", `..\a`, `a\b`, "/etc/passwd", "a b", "a:b", "C:", "con", "NUL", "com1.txt", "LPT9", "a\x00b", "a\nb",
	"é/", "\xff", strings.Repeat("a", 65), strings.Repeat("語", 68), "a%2fb", "~", "$HOME", "a*b", "a?b", "\u202eexe", "\ufeffa",
}

var goodNames = []string{"a", "wiki-tr_2024.v1", "Çekirge", "日本語", "data..v2", "9", strings.Repeat("ü", 64), "com10", "console", "हिन्दी"}

func TestNames(t *testing.T) {
	for _, n := range badNames {
		if err := checkName("name", n); err == nil {
			t.Errorf("%q passes", n)
		}
	}
	for _, n := range goodNames {
		if err := checkName("name", n); err != nil {
			t.Errorf("%q: %v", n, err)
		}
	}
}

// TestNamesNeverBecomePaths sends every bad name to every request that takes
// one, percent-encoded in the path and as a setting.
func TestNamesNeverBecomePaths(t *testing.T) {
	root := t.TempDir()
	secret := filepath.Join(root, "secret.bin")
	for _, f := range []string{secret, filepath.Join(root, "secret.json"), filepath.Join(root, "secret.llm")} {
		if err := os.WriteFile(f, []byte("secret"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	w := openWorkplace(t, testOptions(filepath.Join(root, "in", "wb")))
	before := tree(t, root)
	names := append([]string{"../../secret", "../../../secret", "..%2f..%2fsecret", "....//secret"}, badNames...)
	for _, name := range names {
		for _, r := range routes {
			if !strings.Contains(r.pattern, "{name}") || strings.HasSuffix(r.pattern, "/events") {
				continue
			}
			a := w.raw(r.method, strings.Replace(r.pattern, "{name}", percent(name), 1), "{}")
			if a.status < 400 {
				t.Errorf("%s %s with %q: status %d", r.method, r.pattern, name, a.status)
			}
			if strings.Contains(a.text(), "secret\n") || a.text() == "secret" {
				t.Errorf("%s %s with %q sent the file", r.method, r.pattern, name)
			}
		}
		for _, body := range []map[string]any{
			{"name": name, "texts": []string{"sample"}, "tokenizer": "tok", "vocab_size": 300},
			{"name": "x", "texts": []string{name}, "tokenizer": name, "vocab_size": 300},
		} {
			for _, path := range []string{"/api/tokenizers", "/api/data"} {
				if b := mapWithout(body, path); w.raw("POST", path, b).status < 400 {
					t.Errorf("POST %s with %q passes", path, name)
				}
			}
		}
		for _, set := range []map[string]any{
			{"name": name}, {"name": "x", "data": []map[string]any{{"name": name}}}, {"name": "x", "init": name, "sft": []string{name}}, {"name": "x", "init": name + "@1"},
		} {
			if w.raw("POST", "/api/runs", set).status < 400 {
				t.Errorf("POST /api/runs with %v passes", set)
			}
		}
		if w.raw("POST", "/api/generate", map[string]any{"model": name}).status < 400 {
			t.Errorf("POST /api/generate with %q passes", name)
		}
	}
	if after := tree(t, root); after != before {
		t.Errorf("files before\n%s\nand after\n%s", before, after)
	}
}

func mapWithout(m map[string]any, path string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if path == "/api/tokenizers" && k == "tokenizer" || path == "/api/data" && k == "vocab_size" {
			continue
		}
		out[k] = v
	}
	return out
}

// tree lists every file below root.
func tree(t *testing.T, root string) string {
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		b.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFileNamesOfTexts: what a person's file is called becomes a label and a
// harmless ending.
func TestFileNamesOfTexts(t *testing.T) {
	for label, want := range map[string]string{
		"book.txt": "book.txt", "../../etc/passwd": "passwd", `C:\x\y.jsonl`: "y.jsonl", "a b?c.md": "a_b_c.md", "": "text.txt", "...": "text.txt",
		"\x00\x01": "__", strings.Repeat("x", 200) + ".jsonl.gz": strings.Repeat("x", 71) + ".jsonl.gz", "kıtap.txt": "kıtap.txt",
	} {
		if got := cleanFileName(label); got != want {
			t.Errorf("%q became %q, want %q", label, got, want)
		}
	}
}

// failing is a body that breaks off.
type failing struct{ n int }

func (f *failing) Read(p []byte) (int, error) {
	if f.n == 0 {
		return 0, errors.New("connection reset")
	}
	n := min(f.n, len(p))
	f.n -= n
	return n, nil
}

// TestUploads: limits hold whether or not a size is announced, and what breaks
// off leaves nothing.
func TestUploads(t *testing.T) {
	free := int64(0)
	w := newWorkplace(t, func(o *Options) {
		o.MaxUpload = 1000
		o.FreeDisk = func() int64 { return free }
	})
	big := strings.Repeat("x", 1001)
	w.refused("PUT", "/api/texts/a", big, "too_large")
	w.refused("PUT", "/api/texts/a", io.Reader(strings.NewReader(big)), "too_large")
	w.refused("PUT", "/api/texts/a", io.Reader(&failing{500}), "bad_request")
	w.refused("PUT", "/api/texts/a", nil, "bad_request")
	req, _ := NewRequest("PUT", "/api/texts/a", strings.NewReader("short"), 100)
	a := &answer{}
	w.s.Serve(t.Context(), a, req)
	if a.status != 400 {
		t.Errorf("a body shorter than announced: %d", a.status)
	}
	for _, label := range []string{"x.zip", "x.TAR.GZ", "x.7z"} {
		w.refused("PUT", "/api/texts/a?label="+label, "PK", "bad_request")
	}
	w.refused("PUT", "/api/texts/sample", "mine", "bad_request")
	free = spareDisk + 10
	w.refused("PUT", "/api/texts/a", "eleven bytes", "no_space")
	free = 0
	if w.left() != "" {
		t.Errorf("left over: %s", w.left())
	}
	var list []Text
	w.do("GET", "/api/texts", nil, &list)
	if len(list) != 1 || !list[0].Sample {
		t.Errorf("texts %+v", list)
	}
	w.do("PUT", "/api/texts/a?label=one.txt", "first text", nil)
	w.refused("PUT", "/api/texts/a?label=one.txt", "again", "exists")
	var text Text
	w.do("PUT", "/api/texts/a?label=sub/two.md&append=1", "second text", &text)
	if text.Files != 2 || text.Bytes != 21 || text.Label != "one.txt" {
		t.Errorf("%+v", text)
	}
	if got := w.raw("GET", "/api/texts/a?max=15", nil); got.text() != "first text\nseco" {
		t.Errorf("beginning %q", got.text())
	}
	w.refused("GET", "/api/texts/a?max=0", nil, "bad_request")
	w.refused("PUT", "/api/texts/a?append=2", "x", "bad_request")
	w.do("DELETE", "/api/texts/a", nil, nil)
	w.refused("GET", "/api/texts/a", nil, "not_found")
	w.refused("DELETE", "/api/texts/sample", nil, "forbidden")
}

// TestHalfUploadsAreSwept: what an ended process left is gone after a start.
func TestHalfUploadsAreSwept(t *testing.T) {
	opt := testOptions(t.TempDir())
	for _, dir := range []string{"tmp/data-1", "texts/half/files", "texts/whole/files"} {
		if err := os.MkdirAll(filepath.Join(opt.Dir, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"tmp/upload-9": "x", "tmp/data-1/d.bin.partial": "x", "texts/half/files/000001-a.txt": "x", "texts/whole/files/000001-a.txt": "hello",
		"texts/whole/text.json": `{"label":"a.txt"}`,
	} {
		if err := os.WriteFile(filepath.Join(opt.Dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	w := openWorkplace(t, opt)
	var list []Text
	w.do("GET", "/api/texts", nil, &list)
	if len(list) != 2 || list[1].Name != "whole" || w.left() != "" {
		t.Errorf("texts %+v, left over %s", list, w.left())
	}
	if _, err := os.Stat(filepath.Join(opt.Dir, "texts", "half")); err == nil {
		t.Error("half a text is still there")
	}
}

// TestOneWorkbenchAFolder: a second process is refused.
func TestOneWorkbenchAFolder(t *testing.T) {
	w := newWorkplace(t, nil)
	if _, err := New(w.opt); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("a second workbench in the folder: %v", err)
	}
}

// TestBusy: what is in use is neither deleted nor made a second time.
func TestBusy(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 1<<40), nil)
	w.until("r", func(r runView) bool { return r.State == "running" })
	e := w.refused("POST", "/api/runs", tiny("r2"), "busy")
	if !strings.Contains(e.Message, "run r ") {
		t.Errorf("%q does not say which run has the device", e.Message)
	}
	w.refused("DELETE", "/api/data/data", nil, "busy")
	w.refused("DELETE", "/api/runs/r", nil, "busy")
	w.refused("POST", "/api/runs/r/resume", nil, "busy")
	w.refused("POST", "/api/runs/probe", tiny("p"), "busy")
	w.refused("POST", "/api/runs/r/profile", nil, "busy")
	w.do("POST", "/api/runs", with(tiny("other"), "device", "cpu2"), nil) // another device is free
	w.ended("other")
	w.do("POST", "/api/runs/r/pause", nil, nil)
	w.refused("POST", "/api/runs", tiny("r"), "exists")
	w.refused("PUT", "/api/models/r", "x", "exists")
	w.refused("PUT", "/api/data/data", "x", "exists")
	w.refused("POST", "/api/tokenizers", map[string]any{"name": "tok", "texts": []string{"sample"}, "vocab_size": 300}, "exists")
	w.do("DELETE", "/api/runs/r", nil, nil)
	w.refused("GET", "/api/runs/r", nil, "not_found")
	w.do("DELETE", "/api/data/data", nil, nil)
	if w.left() != "" {
		t.Errorf("left over: %s", w.left())
	}
}
