package corpus

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097, 65_537} {
		p := newPermutation(n, 7, n)
		seen := make([]bool, n)
		for i := range n {
			x := p.at(i)
			if x >= n || seen[x] {
				t.Fatalf("n %d: place %d has %d, out of range or seen before", n, i, x)
			}
			seen[x] = true
		}
	}
	// The order looks random: the mean step between neighbours of a random order is n/3, and its standard deviation over
	// n steps is about 0.24·n/√n.
	const n = 100_000
	sum := 0.0
	p := newPermutation(n, 1, 2)
	for i := range uint64(n - 1) {
		sum += math.Abs(float64(p.at(i+1)) - float64(p.at(i)))
	}
	if mean := sum / (n - 1) / n; math.Abs(mean-1.0/3) > 6*0.24/math.Sqrt(n) {
		t.Errorf("mean step %.4f·n, want 0.3333·n", mean)
	}
	a, b := newPermutation(n, 1, 1), newPermutation(n, 1, 2)
	equal := 0
	for i := range uint64(1000) {
		if a.at(i) == b.at(i) {
			equal++
		}
	}
	if equal > 5 {
		t.Errorf("two epochs agree in %d of 1000 places", equal)
	}
	huge := newPermutation(1<<62+12345, 3, 4)
	for i := range uint64(100) {
		if x := huge.at(i << 55); x >= 1<<62+12345 {
			t.Fatalf("out of range: %d", x)
		}
	}
}

