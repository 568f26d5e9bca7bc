package corpus

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// byteTokenizer has an id for every byte, shifted by base, and the end-of-document token after them.
type byteTokenizer struct {
	base, vocab int
	name        string
}

func (t byteTokenizer) JSON() []byte {
	return []byte(fmt.Sprintf(`{"byte":%q,"base":%d}`, t.name, t.base))
}
func (t byteTokenizer) VocabSize() int       { return t.vocab }
func (t byteTokenizer) EndOfDocument() int32 { return int32(t.base + 256) }
func (t byteTokenizer) Encode(dst []int32, text []byte) []int32 {
	for _, c := range text {
		dst = append(dst, int32(t.base)+int32(c))
	}
	return dst
}

func (t byteTokenizer) decode(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		if id == t.EndOfDocument() {
			out = append(out, endOfText...)
		} else if id >= int32(t.base) && id < int32(t.base)+256 {
			out = append(out, byte(id-int32(t.base)))
		}
	}
	return out
}

var (
	narrow = byteTokenizer{vocab: 257, name: "narrow"}
	wide   = byteTokenizer{base: 65_500, vocab: 70_000, name: "wide"}
)

// writeTree writes files below a new folder and returns it.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// walkAll returns the documents of a walk.
func walkAll(t *testing.T, opt InputOptions) ([]string, WalkStats) {
	t.Helper()
	var docs []string
	stats, err := Walk(context.Background(), opt, func(d Document) error {
		docs = append(docs, string(d.Text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs, stats
}

// readAll returns all tokens of a dataset.
func readAll(t *testing.T, d *Dataset) []int32 {
	t.Helper()
	ids := make([]int32, d.Len())
	for i := range ids {
		ids[i] = -99
	}
	if err := d.Read(ids, 0); err != nil {
		t.Fatal(err)
	}
	return ids
}

// mustOpen opens a token file for the length of a test.
func mustOpen(t *testing.T, path string, opt OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// mustBuild builds and opens the result.
func mustBuild(t *testing.T, opt BuildOptions) (Report, *Dataset) {
	t.Helper()
	r, err := Build(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r, mustOpen(t, r.Path, OpenOptions{Verify: true})
}

// joined is what a byte tokenizer's token file of docs decodes to.
func joined(docs []string) string {
	var b bytes.Buffer
	for _, d := range docs {
		b.WriteString(d + endOfText)
	}
	return b.String()
}

// prose returns n bytes or a little more of words and lines.
func prose(seed uint64, n int) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	var b bytes.Buffer
	for b.Len() < n {
		for range 1 + rng.IntN(9) {
			b.WriteByte(byte('a' + rng.IntN(26)))
		}
		b.WriteString([]string{" ", " ", " ", ", ", "\n", ".\n\n", " şğü "}[rng.IntN(7)])
	}
	return b.String()
}
