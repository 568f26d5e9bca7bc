package eval

import (
	"context"
	"math"
	"testing"

	"tezgah/bpe"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
)

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// trainedOn is what the test tokenizer has seen: enough for merges across
// letters, and some text outside ASCII.
const trainedOn = "the weaver mends the net and the weaver sings. the weather is warm, the weather was wet. " +
	"Ankara'da hava güzel, İzmir'de yağmur var, şöyle böyle. 你好你好。 one two three four, one two three four! "

func newTokenizer(t testing.TB) *bpe.Tokenizer {
	t.Helper()
	tr := must[*bpe.Trainer](t)(bpe.NewTrainer(bpe.TrainOptions{VocabSize: 330, Threads: 1}))
	for range 3 {
		if err := tr.Add([]byte(trainedOn)); err != nil {
			t.Fatal(err)
		}
	}
	return must[*bpe.Tokenizer](t)(tr.Train(context.Background()))
}

// tinyConfig is a model with little work and probabilities far from uniform.
func tinyConfig(vocab int) model.Config {
	return model.Config{VocabSize: vocab, Context: 24, DModel: 16, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 20,
		Tied: true, InitStd: 0.35}
}

func newParams(t testing.TB, b op.Backend, c model.Config) *model.Params {
	t.Helper()
	p := must[*model.Params](t)(model.NewParams(op.NewRunner(b), c, model.ParamOptions{}))
	if err := p.Init(5); err != nil {
		t.Fatal(err)
	}
	return p
}

// refParams is a model on the reference in float64.
func refParams(t testing.TB, c model.Config) *model.Params {
	t.Helper()
	return newParams(t, ref.New[float64](), c)
}

func cpuParams(t testing.TB, c model.Config) *model.Params {
	t.Helper()
	b := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: 2}))
	t.Cleanup(func() { b.Close() })
	return newParams(t, b, c)
}

// plain is the twin of everything here: it reads a sequence from its beginning,
// one token at a time.
type plain struct {
	t   testing.TB
	dec *model.Decoder
}

func newPlain(t testing.TB, p *model.Params) plain {
	t.Helper()
	d := must[*model.Decoder](t)(model.NewDecoder(p.Runner(), p, 1, 400))
	t.Cleanup(d.Close)
	return plain{t, d}
}

// logits returns those behind the last of tokens.
func (p plain) logits(tokens []int32) []float32 {
	p.t.Helper()
	p.dec.Reset()
	var out []float32
	for _, id := range tokens {
		out = must[[]float32](p.t)(p.dec.Step([]int32{id}))
	}
	return out
}

// logProb is log p of target behind tokens, in nats.
func (p plain) logProb(tokens []int32, target int32) float64 {
	p.t.Helper()
	logits := p.logits(tokens)
	top := float64(logits[0])
	for _, l := range logits {
		top = max(top, float64(l))
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return float64(logits[target]) - top - math.Log(sum)
}

// close64 fails unless got is within bound of want, relative to max(1, |want|).
func close64(t testing.TB, what string, got, want, bound float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= bound*max(1, math.Abs(want))) {
		t.Errorf("%s: got %.9g, want %.9g, error %.3g, bound %.3g", what, got, want, d, bound*max(1, math.Abs(want)))
	}
}
