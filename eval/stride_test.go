package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// newText is a token file in memory.
func newText(t testing.TB, tok *bpe.Tokenizer, docs ...string) *corpus.Dataset {
	t.Helper()
	var bs [][]byte
	for _, d := range docs {
		bs = append(bs, []byte(d))
	}
	b := must[[]byte](t)(corpus.BuildMemory(tok, bs))
	return must[*corpus.Dataset](t)(corpus.OpenBytes("text", b, corpus.OpenOptions{}))
}

func readAll(t testing.TB, s corpus.Source) []int32 {
	t.Helper()
	ids := make([]int32, s.Len())
	if err := s.Data.Read(ids, s.Lo); err != nil {
		t.Fatal(err)
	}
	return ids
}

var someDocs = []string{"the weaver mends the net", "one two three four, one two three four! the weather is warm",
	"Ankara'da hava güzel", "the", "the weaver sings. 你好"}

// bruteForce is the definition, token by token: target i is predicted from the
// tokens since the beginning of the first window that holds it, and of its
// document with docMask.
func bruteForce(t *testing.T, twin plain, ids []int32, T, S int, end int32, docMask bool) (sum float64, n int) {
	t.Helper()
	for i := 1; i < len(ids); i++ {
		k := 0
		for k*S+T < i {
			k++
		}
		begin := k * S
		if docMask {
			if ids[i-1] == end {
				continue
			}
			if e := slices.Index(reversed(ids[begin:i]), end); e >= 0 {
				begin = i - e
			}
		}
		sum -= twin.logProb(ids[begin:i], ids[i])
		n++
	}
	return sum, n
}

func reversed(ids []int32) []int32 {
	r := slices.Clone(ids)
	slices.Reverse(r)
	return r
}

// TestPerplexity compares windows and strides of many sizes with the definition.
func TestPerplexity(t *testing.T) {
	tok := newTokenizer(t)
	p := refParams(t, tinyConfig(tok.VocabSize()))
	twin := newPlain(t, p)
	src := corpus.Whole(newText(t, tok, someDocs...))
	src.Lo, src.Hi = 2, src.Hi-1
	ids := readAll(t, src)
	lens := corpus.TokenBytes(tok.Decode, tok.VocabSize(), tok.EndOfDocument(), tok.IsSpecial)
	for _, c := range []struct{ T, S, batch int }{
		{8, 8, 2}, {8, 4, 3}, {8, 3, 1}, {8, 1, 5}, {7, 5, 4}, {24, 10, 2}, {1, 1, 7}, {len(ids) - 1, 5, 2}, {len(ids) + 9, 20, 3},
	} {
		for _, docMask := range []bool{false, true} {
			name := fmt.Sprintf("T %d, S %d, documents %v", c.T, c.S, docMask)
			g := must[*model.Graph](t)(model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: c.batch, Context: c.T, DocMask: docMask}))
			got := must[PerplexityResult](t)(Perplexity(t.Context(), g, []corpus.Source{src}, lens, PerplexityOptions{Stride: c.S}))
			g.Close()
			sum, n := bruteForce(t, twin, ids, c.T, c.S, tok.EndOfDocument(), docMask)
			if got.Tokens != int64(n) || !docMask && n != len(ids)-1 {
				t.Errorf("%s: %d tokens, want %d", name, got.Tokens, n)
			}
			close64(t, name, got.LossNats, sum/float64(n), 1e-6)
			close64(t, name+": perplexity", got.Perplexity, math.Exp(sum/float64(n)), 1e-5)
			text := len(tok.Decode(ids[1:])) - bytes.Count(tok.Decode(ids[1:]), []byte("<|endoftext|>"))*len("<|endoftext|>")
			if !docMask && got.Bytes != int64(text) {
				t.Errorf("%s: %d bytes, want %d", name, got.Bytes, text)
			}
			close64(t, name+": bits per byte", got.BitsPerByte, sum/math.Ln2/float64(got.Bytes), 1e-6)
		}
	}
}

