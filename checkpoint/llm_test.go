package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write testdata again; only for a new format version")

func TestLLMRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.llm")
	h, w, m := sample()
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLLM(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Verify(); err != nil {
		t.Fatal(err)
	}
	checkSample(t, l)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := strictCheck(b); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(b, sampleBytes(t)) {
		t.Error("SaveLLM and WriteLLM differ")
	}
	if names := folder(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
}

// TestLLMGolden pins the byte layout: version 1 must come out as it did when
// it was fixed, and be read for ever.
func TestLLMGolden(t *testing.T) {
	const path = "testdata/v1.llm"
	if *update {
		h, w, m := sample()
		if err := SaveLLM(path, h, w, m); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := OpenLLM(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
	checkSample(t, l)
	if got := sampleBytes(t); !bytes.Equal(got, want) {
		t.Errorf("the bytes of a version-1 file changed:\ngot  %q\nwant %q", got, want)
	}
}

// TestLLMWithoutExtras: only a configuration is required.
func TestLLMWithoutExtras(t *testing.T) {
	_, w, _ := sample()
	var f MemFile
	if _, err := WriteLLM(&f, Header{Config: json.RawMessage(`{}`)}, w, nil); err != nil {
		t.Fatal(err)
	}
	l, err := readLLM(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if h := l.Header; h.ChatTemplate != "" || h.LoRA != nil || h.State != nil || h.Facts != nil || len(h.Tokenizer) != 0 || len(l.Moments()) != 0 {
		t.Errorf("header %+v, moments %v", h, l.Moments())
	}
}

// TestLLMOptionalKeys: what version 1 got later is written, read, and absent
// from files that do not have it.
func TestLLMOptionalKeys(t *testing.T) {
	h, w, m := sample()
	h.ChatTemplate, h.LoRA = "chatml", json.RawMessage(`{"rank":2,"alpha":4,"targets":["wq"]}`)
	var f MemFile
	if _, err := WriteLLM(&f, h, w, m); err != nil {
		t.Fatal(err)
	}
	l, err := readLLM(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, l)
	if l.Header.ChatTemplate != h.ChatTemplate || string(l.Header.LoRA) != string(h.LoRA) {
		t.Errorf("read chat template %q and LoRA %s", l.Header.ChatTemplate, l.Header.LoRA)
	}
	if plain := sampleBytes(t); bytes.Contains(plain, []byte(keyChat)) || bytes.Contains(plain, []byte(keyLoRA)) {
		t.Error("a file without chat template and adapters has their keys")
	}
	h.LoRA = json.RawMessage("{")
	_, err = WriteLLM(new(MemFile), h, w, m)
	wantError(t, err, keyLoRA, "JSON")
}

func TestLLMRefusesInput(t *testing.T) {
	h, w, m := sample()
	write := func(h Header, w, m []Tensor) error {
		_, err := WriteLLM(new(MemFile), h, w, m)
		return err
	}
	wantError(t, write(h, append(w, m[0]), nil), "optim.m8", "optimizer")
	wantError(t, write(h, w, w[:1]), "tok_emb", "must begin with")
	bad := h
	bad.Config = nil
	wantError(t, write(bad, w, m), "configuration")
	bad.Config = json.RawMessage(`{"a":`)
	wantError(t, write(bad, w, m), "tezgah.config", "JSON")
	bad = h
	bad.Tokenizer = []byte{0xff}
	wantError(t, write(bad, w, m), "tezgah.tokenizer", "UTF-8")
}

// TestBitFlips flips every single bit of a model: each must be found.
func TestBitFlips(t *testing.T) {
	good := sampleBytes(t)
	if _, err := readLLM(good); err != nil {
		t.Fatal(err)
	}
	b := slices.Clone(good)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, err := readLLM(b)
			if err == nil {
				t.Fatalf("bit %d of byte %d of %d flipped unnoticed", bit, i, len(b))
			}
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotLLM) {
				t.Fatalf("bit %d of byte %d: error %v has no kind", bit, i, err)
			}
			b[i] ^= 1 << bit
		}
	}
}

// TestTruncation cuts a model at every byte, and appends to it.
func TestTruncation(t *testing.T) {
	good := sampleBytes(t)
	for n := range good {
		if _, err := readLLM(good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(good), err)
		}
	}
	for _, extra := range [][]byte{{0}, []byte(" "), good} {
		if _, err := readLLM(append(slices.Clone(good), extra...)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes appended: %v", len(extra), err)
		}
	}
}

// TestVersions: an unknown version is refused by name, another program's file
// too, with the way in.
func TestVersions(t *testing.T) {
	build := func(version string) []byte {
		var f MemFile
		meta := []pair{{keyFormat, "pt"}, {keySelf, "00000000"}, {keyConfig, "{}"}, {keySums, ""}}
		if version != "" {
			meta = append(meta, pair{keyVersion, version})
		}
		p, err := planFile(meta, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.write(&f); err != nil {
			t.Fatal(err)
		}
		return f.Bytes()
	}
	if _, err := readLLM(build("1")); err != nil {
		t.Errorf("version 1: %v", err)
	}
	_, err := readLLM(build("2"))
	wantError(t, err, "version 2", "reads up to 1", "newer tezgah")
	if !errors.Is(err, ErrVersion) {
		t.Errorf("version 2: %v is not ErrVersion", err)
	}
	for _, v := range []string{"0", "-1", "one", "1.0"} {
		if _, err := readLLM(build(v)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("version %q: %v", v, err)
		}
	}
	_, err = readLLM(build(""))
	wantError(t, err, "tezgah import")
	if !errors.Is(err, ErrNotLLM) {
		t.Errorf("no version: %v is not ErrNotLLM", err)
	}
}

// TestPlainCopyDropsSums: metadata copied from an .llm into a plain file must
// not carry checksums that no longer hold.
func TestPlainCopyDropsSums(t *testing.T) {
	l, err := readLLM(sampleBytes(t))
	if err != nil {
		t.Fatal(err)
	}
	var f MemFile
	if _, err := WriteSafetensors(&f, l.Meta(), []Tensor{Float32s("x", nil, []float32{1})}); err != nil {
		t.Fatal(err)
	}
	r, err := NewFile(bytes.NewReader(f.Bytes()), int64(len(f.Bytes())), "copy")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(); err != nil {
		t.Error(err)
	}
}

func BenchmarkVerify(b *testing.B) {
	const n = 16 << 20
	var f MemFile
	if _, err := WriteLLM(&f, Header{Config: json.RawMessage(`{}`)}, []Tensor{Float32s("x", []int{n}, make([]float32, n))}, nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(f.Bytes())))
	for b.Loop() {
		if _, err := readLLM(f.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSave(b *testing.B) {
	const n = 16 << 20
	x := make([]float32, n)
	path := filepath.Join(b.TempDir(), "x.llm")
	b.SetBytes(4 * n)
	for b.Loop() {
		if err := SaveLLM(path, Header{Config: json.RawMessage(`{}`)}, []Tensor{Float32s("x", []int{n}, x)}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