// numbers is a foreign dataset whose token i is i, so that a window shows where it comes from.
func numbers(t *testing.T, n, vocab, endOfDocument int) *Dataset {
	t.Helper()
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	d, err := OpenBytes("numbers", llmcFile(20240801, 7, ids, 4), OpenOptions{VocabSize: vocab, EndOfDocument: int32(endOfDocument)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// next draws one batch over junk and checks that every target follows its token.
func next(t *testing.T, s *Sampler, B, T int) []int32 {
	t.Helper()
	tokens, targets, starts := junk(B*T), junk(B*T), junk(B*T)
	if err := s.Next(tokens, targets, starts); err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		if targets[i] != tokens[i]+1 || starts[i] != 0 || i%T > 0 && tokens[i] != tokens[i-1]+1 {
			t.Fatalf("position %d: token %d, target %d, start %d", i, tokens[i], targets[i], starts[i])
		}
	}
	return tokens
}

func junk(n int) []int32 {
	b := make([]int32, n)
	for i := range b {
		b[i] = -77
	}
	return b
}

func TestSamplerEpochs(t *testing.T) {
	for _, c := range []struct{ n, T int }{{9, 8}, {100, 7}, {129, 8}, {1000, 13}, {5000, 64}} {
		d := numbers(t, c.n, c.n, -1)
		src := Source{Data: d, Lo: 0, Hi: int64(c.n)}
		if c.n > 500 {
			src.Lo, src.Hi = 101, int64(c.n)-57
		}
		s, err := NewSampler(SamplerOptions{Sources: []Source{src}, Context: c.T, Seed: 11})
		if err != nil {
			t.Fatal(err)
		}
		windows := int(s.WindowsPerEpoch())
		if most := int(src.Len()-1) / c.T; windows < most-1 || windows > most || most < phaseWindows && windows != most {
			t.Fatalf("%d windows, at most %d fit", windows, most)
		}
		var orders [][]int32
		for range 3 {
			var order []int32
			for range windows {
				row := next(t, s, 1, c.T)
				if int64(row[0]) < src.Lo || int64(row[c.T-1])+1 >= src.Hi {
					t.Fatalf("window %d to %d is outside of %d to %d", row[0], row[c.T-1], src.Lo, src.Hi)
				}
				order = append(order, row[0])
			}
			orders = append(orders, slices.Clone(order))
			slices.Sort(order)
			for i := range len(order) - 1 {
				if order[i+1]-order[i] != int32(c.T) {
					t.Fatalf("windows of one epoch begin at %d and %d", order[i], order[i+1])
				}
			}
		}
		if windows > 10 && (slices.Equal(orders[0], orders[1]) || slices.IsSorted(orders[0])) {
			t.Errorf("n %d: the order is not shuffled", c.n)
		}
		if s.Epoch() != 3 {
			t.Errorf("epoch %v, want 3", s.Epoch())
		}
	}
}

// TestSamplerCursor: a sampler that is set to a cursor goes on exactly, whatever the batch size, and the seed matters.
func TestSamplerCursor(t *testing.T) {
	d := numbers(t, 3000, 3000, -1)
	opt := SamplerOptions{Context: 16, Seed: 5, Sources: []Source{{Data: d, Hi: 1000, Weight: 0.3}, {Data: d, Lo: 1000, Hi: 3000, Weight: 0.7}}}
	a, err := NewSampler(opt)
	if err != nil {
		t.Fatal(err)
	}
	var all []int32
	for range 60 {
		all = append(all, next(t, a, 4, 16)...)
	}
	b, _ := NewSampler(opt)
	var got []int32
	for len(got) < len(all) {
		cursor := b.Cursor()
		if b, err = NewSampler(opt); err != nil {
			t.Fatal(err)
		}
		if err := b.SetCursor(cursor); err != nil {
			t.Fatal(err)
		}
		got = append(got, next(t, b, min(3, (len(all)-len(got))/16), 16)...)
	}
	if !slices.Equal(got, all) || !slices.Equal(a.Cursor(), b.Cursor()) {
		t.Fatal("resumed sampling differs")
	}
	opt.Seed = 6
	c, _ := NewSampler(opt)
	if slices.Equal(next(t, c, 8, 16), all[:8*16]) {
		t.Error("another seed draws the same windows")
	}
	for _, bad := range [][]int64{nil, {1}, {1, -1}, {1, 2, 3}} {
		if err := a.SetCursor(bad); err == nil {
			t.Errorf("cursor %v was accepted", bad)
		}
	}
}

func TestSamplerMixture(t *testing.T) {
	d := numbers(t, 10_000, 10_000, -1)
	sources := []Source{{Data: d, Hi: 300, Weight: 5}, {Data: d, Lo: 300, Hi: 4000, Weight: 3}, {Data: d, Lo: 4000, Hi: 10_000, Weight: 2}}
	s, err := NewSampler(SamplerOptions{Sources: sources, Context: 10, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var drawn [3]float64
	for n := 1.0; n <= 2000; n++ {
		row := next(t, s, 1, 10)
		for i, src := range sources {
			if int64(row[0]) >= src.Lo && int64(row[0]) < src.Hi {
				drawn[i]++
			}
		}
		for i, share := range []float64{0.5, 0.3, 0.2} {
			if math.Abs(drawn[i]-share*n) > 2 {
				t.Fatalf("after %v windows source %d gave %v, want about %v", n, i, drawn[i], share*n)
			}
		}
	}
	for i := range sources {
		sources[i].Weight = 0 // by size
	}
	s, _ = NewSampler(SamplerOptions{Sources: sources, Context: 10, Seed: 1})
	for range s.WindowsPerEpoch() {
		next(t, s, 1, 10)
	}
	for i, n := range s.Cursor() {
		if want := s.sources[i].windows; math.Abs(float64(n-want)) > 1 {
			t.Errorf("source %d: %d windows in one epoch, want %d", i, n, want)
		}
	}
}

func TestDocMask(t *testing.T) {
	b, err := BuildMemory(narrow, [][]byte{[]byte("ab"), []byte("c"), []byte("defg")})
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenBytes("f", b, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const E = 256 // the tokens are a b E c E d e f g E
	w, err := NewWindows(Whole(d), 8, true)
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets, starts := junk(16), junk(16), junk(16)
	if err := w.Read(0, tokens, targets, starts); err != nil {
		t.Fatal(err)
	}
	check := func(name string, got []int32, want ...int32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("tokens", tokens, 'a', 'b', E, 'c', E, 'd', 'e', 'f', 'g', E, 0, 0, 0, 0, 0, 0)
	check("targets", targets, 'b', E, -1, E, -1, 'e', 'f', 'g', E, -1, -1, -1, -1, -1, -1, -1)
	check("docStart", starts, 0, 0, 0, 3, 3, 5, 5, 5, 0, 0, 2, 2, 2, 2, 2, 2)
	w, _ = NewWindows(Whole(d), 8, false)
	if err := w.Read(0, tokens, targets, starts); err != nil {
		t.Fatal(err)
	}
	check("targets without mask", targets, 'b', E, 'c', E, 'd', 'e', 'f', 'g', E, -1, -1, -1, -1, -1, -1, -1)
	check("docStart without mask", starts, make([]int32, 16)...)
	s, err := NewSampler(SamplerOptions{Sources: []Source{Whole(d)}, Context: 9, DocMask: true})
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets, starts = junk(9), junk(9), junk(9)
	if err := s.Next(tokens, targets, starts); err != nil {
		t.Fatal(err)
	}
	check("sampled targets", targets, 'b', E, -1, E, -1, 'e', 'f', 'g', E)
	check("sampled docStart", starts, 0, 0, 0, 3, 3, 5, 5, 5, 5)
}

func TestWindowsCoverEveryTargetOnce(t *testing.T) {
	d := numbers(t, 103, 103, -1)
	for _, c := range []struct{ lo, hi int64 }{{0, 103}, {5, 85}, {5, 86}, {7, 9}, {20, 22}} {
		w, err := NewWindows(Source{Data: d, Lo: c.lo, Hi: c.hi}, 16, false)
		if err != nil {
			t.Fatal(err)
		}
		want := c.lo + 1
		for i := int64(0); i < w.Count()+2; i += 3 {
			tokens, targets := junk(48), junk(48)
			if err := w.Read(i, tokens, targets, nil); err != nil {
				t.Fatal(err)
			}
			for _, target := range targets {
				if target == IgnoreTarget {
					continue
				}
				if int64(target) != want {
					t.Fatalf("target %d, want %d", target, want)
				}
				want++
			}
		}
		if want != c.hi || w.Targets() != c.hi-c.lo-1 {
			t.Errorf("the last target of %v is %d, %d targets", c, want-1, w.Targets())
		}
	}
}

func TestSplitTail(t *testing.T) {
	var docs [][]byte
	for i := range 200 {
		docs = append(docs, []byte(prose(uint64(i), 50)))
	}
	b, err := BuildMemory(narrow, docs)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := OpenBytes("f", b, OpenOptions{})
	train, val, err := SplitTail(d, 0.1, 32)
	if err != nil || train.Lo != 0 || train.Hi != val.Lo || val.Hi != d.Len() {
		t.Fatalf("%+v %+v %v", train, val, err)
	}
	if d.DocStart(d.DocAt(val.Lo)) != val.Lo {
		t.Error("the cut is not at the start of a document")
	}
	if share := float64(val.Len()) / float64(d.Len()); share > 0.1 || share < 0.09 {
		t.Errorf("held out %.3f", share)
	}
	one := numbers(t, 100, 100, -1) // no index: a plain cut
	if _, val, err := SplitTail(one, 0.25, 10); err != nil || val.Lo != 75 {
		t.Errorf("%+v %v", val, err)
	}
	if _, val, err := SplitTail(one, 0.001, 10); err != nil || val.Len() != 11 {
		t.Errorf("tiny fraction: %+v %v", val, err)
	}
	for _, c := range []struct {
		fraction float64
		T        int
	}{{0, 8}, {1, 8}, {math.NaN(), 8}, {0.1, 50}, {0.1, 0}} {
		if _, _, err := SplitTail(one, c.fraction, c.T); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestSamplerRefusals(t *testing.T) {
	a, b := numbers(t, 50, 50, -1), numbers(t, 50, 60, -1)
	x, _ := smallFile(t, narrow)
	y, _ := smallFile(t, byteTokenizer{vocab: 257, name: "other"})
	dx, _ := OpenBytes("x", x, OpenOptions{})
	dy, _ := OpenBytes("y", y, OpenOptions{})
	for want, opt := range map[string]SamplerOptions{
		"no sources":           {Context: 8},
		"fewer than one":       {Context: 50, Sources: []Source{Whole(a)}},
		"context of 0":         {Context: 0, Sources: []Source{Whole(a)}},
		"range 0 to 51":        {Context: 8, Sources: []Source{{Data: a, Hi: 51}}},
		"without data":         {Context: 8, Sources: []Source{{Hi: 51}}},
		"vocabulary of 50":     {Context: 8, Sources: []Source{Whole(a), Whole(b)}},
		"different tokenizers": {Context: 8, Sources: []Source{Whole(dx), Whole(dy)}},
		"weight -1":            {Context: 8, Sources: []Source{{Data: a, Hi: 50, Weight: -1}}},
		"weight NaN":           {Context: 8, Sources: []Source{{Data: a, Hi: 50, Weight: math.NaN()}}},
		"to each or to none":   {Context: 8, Sources: []Source{{Data: a, Hi: 50, Weight: 1}, Whole(a)}},
	} {
		if _, err := NewSampler(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	s, err := NewSampler(SamplerOptions{Context: 8, Sources: []Source{Whole(a)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range [][3]int{{0, 0, 0}, {9, 9, 9}, {8, 16, 8}, {8, 8, 16}} {
		if s.Next(make([]int32, n[0]), make([]int32, n[1]), make([]int32, n[2])) == nil {
			t.Errorf("lengths %v were accepted", n)
		}
	}
}

func TestUnigram(t *testing.T) {
	text := "aaab" // tokens a a a b E, 5 of them, add one over 257 ids
	b, err := BuildMemory(narrow, [][]byte{[]byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := OpenBytes("f", b, OpenOptions{})
	lengths := TokenBytes(narrow.decode, 257, 256, nil)
	if lengths['a'] != 1 || lengths[256] != 0 || BytesOf([]int32{'a', -1, 256, 'b'}, lengths) != 2 {
		t.Fatal("token bytes")
	}
	if l := TokenBytes(narrow.decode, 257, 256, func(id int32) bool { return id == 'b' }); l['a'] != 1 || l['b'] != 0 || l[256] != 0 {
		t.Error("a special token counts as text")
	}
	got, err := Unigram(context.Background(), Whole(d), Whole(d), lengths)
	if err != nil {
		t.Fatal(err)
	}
	bits := -2*math.Log2(4.0/262) - math.Log2(2.0/262) - math.Log2(2.0/262) // targets a a b E
	if got.Tokens != 4 || got.Bytes != 3 || math.Abs(got.BitsPerToken-bits/4) > 1e-12 || math.Abs(got.BitsPerByte-bits/3) > 1e-12 {
		t.Errorf("got %+v, want %v bits", got, bits)
	}
	if _, err := Unigram(context.Background(), Whole(d), Whole(d), lengths[1:]); err == nil {
		t.Error("wrong number of lengths was accepted")
	}
}

func TestInspect(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": "aaab", "b.txt": "ab", "c.txt": "b"})
	out := dir + "/o.bin"
	r, _ := mustBuild(t, BuildOptions{Input: InputOptions{Paths: []string{dir}, Include: []string{"*.txt"}}, Tokenizer: narrow, Out: out})
	info, err := Inspect(context.Background(), r.Path, InspectOptions{Top: 2, SampleTokens: 3, Verify: true,
		TokenBytes: func([]byte) ([]int32, error) { return TokenBytes(narrow.decode, 257, 256, nil), nil }})
	if err != nil {
		t.Fatal(err)
	}
	// a a a b E a b E b E: 4 a, 3 b, 3 E
	entropy := -0.4*math.Log2(0.4) - 0.6*math.Log2(0.3)
	if info.Tokens != 10 || info.Documents != 3 || info.TextBytes != 7 || info.UsedIDs != 3 || info.UnusedIDs != 254 ||
		info.ShortestDoc != 2 || info.MedianDoc != 3 || info.LongestDoc != 5 || math.Abs(info.MeanDoc-10.0/3) > 1e-12 ||
		math.Abs(info.BitsPerToken-entropy) > 1e-12 || math.Abs(info.BitsPerByte-entropy*10/7) > 1e-12 {
		t.Errorf("info %+v", info)
	}
	if !slices.Equal(info.Top, []TokenCount{{'a', 4}, {'b', 3}}) || !slices.Equal(info.Sample, []int32{'a', 'b', 256}) {
		t.Errorf("top %v, sample %v", info.Top, info.Sample)
	}
	if fi := int64(len(contents(t, dir)["o.bin"])); info.FileBytes != fi {
		t.Errorf("%d bytes, want %d", info.FileBytes, fi)
	}
}