// TestPerplexityParts: several sources count as one after the other, MaxTokens
// reads whole batches from all over the text, and S = 0 is S = T.
func TestPerplexityParts(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	g := must[*model.Graph](t)(model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: 2, Context: 8}))
	defer g.Close()
	d := newText(t, tok, someDocs...)
	whole := corpus.Whole(d)
	a, b := corpus.Source{Data: d, Lo: 0, Hi: 30}, corpus.Source{Data: d, Lo: 30, Hi: d.Len()}
	run := func(o PerplexityOptions, s ...corpus.Source) PerplexityResult {
		t.Helper()
		return must[PerplexityResult](t)(Perplexity(t.Context(), g, s, nil, o))
	}
	ra, rb, both := run(PerplexityOptions{Stride: 3}, a), run(PerplexityOptions{Stride: 3}, b), run(PerplexityOptions{Stride: 3}, a, b)
	if both.Tokens != ra.Tokens+rb.Tokens || both.Bytes != 0 {
		t.Errorf("%d tokens of both, %d and %d of each", both.Tokens, ra.Tokens, rb.Tokens)
	}
	close64(t, "both", both.LossNats*float64(both.Tokens), ra.LossNats*float64(ra.Tokens)+rb.LossNats*float64(rb.Tokens), 1e-12)
	if x, y := run(PerplexityOptions{}, whole), run(PerplexityOptions{Stride: 8}, whole); x != y {
		t.Errorf("stride 0: %+v, stride 8: %+v", x, y)
	}
	var seen []int64
	few := run(PerplexityOptions{Stride: 4, MaxTokens: 25, Progress: func(done, total int64) { seen = append(seen, done, total) }}, whole)
	if !slices.Equal(seen, []int64{1, 3, 2, 3, 3, 3}) || few.Tokens > 30 || few.Tokens < 20 {
		t.Errorf("25 tokens: progress %v, %d tokens", seen, few.Tokens)
	}
}

func TestPerplexityErrors(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	g := must[*model.Graph](t)(model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: 2, Context: 8}))
	defer g.Close()
	d := newText(t, tok, someDocs...)
	for _, c := range []struct {
		stride int
		src    corpus.Source
		want   string
	}{
		{9, corpus.Whole(d), "stride of 9 tokens, want 1 to the context of 8"},
		{-1, corpus.Whole(d), "stride of -1"},
		{4, corpus.Source{Data: d, Lo: 3, Hi: 4}, "1 tokens, want at least 2"},
	} {
		_, err := Perplexity(t.Context(), g, []corpus.Source{c.src}, nil, PerplexityOptions{Stride: c.stride})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("stride %d: %v, want %q", c.stride, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Perplexity(ctx, g, []corpus.Source{corpus.Whole(d)}, nil, PerplexityOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestWriteLogits compares the logits of windows, the last of them short, with
// the plain twin.
func TestWriteLogits(t *testing.T) {
	tok := newTokenizer(t)
	p := newParams(t, ref.New[float64](), tinyConfig(tok.VocabSize()))
	twin := newPlain(t, p)
	ids := tok.Encode(nil, []byte(trainedOn))[:21]
	const T = 8
	var out bytes.Buffer
	if err := WriteLogits(t.Context(), &out, p, T, ids); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, out.Len()/4)
	copy(tensor.Bytes(got), out.Bytes())
	V := tok.VocabSize()
	if len(got) != len(ids)*V {
		t.Fatalf("%d numbers, want %d × %d", len(got), len(ids), V)
	}
	for i := range ids {
		for j, want := range twin.logits(ids[i/T*T : i+1]) {
			close64(t, fmt.Sprintf("logit %d of row %d", j, i), float64(got[i*V+j]), float64(want), 1e-6)
		}
	}
	if t.Failed() {
		return
	}
	full := errors.New("disk full")
	if err := WriteLogits(t.Context(), failing{full}, p, T, ids); !errors.Is(err, full) {
		t.Errorf("a writer's error: %v", err)
	}
}

// TestWriteLogitsParts: with a large vocabulary a row's logits come in several
// parts, the last of which reaches past the text.
func TestWriteLogitsParts(t *testing.T) {
	c := model.Config{VocabSize: 66000, Context: 600, DModel: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, FFN: 8, Tied: true, InitStd: 0.5}
	p := cpuParams(t, c)
	twin := newPlain(t, p)
	ids := make([]int32, 290)
	for i := range ids {
		ids[i] = int32(i*i*31) % 66000
	}
	var out bytes.Buffer
	if err := WriteLogits(t.Context(), &out, p, 0, ids); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 4*len(ids)*c.VocabSize {
		t.Fatalf("%d bytes, want %d × %d numbers", out.Len(), len(ids), c.VocabSize)
	}
	row := make([]float32, c.VocabSize)
	for _, i := range []int{0, 255, 256, 289} {
		copy(tensor.Bytes(row), out.Bytes()[4*i*len(row):])
		want := twin.logits(ids[:i+1])
		for j := 0; j < len(row); j += 997 {
			close64(t, fmt.Sprintf("logit %d of row %d", j, i), float64(row[j]), float64(want[j]), 1e-5)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
