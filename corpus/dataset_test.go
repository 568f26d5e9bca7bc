package corpus

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// smallFile is a token file in memory: three documents.
func smallFile(t testing.TB, tok byteTokenizer) ([]byte, string) {
	t.Helper()
	docs := []string{"one", "the second document", prose(1, 500)}
	b, err := BuildMemory(tok, [][]byte{[]byte(docs[0]), []byte(docs[1]), []byte(docs[2])})
	if err != nil {
		t.Fatal(err)
	}
	return b, joined(docs)
}

// TestEveryBitCounts flips each bit of a file in turn: opening or verifying must fail for every one.
func TestEveryBitCounts(t *testing.T) {
	b, _ := smallFile(t, narrow)
	opt := OpenOptions{VocabSize: 1 << 16} // as if a foreign file were welcome
	if d, err := OpenBytes("f", b, opt); err != nil || d.Verify(context.Background()) != nil {
		t.Fatal("the file itself is refused")
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			d, err := OpenBytes("f", b, opt)
			if err == nil {
				err = d.Verify(context.Background())
			}
			if err == nil {
				t.Fatalf("bit %d of byte %d was flipped without an error", bit, i)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range len(b) {
		if d, err := OpenBytes("f", b[:n], opt); err == nil && d.Format() == formatTezgah || err == nil && n > 8 {
			t.Fatalf("a file cut to %d bytes was opened", n)
		}
	}
	if _, err := OpenBytes("f", append(bytes.Clone(b), 0), opt); err == nil || !strings.Contains(err.Error(), "something was appended") {
		t.Errorf("an appended byte: %v", err)
	}
}

// TestReadFindsFlippedBit: Read notices damage in the block it touches and only there, without Verify.
func TestReadFindsFlippedBit(t *testing.T) {
	doc := prose(2, 300_000)
	b, err := BuildMemory(wide, [][]byte{[]byte(doc)})
	if err != nil {
		t.Fatal(err)
	}
	b[headerBytes+4*100_000] ^= 4 // token 100,000
	path := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(t, path, OpenOptions{})
	ids := make([]int32, 100)
	perBlock := int64(blockBytes / 4)
	bad := 100_000 / perBlock
	for block := range d.Len() / perBlock {
		err := d.Read(ids, block*perBlock+50)
		if (err != nil) != (block == bad) {
			t.Errorf("block %d: %v", block, err)
		}
		if err != nil && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "damaged")) {
			t.Errorf("error %v", err)
		}
	}
	if err := d.Read(ids, bad*perBlock-50); err == nil {
		t.Error("a read that ends in the damaged block succeeded")
	}
	if _, err := Open(path, OpenOptions{Verify: true}); err == nil {
		t.Error("Verify did not find it")
	}
}

func TestReadRange(t *testing.T) {
	b, text := smallFile(t, wide)
	d, err := OpenBytes("f", b, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := readAll(t, d)
	if string(wide.decode(want)) != text || d.VocabSize() != 70_000 || d.TokenWidth() != 4 || d.EndOfDocument() != wide.EndOfDocument() {
		t.Fatal("wrong content")
	}
	for _, c := range []struct{ off, n int64 }{{0, 0}, {d.Len(), 0}, {0, 1}, {d.Len() - 1, 1}, {3, 11}} {
		ids := make([]int32, c.n)
		if err := d.Read(ids, c.off); err != nil || !slices.Equal(ids, want[c.off:c.off+c.n]) {
			t.Errorf("read %v: %v", c, err)
		}
	}
	for _, c := range []struct{ off, n int64 }{{-1, 1}, {d.Len(), 1}, {d.Len() + 1, 0}, {0, d.Len() + 1}} {
		if err := d.Read(make([]int32, c.n), c.off); err == nil {
			t.Errorf("read %v succeeded", c)
		}
	}
}

func TestReadConcurrently(t *testing.T) {
	b, err := BuildMemory(narrow, [][]byte{[]byte(prose(3, 1_000_000))})
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenBytes("f", b, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := readAll(t, d)
	d, _ = OpenBytes("f", b, OpenOptions{}) // nothing verified yet
	var wg sync.WaitGroup
	for k := range int64(4) {
		wg.Go(func() {
			ids := make([]int32, 777)
			for off := k * 100; off+777 < d.Len(); off += 5_000 {
				if err := d.Read(ids, off); err != nil || !slices.Equal(ids, want[off:off+777]) {
					t.Errorf("at %d: %v", off, err)
				}
			}
		})
	}
	wg.Wait()
}

// llmcFile makes a file as llm.c's data scripts do.
func llmcFile(magic, version uint32, ids []uint32, width int) []byte {
	b := make([]byte, llmcHeader)
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], version)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(ids)))
	return append(b, rawTokens(ids, width)...)
}

