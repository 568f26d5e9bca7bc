package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/tensor"
)

// TestMain also serves as the program that the crash tests start and kill.
func TestMain(m *testing.M) {
	if job := os.Getenv("TEZGAH_TEST_JOB"); job != "" {
		if err := jobs[job](os.Getenv("TEZGAH_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// jobs are the programs of the crash tests, by name.
var jobs = map[string]func(dir string) error{}

// values returns n reproducible numbers of all magnitudes. They are made of
// integers alone, so that every machine makes the same bits.
func values(seed uint64, n int) []float32 {
	x := make([]float32, n)
	r := tensor.NewRNG(seed, 0)
	for i := range x {
		x[i] = float32(math.Ldexp(float64(int32(r.Uint64(uint64(i)))), i%60-60))
	}
	return x
}

// sample is a small model with every kind of content: odd sizes, a scalar, an
// empty tensor, 8-bit moments with their scales, a tokenizer with quotes,
// control characters and letters outside ASCII.
func sample() (Header, []Tensor, []Tensor) {
	h := Header{
		Config:    json.RawMessage(`{"vocab_size":5,"d_model":3, "tied":true}`),
		Tokenizer: []byte("{\"model\":{\"vocab\":{\"\\\"\":0,\"<a>\":1,\"ğ&ş\":2}}}\n\t\u2028"),
		Facts:     json.RawMessage(`{"tokens":1024,"loss":2.5}`),
		State:     json.RawMessage(`{"step":7,"cursor":18446744073709551615}`),
	}
	q := []byte{1, 255, 0, 128, 127}
	weights := []Tensor{
		Float32s("tok_emb", []int{5, 3}, values(1, 15)),
		Float32s("layers.0.wq", []int{3, 7}, values(2, 21)),
		Float32s("scalar", nil, values(3, 1)),
		Float32s("empty", []int{0, 4}, nil),
	}
	moments := []Tensor{
		Bytes("optim.m8", tensor.I8, []int{5}, q),
		Float32s("optim.m_scale", []int{1}, values(4, 1)),
		Float32s("optim.v", []int{2, 2}, values(5, 4)),
	}
	return h, weights, moments
}

func sampleBytes(t testing.TB) []byte {
	t.Helper()
	h, w, m := sample()
	var f MemFile
	n, err := WriteLLM(&f, h, w, m)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(len(f.Bytes())) {
		t.Fatalf("WriteLLM returned %d, wrote %d bytes", n, len(f.Bytes()))
	}
	return f.Bytes()
}

// readLLM opens and verifies a model that lies in memory.
func readLLM(b []byte) (*LLM, error) {
	l, err := NewLLM(bytes.NewReader(b), int64(len(b)), "mem.llm")
	if err != nil {
		return nil, err
	}
	return l, l.Verify()
}

// checkSample compares l with sample().
func checkSample(t *testing.T, l *LLM) {
	t.Helper()
	h, w, m := sample()
	got := l.Header
	if string(got.Config) != string(h.Config) || string(got.Facts) != string(h.Facts) ||
		string(got.State) != string(h.State) || !bytes.Equal(got.Tokenizer, h.Tokenizer) || got.Version != Version {
		t.Errorf("header is %+v, want %+v", got, h)
	}
	if len(l.Weights()) != len(w) || len(l.Moments()) != len(m) {
		t.Errorf("got %d weights and %d moments, want %d and %d", len(l.Weights()), len(l.Moments()), len(w), len(m))
	}
	for _, want := range append(w, m...) {
		info, ok := l.Lookup(want.Name)
		if !ok || info.Type != want.Type || fmt.Sprint(info.Shape) != fmt.Sprint(want.Shape) {
			t.Errorf("%s is %v, %v; want %v", want.Name, info, ok, want.Info)
			continue
		}
		got := bytes.Repeat([]byte{0xAA}, int(info.SizeBytes()))
		if err := l.ReadBytes(want.Name, got); err != nil {
			t.Error(err)
		}
		var data bytes.Buffer
		if err := want.Write(&data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data.Bytes()) {
			t.Errorf("%s: got bytes % x, want % x", want.Name, got, data.Bytes())
		}
	}
}

// raw builds a file from a JSON header and n bytes of data.
func raw(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, n)...)
}

// wantError fails unless err is there and mentions every part.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one about %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not mention %q", err, p)
		}
	}
}

// folder lists the names in dir.
func folder(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// saveStep saves the sample as a checkpoint of run.
func saveStep(t *testing.T, run string, step int64) string {
	t.Helper()
	h, w, m := sample()
	path := CheckpointPath(run, step)
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Fatal(err)
	}
	return path
}

func damage(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	b[(at+int64(len(b)))%int64(len(b))] ^= 0x10
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
