package checkpoint

import (
	"bytes"
	"testing"
)

// FuzzOpen: no input may panic or make the reader allocate what the file does
// not hold, and whatever opens must be covered exactly by its tensors.
func FuzzOpen(f *testing.F) {
	f.Add(sampleBytes(f))
	f.Add(raw(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"a":"b"}}`, 4))
	f.Add(raw(`{"b":{"dtype":"U8","shape":[0,9],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewFile(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		total := r.dataAt
		for _, i := range r.Tensors() {
			total += i.SizeBytes()
		}
		if total != int64(len(b)) {
			t.Errorf("tensors and header take %d bytes, the file has %d", total, len(b))
		}
		_ = r.Verify()
	})
}

// FuzzOpenLLM: what opens and verifies must survive being written again.
func FuzzOpenLLM(f *testing.F) {
	good := sampleBytes(f)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(bytes.Replace(good, []byte("config"), []byte("conflg"), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := readLLM(b)
		if err != nil {
			return
		}
		var ws, ms []Tensor
		for _, i := range l.Weights() {
			ws = append(ws, copyOf(t, l, i))
		}
		for _, i := range l.Moments() {
			ms = append(ms, copyOf(t, l, i))
		}
		var again MemFile
		if _, err := WriteLLM(&again, l.Header, ws, ms); err != nil {
			t.Fatal(err)
		}
		if _, err := readLLM(again.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}

func copyOf(t *testing.T, l *LLM, i Info) Tensor {
	data := make([]byte, i.SizeBytes())
	if err := l.ReadBytes(i.Name, data); err != nil {
		t.Fatal(err)
	}
	return Bytes(i.Name, i.Type, i.Shape, data)
}