func rawTokens(ids []uint32, width int) (b []byte) {
	for _, id := range ids {
		if width == 2 {
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		} else {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
	}
	return b
}

func TestForeignFiles(t *testing.T) {
	ids := []uint32{0, 50_256, 17, 65_535, 300, 50_256}
	opt := OpenOptions{VocabSize: 70_000, EndOfDocument: 50_256}
	for _, c := range []struct {
		format string
		b      []byte
		width  int
	}{
		{formatNanoGPT, rawTokens(ids, 2), 2}, {formatLLMC, llmcFile(20240520, 1, ids, 2), 2},
		{formatLLMC, llmcFile(20240801, 7, append(slices.Clone(ids), 69_999), 4), 4},
	} {
		path := filepath.Join(t.TempDir(), "f.bin")
		if err := os.WriteFile(path, c.b, 0o666); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, path, opt)
		got := readAll(t, d)
		for i, id := range ids {
			if got[i] != int32(id) {
				t.Errorf("%s: token %d is %d, want %d", c.format, i, got[i], id)
			}
		}
		if d.Format() != c.format || d.TokenWidth() != c.width || d.EndOfDocument() != 50_256 || d.Docs() != 0 || d.DocAt(3) != -1 {
			t.Errorf("%s: format %s, width %d", c.format, d.Format(), d.TokenWidth())
		}
		if _, err := Open(path, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "give the tokenizer") {
			t.Errorf("%s without a vocabulary: %v", c.format, err)
		}
		small := mustOpen(t, path, OpenOptions{VocabSize: 1000, EndOfDocument: -1})
		if err := small.Read(make([]int32, 3), 0); err == nil || !strings.Contains(err.Error(), "another tokenizer") {
			t.Errorf("%s with a small vocabulary: %v", c.format, err)
		}
	}
	good := llmcFile(20240520, 1, ids, 2)
	flipped := bytes.Clone(good)
	flipped[1] ^= 1
	for name, b := range map[string][]byte{"cut": good[:len(good)-2], "long": append(bytes.Clone(good), 0, 0), "header": good[:100],
		"odd": {1, 2, 3}, "empty": nil, "flipped": flipped} {
		path := filepath.Join(t.TempDir(), "f.bin")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, opt); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	b, _ := smallFile(t, narrow)
	path := filepath.Join(dir, "f.bin")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, OpenOptions{TokenizerJSON: wide.JSON()}); err == nil || !strings.Contains(err.Error(), "another tokenizer") {
		t.Errorf("other tokenizer: %v", err)
	}
	mustOpen(t, path, OpenOptions{TokenizerJSON: narrow.JSON()})
	for _, p := range []string{dir, filepath.Join(dir, "none.bin")} {
		if _, err := Open(p, OpenOptions{}); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestManifestRefusals(t *testing.T) {
	src := bigTree(t)
	dir := t.TempDir()
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(dir, "o.bin"), ShardBytes: 3_000_000}
	r, err := Build(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	shard := filepath.Join(dir, "o-00001.bin")
	good, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := smallFile(t, wide)
	flipped := bytes.Clone(good)
	flipped[headerBytes+1000] ^= 1
	for name, b := range map[string][]byte{"cut": good[:len(good)-1], "other": other, "junk": []byte("junk"), "flipped": flipped} {
		if err := os.WriteFile(shard, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(r.Path, OpenOptions{Verify: true}); err == nil || !strings.Contains(err.Error(), "o-00001.bin") {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.Remove(shard)
	if _, err := Open(r.Path, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "o-00001.bin") {
		t.Errorf("missing shard: %v", err)
	}
	entry := `{"file":%q,"tokens":1,"documents":1}`
	for _, m := range []string{`{`, `{}`, `{"format":"tezgah-shards","version":2,"shards":[]}`,
		`{"format":"tezgah-shards","version":1,"shards":[]}`,
		`{"format":"tezgah-shards","version":1,"tokens":1,"documents":1,"shards":[` + strings.Replace(entry, "%q", `"../x"`, 1) + `]}`,
		`{"format":"tezgah-shards","version":1,"tokens":2,"documents":1,"shards":[` + strings.Replace(entry, "%q", `"x"`, 1) + `]}`} {
		if _, err := parseManifest([]byte(m)); err == nil {
			t.Errorf("accepted %s", m)
		}
	}
}

func FuzzOpen(f *testing.F) {
	small, _ := smallFile(f, narrow)
	f.Add(small)
	f.Add(llmcFile(20240801, 7, []uint32{1, 2, 70_001}, 4))
	f.Add([]byte("TZGTOK\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// With the checksums made good, so that the other checks are reached too.
		for _, fix := range []bool{false, true} {
			if fix && len(b) >= headerBytes {
				b = bytes.Clone(b)
				binary.LittleEndian.PutUint32(b[headerBytes-4:], crc(b[:headerBytes-4]))
			}
			d, err := OpenBytes("f", b, OpenOptions{VocabSize: 70_000})
			if err != nil {
				continue
			}
			ids := make([]int32, min(d.Len(), 1<<16))
			if d.Read(ids, 0) == nil {
				for _, id := range ids {
					if id < 0 || int(id) >= d.VocabSize() {
						t.Fatalf("id %d of a vocabulary of %d", id, d.VocabSize())
					}
				}
			}
			for i := range min(d.Docs(), 100) {
				if d.DocAt(d.DocStart(i)) != i {
					t.Fatalf("document %d begins in document %d", i, d.DocAt(d.DocStart(i)))
				}
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":"tezgah-shards","version":1,"tokens":1,"documents":1,"shards":[{"file":"a","tokens":1,"documents":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		for _, s := range m.Shards {
			if strings.ContainsAny(s.File, `/`) || s.Tokens < 0 {
				t.Fatalf("accepted %+v", s)
			}
		}
	})
}
