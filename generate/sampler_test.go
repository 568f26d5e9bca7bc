package generate

import (
	"math"
	"slices"
	"strings"
	"testing"

	"tezgah/tensor"
)

func TestSamplerGreedy(t *testing.T) {
	s, err := NewSampler(Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Next([]float32{1, 3, 3, -2})
	if err != nil || c.ID != 1 {
		t.Fatalf("got %v, %v, want the smallest of the two best", c, err)
	}
	e := math.Exp
	want := e(3) / (e(1) + 2*e(3) + e(-2))
	if math.Abs(c.Prob-want) > 1e-12 {
		t.Errorf("probability %v, want %v", c.Prob, want)
	}
}

// TestSamplerFrequencies draws many times and compares with the distribution
// that temperature 0.5 gives. Bound: five standard errors of each frequency.
func TestSamplerFrequencies(t *testing.T) {
	logits := []float32{0.3, -1, 1.2, 0}
	s, _ := NewSampler(Sampling{Temperature: 0.5, Seed: 42})
	const n = 40000
	var count [4]int
	for range n {
		c, err := s.Next(append([]float32(nil), logits...))
		if err != nil {
			t.Fatal(err)
		}
		count[c.ID]++
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) / 0.5)
	}
	for i, l := range logits {
		p := math.Exp(float64(l)/0.5) / sum
		got := float64(count[i]) / n
		if math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/n) {
			t.Errorf("token %d drawn with frequency %.4f, want %.4f", i, got, p)
		}
	}
}

func TestSamplerFilters(t *testing.T) {
	// Probabilities 0.5, 0.25, 0.15, 0.1 at temperature 1.
	logits := []float32{0, 0, 0, 0}
	for i, p := range []float64{0.5, 0.25, 0.15, 0.1} {
		logits[3-i] = float32(math.Log(p))
	}
	cases := []struct {
		name string
		s    Sampling
		want []int32
	}{
		{"all", Sampling{Temperature: 1}, []int32{3, 2, 1, 0}},
		{"top-k 2", Sampling{Temperature: 1, TopK: 2}, []int32{3, 2}},
		{"top-k over V", Sampling{Temperature: 1, TopK: 9}, []int32{3, 2, 1, 0}},
		{"top-p 0.7", Sampling{Temperature: 1, TopP: 0.7}, []int32{3, 2}},
		{"top-p 0.4", Sampling{Temperature: 1, TopP: 0.4}, []int32{3}},
		{"min-p 0.29", Sampling{Temperature: 1, MinP: 0.29}, []int32{3, 2, 1}},
		{"top-k 3 then top-p 0.8", Sampling{Temperature: 1, TopK: 3, TopP: 0.8}, []int32{3, 2}},
	}
	for _, c := range cases {
		s, err := NewSampler(c.s)
		if err != nil {
			t.Fatal(err)
		}
		got := s.distribution(append([]float32(nil), logits...))
		slices.SortFunc(got, byProb) // where nothing is cut the order is that of the ids
		sum := 0.0
		ids := make([]int32, 0, 4)
		for _, x := range got {
			ids = append(ids, x.ID)
			sum += x.Prob
		}
		if len(ids) != len(c.want) {
			t.Errorf("%s: kept %v, want %v", c.name, ids, c.want)
			continue
		}
		for i := range ids {
			if ids[i] != c.want[i] {
				t.Errorf("%s: kept %v, want %v", c.name, ids, c.want)
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Errorf("%s: probabilities sum to %v", c.name, sum)
		}
	}
}

func TestRepetitionPenalty(t *testing.T) {
	s, _ := NewSampler(Sampling{RepetitionPenalty: 2, RepetitionWindow: 2})
	s.See(0, 1, 1, 2) // the window keeps 1 and 2
	logits := []float32{3, 4, -1, 3.5}
	c, err := s.Next(logits)
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{3, 2, -2, 3.5}
	for i := range want {
		if logits[i] != want[i] {
			t.Errorf("logit %d became %v, want %v", i, logits[i], want[i])
		}
	}
	if c.ID != 3 {
		t.Errorf("chose %d, want 3", c.ID)
	}
}

func TestSamplerSeed(t *testing.T) {
	draw := func(seed uint64) string {
		s, _ := NewSampler(Sampling{Temperature: 1, Seed: seed})
		r := tensor.NewRNG(5, 5)
		var b strings.Builder
		for i := range 50 {
			logits := make([]float32, 26)
			r.Normal(logits, uint64(i)*26, 1)
			c, err := s.Next(logits)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteByte(byte('a' + c.ID))
		}
		return b.String()
	}
	if draw(1) != draw(1) {
		t.Error("the same seed gave different tokens")
	}
	if draw(1) == draw(2) {
		t.Error("two seeds gave the same 50 tokens")
	}
}

func TestSamplerRefuses(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(-1))
	s, _ := NewSampler(Sampling{Temperature: 1})
	if _, err := s.Next([]float32{1, nan}); err == nil || !strings.Contains(err.Error(), "token 1") {
		t.Errorf("NaN logit: %v", err)
	}
	if _, err := s.Next([]float32{inf, inf}); err == nil {
		t.Error("no finite logit was accepted")
	}
	if c, err := s.Next([]float32{inf, 2}); err != nil || c.ID != 1 {
		t.Errorf("a masked token (−Inf) must be allowed: %v, %v", c, err)
	}
	for _, bad := range []Sampling{{Temperature: -1}, {Temperature: math.NaN()}, {TopK: -1}, {TopP: 1.5}, {MinP: -0.1}, {RepetitionPenalty: -2}, {RepetitionWindow: -1}} {
		if _, err := NewSampler(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// TestLikeliestEqualsSort compares the heap with sorting everything.
func TestLikeliestEqualsSort(t *testing.T) {
	r := tensor.NewRNG(8, 8)
	for round := range 200 {
		n := 1 + r.Intn(uint64(round), 300)
		logits := make([]float32, n)
		r.Normal(logits, uint64(round)*1000, 2)
		for i := range logits { // ties too
			logits[i] = float32(math.Round(float64(logits[i])*4) / 4)
		}
		k, p := r.Intn(uint64(1000+round), n+3), r.Float64(uint64(5000+round))
		if round%3 == 0 {
			k = 0
		}
		s, err := NewSampler(Sampling{Temperature: 1, TopK: k, TopP: p})
		if err != nil {
			t.Fatal(err)
		}
		want := softmax(nil, logits, 1)
		slices.SortFunc(want, byProb)
		if k > 0 && k < n {
			want = want[:k]
		}
		want = topP(want, p)
		got := s.distribution(logits)
		if len(got) != len(want) {
			t.Fatalf("round %d: top-k %d, top-p %v keep %d of %d, want %d", round, k, p, len(got), n, len(want))
		}
		for i := range got {
			if got[i].ID != want[i].ID {
				t.Fatalf("round %d: candidate %d is %d, want %d", round, i, got[i].ID, want[i].ID)
			}
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	logits := make([]float32, 32000)
	tensor.NewRNG(3, 3).Normal(logits, 0, 3)
	s, err := NewSampler(Sampling{Temperature: 0.8, TopP: 0.95})
	if err != nil {
		b.Fatal(err)
	}
	work := make([]float32, len(logits))
	b.ReportAllocs()
	for b.Loop() {
		copy(work, logits)
		if _, err := s.Next(work); err != nil {
			b.Fatal(err)
		}
	}
}
