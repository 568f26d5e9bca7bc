package train

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// TestFreshIDs starts a run whose vocabulary grows, tied and not, and looks at
// both vocabulary matrices: the old ids keep their weights, the new ones have
// vectors of the same size that differ from each other.
func TestFreshIDs(t *testing.T) {
	for _, tied := range []bool{true, false} {
		dir := t.TempDir()
		base := tinyConfig(writeData(t, dir, 1))
		base.Model.Tied, base.MaxSteps = tied, 8
		first := runAll(t, filepath.Join(dir, "base"), base)
		old := tensorsOf(t, first.ModelPath)
		tr, err := New(sftConfig(first.ModelPath, writeChats(t, dir, 20)), Options{Dir: filepath.Join(dir, "chat"), Open: openCPU})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		const V, fresh = 300, 2
		if got := tr.cfg.Model.VocabSize; got != V+fresh {
			t.Fatalf("the model has %d ids, want %d", got, V+fresh)
		}
		for _, s := range tr.params.Weights() {
			if s.Name != "tok_emb" && s.Name != "lm_head" {
				continue
			}
			grown := make([]float32, s.T.Len())
			if err := op.ReadSlice(tr.runner, grown, s.T); err != nil {
				t.Fatal(err)
			}
			vector := func(id int) []float32 { return vectorOf(s, grown, V+fresh, id) }
			was := make([]float32, len(old[s.Name])/4)
			copy(tensor.Bytes(was), old[s.Name])
			for id := range V {
				if !bytes.Equal(tensor.Bytes(vector(id)), tensor.Bytes(vectorOf(s, was, V, id))) {
					t.Fatalf("tied %v: id %d of %s changed", tied, id, s.Name)
				}
			}
			mean, a, b := meanSquare(grown), vector(V), vector(V+1)
			for i, v := range [][]float32{a, b} {
				if r := meanSquare(v) / mean; r < 0.3 || r > 3 {
					t.Errorf("tied %v: new id %d of %s has %.2f times the mean square of the others", tied, V+i, s.Name, r)
				}
			}
			if bytes.Equal(tensor.Bytes(a), tensor.Bytes(b)) {
				t.Errorf("tied %v: both new ids of %s have one vector", tied, s.Name)
			}
		}
	}
}

// vectorOf is the row of tok_emb (V, C), or the column of lm_head (C, V), of an
// id.
func vectorOf(s model.State, x []float32, V, id int) []float32 {
	C := len(x) / V
	if s.Name == "tok_emb" {
		return x[id*C : (id+1)*C]
	}
	out := make([]float32, C)
	for c := range out {
		out[c] = x[c*V+id]
	}
	return out
}

func meanSquare(x []float32) (m float64) {
	for _, v := range x {
		m += float64(v) * float64(v) / float64(len(x))
	}
	return m
}

// TestReservedIDs: an imported model may have rows that its tokenizer does not
// use; the template's tokens take those, and rows behind them stay.
func TestReservedIDs(t *testing.T) {
	dir := t.TempDir()
	base := tinyConfig(writeData(t, dir, 1))
	base.Model.VocabSize, base.MaxSteps = 310, 8
	first := runAll(t, filepath.Join(dir, "base"), base)
	old := tensorsOf(t, first.ModelPath)["tok_emb"]
	tr, err := New(sftConfig(first.ModelPath, writeChats(t, dir, 20)), Options{Dir: filepath.Join(dir, "chat"), Open: openCPU})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if got := tr.cfg.Model.VocabSize; got != 310 {
		t.Errorf("the model has %d ids, want 310", got)
	}
	now := make([]byte, len(old))
	if err := tr.runner.Read(now, tr.params.Weights()[0].T); err != nil {
		t.Fatal(err)
	}
	row := len(old) / 310
	for id := range 310 {
		same := bytes.Equal(old[id*row:(id+1)*row], now[id*row:(id+1)*row])
		if fresh := id == 300 || id == 301; same == fresh {
			t.Errorf("id %d is new: %v, keeps its weights: %v", id, fresh, same)
		}
	}
}

// TestMoments compares with numbers worked out by hand.
func TestMoments(t *testing.T) {
	m := vocabMatrix{ids: 3, channels: 2, x: []float32{1, 3, 9, 4, 4, 9}} // (channels, ids); the last id does not count
	mean, dev := m.moments(2)
	if mean[0] != 2 || mean[1] != 4 || dev[0] != 1 || dev[1] != 0 {
		t.Errorf("means %v and deviations %v, want [2 4] and [1 0]", mean, dev)
	}
	m.draw(idRange{2, 3}, tensor.NewRNG(1, 1))
	if x := float64(*m.at(2, 0)); math.Abs(x-2) > 6 || x == 9 || *m.at(2, 1) != 4 {
		t.Errorf("drew %v and %v, want a value near 2, and 4", x, *m.at(2, 1))
	}
}
