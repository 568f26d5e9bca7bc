package corpus

import (
	"path/filepath"
	"testing"
)

func TestBuildRoundTrip(t *testing.T) {
	files := map[string]string{
		"b.txt": "second\n", "a/x.md": "first", "c.jsonl": "{\"text\":\"third\"}\n\n{\"text\":\"four\\nth\"}\n", "empty.txt": "",
		"bin.dat": "a\x00b", ".git/config": "no", "z.txt": "not utf-8: \xff\xfe",
	}
	want := []string{"first", "second\n", "third", "four\nth", "not utf-8: \xff\xfe"}
	for _, tok := range []byteTokenizer{narrow, wide} {
		dir := writeTree(t, files)
		out := filepath.Join(t.TempDir(), "o.bin")
		r, d := mustBuild(t, BuildOptions{Input: InputOptions{Paths: []string{dir}}, Tokenizer: tok, Out: out})
		if got := string(tok.decode(readAll(t, d))); got != joined(want) {
			t.Fatalf("%s: decoded %q, want %q", tok.name, got, joined(want))
		}
		if r.Documents != 5 || d.Docs() != 5 || r.Stats.Empty != 1 || r.Stats.Binary != 1 || r.Tokens != d.Len() {
			t.Fatalf("report %+v", r)
		}
		for i := range want {
			ids := make([]int32, len(want[i])+1)
			if n := d.DocStart(int64(i+1)) - d.DocStart(int64(i)); n != int64(len(ids)) {
				t.Fatalf("document %d has %d tokens, want %d", i, n, len(ids))
			}
			if err := d.Read(ids, d.DocStart(int64(i))); err != nil || string(tok.decode(ids)) != want[i]+endOfText {
				t.Fatalf("document %d is %q, %v", i, tok.decode(ids), err)
			}
		}
	}
}
