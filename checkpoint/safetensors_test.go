package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tezgah/tensor"
)

// strictCheck reads b as the safetensors specification says, sharing nothing
// with this package's reader: it decodes the whole header at once and marks
// every byte of the buffer that a tensor claims.
func strictCheck(b []byte) error {
	if len(b) < 8 {
		return errors.New("no length")
	}
	n := binary.LittleEndian.Uint64(b)
	if n > 100_000_000 || n > uint64(len(b)-8) {
		return fmt.Errorf("header length %d", n)
	}
	text, data := b[8:8+n], b[8+n:]
	if n%8 != 0 || text[0] != '{' {
		return fmt.Errorf("header of length %d begins with %q", n, text[0])
	}
	if trimmed := bytes.TrimRight(text, " "); trimmed[len(trimmed)-1] != '}' {
		return errors.New("padding is not spaces")
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return err
	}
	widths := map[string]uint64{"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "I8": 1, "BOOL": 1, "F64": 8, "I16": 2, "U16": 2, "U32": 4, "U64": 8}
	claimed := make([]bool, len(data))
	for name, rawEntry := range entries {
		if name == "__metadata__" {
			var meta map[string]string
			if err := json.Unmarshal(rawEntry, &meta); err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		var e struct {
			DType   string    `json:"dtype"`
			Shape   []uint64  `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}
		d := json.NewDecoder(bytes.NewReader(rawEntry))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		need, ok := widths[e.DType]
		if !ok || e.Shape == nil {
			return fmt.Errorf("%s: type %q, shape %v", name, e.DType, e.Shape)
		}
		if e.Offsets[0]%need != 0 {
			return fmt.Errorf("%s: begins at %d, not aligned to %d", name, e.Offsets[0], need)
		}
		for _, d := range e.Shape {
			need *= d
		}
		if e.Offsets[1]-e.Offsets[0] != need || e.Offsets[1] > uint64(len(data)) {
			return fmt.Errorf("%s: offsets %v, need %d bytes of %d", name, e.Offsets, need, len(data))
		}
		for i := e.Offsets[0]; i < e.Offsets[1]; i++ {
			if claimed[i] {
				return fmt.Errorf("%s: byte %d belongs to two tensors", name, i)
			}
			claimed[i] = true
		}
	}
	if i := slices.Index(claimed, false); i >= 0 {
		return fmt.Errorf("byte %d belongs to no tensor", i)
	}
	return nil
}

// TestStrictCheckBites makes sure that the checker above can fail.
func TestStrictCheckBites(t *testing.T) {
	good := sampleBytes(t)
	if err := strictCheck(good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{good[:len(good)-1], append(slices.Clone(good), 0), bytes.Replace(good, []byte("F32"), []byte("F99"), 1)} {
		if strictCheck(bad) == nil {
			t.Error("the checker accepts a bad file")
		}
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	types := []tensor.DType{tensor.U8, tensor.F16, tensor.F64, tensor.BF16, tensor.I64, tensor.Bool, tensor.F32}
	shapes := [][]int{nil, {1}, {7}, {3, 5}, {0}, {2, 0, 3}, {17, 1, 13}}
	var ts []Tensor
	want := map[string][]byte{}
	for i, dt := range types {
		for j, shape := range shapes {
			info := Info{fmt.Sprintf("%d.%d", i, j), dt, shape}
			data := make([]byte, info.SizeBytes())
			for k := range data {
				data[k] = byte(tensor.NewRNG(9, uint64(i*10+j)).Uint64(uint64(k)))
			}
			want[info.Name] = data
			ts = append(ts, Bytes(info.Name, dt, shape, data))
		}
	}
	meta := map[string]string{"format": "pt", "a \"b\"": "é\n<&>"}
	var f MemFile
	if _, err := WriteSafetensors(&f, meta, ts); err != nil {
		t.Fatal(err)
	}
	if err := strictCheck(f.Bytes()); err != nil {
		t.Fatal(err)
	}
	r, err := NewFile(bytes.NewReader(f.Bytes()), int64(len(f.Bytes())), "mem")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(r.Meta(), meta) {
		t.Errorf("metadata %q, want %q", r.Meta(), meta)
	}
	if len(r.Tensors()) != len(ts) {
		t.Errorf("%d tensors, want %d", len(r.Tensors()), len(ts))
	}
	for _, in := range ts {
		got := make([]byte, in.SizeBytes())
		if err := r.ReadBytes(in.Name, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[in.Name]) {
			t.Errorf("%s: wrong data", in.Name)
		}
	}
}

// TestChunks saves a tensor of more than one piece through Read and checks the
// pieces, then reads it back in all ways.
func TestChunks(t *testing.T) {
	const n = chunkBytes/4*2 + 3
	x := values(6, n)
	src := tensor.Bytes(x)
	var next int64
	big := Tensor{Info: Info{"big", tensor.F32, []int{n}}, Read: func(p []byte, off int64) error {
		if off != next || len(p) > chunkBytes || len(p)%4 != 0 {
			t.Errorf("piece of %d bytes at %d, want at most %d at %d", len(p), off, chunkBytes, next)
		}
		next += int64(copy(p, src[off:]))
		return nil
	}}
	var f MemFile
	h, _, _ := sample()
	if _, err := WriteLLM(&f, h, []Tensor{big}, nil); err != nil {
		t.Fatal(err)
	}
	l, err := readLLM(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	y := make([]float32, n)
	if err := l.ReadFloat32("big", y); err != nil || !slices.Equal(x, y) {
		t.Errorf("ReadFloat32: %v, or wrong values", err)
	}
	r, err := l.Reader("big")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, src) {
		t.Errorf("Reader: %v, or wrong bytes", err)
	}
	p := make([]byte, 10)
	if err := l.ReadAt("big", p, 4*n-10); err != nil || !bytes.Equal(p, src[4*n-10:]) {
		t.Errorf("ReadAt: %v, or wrong bytes", err)
	}
	for _, off := range []int64{-1, 4*n - 9, math.MaxInt64} {
		if l.ReadAt("big", p, off) == nil {
			t.Errorf("ReadAt at %d succeeded", off)
		}
	}
	// Damage in the first piece must keep the last one from arriving.
	f.Bytes()[len(f.Bytes())-4*n] ^= 1
	r, _ = l.Reader("big")
	b := make([]byte, 4*n)
	if got, err := io.ReadFull(r, b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Reader gave %d of %d damaged bytes and error %v", got, len(b), err)
	}
}

// TestReadFloat32Types checks the widening of each type on values that all of
// them hold exactly.
func TestReadFloat32Types(t *testing.T) {
	want := []float32{0, 1, -2.5, 0.15625, 96}
	enc := map[tensor.DType]func(b []byte, x float32) []byte{
		tensor.F16:  func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint16(b, tensor.ToF16(x)) },
		tensor.BF16: func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint16(b, tensor.ToBF16(x)) },
		tensor.F32:  func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(x)) },
		tensor.F64: func(b []byte, x float32) []byte {
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)))
		},
	}
	for dt, f := range enc {
		var data []byte
		for _, x := range want {
			data = f(data, x)
		}
		var m MemFile
		if _, err := WriteSafetensors(&m, nil, []Tensor{Bytes("x", dt, []int{5}, data)}); err != nil {
			t.Fatal(err)
		}
		r, err := NewFile(bytes.NewReader(m.Bytes()), int64(len(m.Bytes())), "mem")
		if err != nil {
			t.Fatal(err)
		}
		got := values(1, 5)
		if err := r.ReadFloat32("x", got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: got %v, %v; want %v", dt, got, err, want)
		}
		wantError(t, r.ReadFloat32("x", got[:4]), "4 elements", "want 5")
		wantError(t, r.ReadFloat32("y", got), `no tensor "y"`)
	}
	var m MemFile
	if _, err := WriteSafetensors(&m, nil, []Tensor{Bytes("x", tensor.I32, []int{1}, make([]byte, 4))}); err != nil {
		t.Fatal(err)
	}
	r, _ := NewFile(bytes.NewReader(m.Bytes()), int64(len(m.Bytes())), "mem")
	wantError(t, r.ReadFloat32("x", make([]float32, 1)), "I32", "want one of")
}

func TestWriteRefuses(t *testing.T) {
	ok := Float32s("x", []int{2}, []float32{1, 2})
	cases := []struct {
		name string
		meta map[string]string
		ts   []Tensor
		want []string
	}{
		{"same name", nil, []Tensor{ok, ok}, []string{`two tensors`, `"x"`}},
		{"reserved name", nil, []Tensor{Float32s("__metadata__", nil, []float32{1})}, []string{"__metadata__"}},
		{"too little data", nil, []Tensor{Float32s("x", []int{3}, []float32{1, 2})}, []string{`"x"`, "8 bytes", "want 12"}},
		{"too much data", nil, []Tensor{Float32s("x", []int{1}, []float32{1, 2})}, []string{`"x"`, "4 bytes", "too many"}},
		{"negative shape", nil, []Tensor{Float32s("x", []int{-1}, nil)}, []string{"negative"}},
		{"overflow", nil, []Tensor{Float32s("x", []int{math.MaxInt32, math.MaxInt32, 16}, nil)}, []string{"larger than any file"}},
		{"no type", nil, []Tensor{Bytes("x", 99, nil, nil)}, []string{"element type"}},
		{"no source", nil, []Tensor{{Info: ok.Info}}, []string{"Read and Write"}},
		{"bad metadata", map[string]string{"a": "\xff"}, []Tensor{ok}, []string{`"a"`, "UTF-8"}},
		{"bad name", nil, []Tensor{Float32s("\xff", nil, []float32{1})}, []string{"UTF-8"}},
		{"failing read", nil, []Tensor{{Info: ok.Info, Read: func([]byte, int64) error { return errors.New("device lost") }}}, []string{`"x"`, "device lost"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var m MemFile
			_, err := WriteSafetensors(&m, c.meta, c.ts)
			wantError(t, err, c.want...)
		})
	}
}

// TestOpenRefuses lists what a header can get wrong.
func TestOpenRefuses(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return `{"x":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	two := func(a, b string) string {
		return `{"a":{"dtype":"U8","shape":[2],"data_offsets":` + a + `},"b":{"dtype":"U8","shape":[2],"data_offsets":` + b + `}}`
	}
	cases := []struct {
		name, header string
		data         int
		want         string
	}{
		{"array", `[]`, 0, "'{'"},
		{"leading space", ` {}`, 0, "'{'"},
		{"not JSON", `{"x"}`, 0, "JSON"},
		{"two values", `{}{}`, 0, "JSON"},
		{"not UTF-8", "{\"\xff\":1}", 0, "UTF-8"},
		{"entry is a number", `{"x":1}`, 0, "want an object"},
		{"metadata is a string", `{"__metadata__":"x"}`, 0, "want an object"},
		{"metadata value is a number", `{"__metadata__":{"a":1}}`, 0, "want a string"},
		{"metadata value is null", `{"__metadata__":{"a":null}}`, 0, "want a string"},
		{"metadata value is an object", `{"__metadata__":{"a":{}}}`, 0, "want a string"},
		{"metadata key twice", `{"__metadata__":{"a":"1","a":"2"}}`, 0, "twice"},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, "twice"},
		{"name twice", `{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0078":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 2, "twice"},
		{"field twice", `{"x":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1, "twice"},
		{"unknown field", `{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"z":1}}`, 1, "unknown field"},
		{"no type", `{"x":{"shape":[],"data_offsets":[0,1]}}`, 1, "lacks"},
		{"no shape", `{"x":{"dtype":"U8","data_offsets":[0,1]}}`, 1, "lacks"},
		{"no offsets", `{"x":{"dtype":"U8","shape":[]}}`, 1, "lacks"},
		{"type is a number", `{"x":{"dtype":1,"shape":[],"data_offsets":[0,1]}}`, 1, "want a string"},
		{"unknown type", entry("F33", "[1]", "[0,4]"), 4, "unknown element type"},
		{"shape is null", entry("U8", "null", "[0,1]"), 1, "want an array"},
		{"shape with a fraction", entry("U8", "[1.0]", "[0,1]"), 1, "want an integer"},
		{"shape with an exponent", entry("U8", "[1e0]", "[0,1]"), 1, "want an integer"},
		{"negative shape", entry("U8", "[-1]", "[0,1]"), 1, "want an integer"},
		{"shape of strings", entry("U8", `["1"]`, "[0,1]"), 1, "want an integer"},
		{"shape beyond int64", entry("U8", "[9223372036854775808]", "[0,1]"), 1, "want an integer"},
		{"shape overflows", entry("F32", "[4294967296,4294967296]", "[0,0]"), 0, "larger than any file"},
		{"shape overflows by its type", entry("F32", "[4611686018427387904]", "[0,0]"), 0, "larger than any file"},
		{"one offset", entry("U8", "[1]", "[1]"), 1, "want [begin, end]"},
		{"offsets reversed", entry("U8", "[1]", "[1,0]"), 1, "want [begin, end]"},
		{"offsets too wide", entry("U8", "[1]", "[0,2]"), 2, "needs 1 bytes"},
		{"past the file", entry("U8", "[5]", "[0,5]"), 4, "cut short"},
		{"far past the file", entry("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 4, "cut short"},
		{"trailing bytes", entry("U8", "[3]", "[0,3]"), 4, "the file has 4"},
		{"data without tensors", `{}`, 1, "the file has 1"},
		{"hole at the start", entry("U8", "[3]", "[1,4]"), 4, "no tensor"},
		{"hole between", two("[0,2]", "[3,5]"), 5, "no tensor"},
		{"overlap", two("[0,2]", "[1,3]"), 3, "inside the tensor before"},
		{"same place", two("[0,2]", "[0,2]"), 2, "inside the tensor before"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := raw(c.header, c.data)
			_, err := NewFile(bytes.NewReader(b), int64(len(b)), "bad.safetensors")
			if strconv.IntSize == 32 && err != nil && strings.Contains(err.Error(), "too large for this machine") {
				return // refused sooner where an int has 32 bits
			}
			wantError(t, err, "bad.safetensors", c.want)
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v is not ErrCorrupt", err)
			}
		})
	}
}

// TestOpenAccepts lists what other writers do and we do not.
func TestOpenAccepts(t *testing.T) {
	for name, header := range map[string]string{
		"empty":             `{}`,
		"unpadded":          `{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`,
		"padded":            `{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   `,
		"other order":       `{"b":{"data_offsets":[2,4],"shape":[2],"dtype":"U8"},"__metadata__":{},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`,
		"empty tensors":     `{"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}}`,
		"not a multiple of": `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"x":{"dtype":"U8","shape":[],"data_offsets":[3,4]}}`,
	} {
		n := 4
		if name == "empty" {
			n = 0
		}
		b := raw(header, n)
		f, err := NewFile(bytes.NewReader(b), int64(len(b)), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := f.Verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLengths gives the first eight bytes values that must not be believed.
func TestLengths(t *testing.T) {
	for _, n := range []uint64{0, 1, 3, 1 << 20, maxHeaderBytes + 1, 1 << 62, math.MaxUint64} {
		b := raw(`{}`, 0)
		binary.LittleEndian.PutUint64(b, n)
		if _, err := NewFile(bytes.NewReader(b), int64(len(b)), "x"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("length %d: %v", n, err)
		}
	}
	for n := range 10 {
		if _, err := NewFile(bytes.NewReader(make([]byte, n)), int64(n), "x"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("file of %d bytes: %v", n, err)
		}
	}
	// A reader that holds less than the size promised.
	b := sampleBytes(t)
	if _, err := NewFile(bytes.NewReader(b[:100]), int64(len(b)), "x"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short reader: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("opening a folder: %v", err)
	}
}
