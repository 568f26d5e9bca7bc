package model

import (
	"math"
	"strings"
	"testing"

	"tezgah/op"
)

// forwardLogits are those of the whole forward pass over one batch (B, T, V).
func forwardLogits(t *testing.T, p *Params, B int, tokens []int32) []float32 {
	t.Helper()
	T := len(tokens) / B
	g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: B, Context: T}))
	defer g.Close()
	targets := make([]int32, len(tokens))
	if err := g.Evaluate(tokens, targets, nil); err != nil {
		t.Fatal(err)
	}
	return read32(t, p.r, g.head.logits)
}

// row is position pos of sequence b in (B, T, V) logits.
func row(logits []float32, b, pos, T, V int) []float32 {
	return logits[(b*T+pos)*V : (b*T+pos+1)*V]
}

// bound32 allows a few hundred float32 roundings at the scale of the logits.
var bound32 = 300 * math.Exp2(-24)

// TestDecoder: every position's logits are those of the whole forward pass,
// however the tokens are split between Prefill and Step, for batches too, and
// again after Reset.
func TestDecoder(t *testing.T) {
	for _, cfg := range []Config{odd, tinyUntied} {
		for _, mirror := range []bool{false, true} {
			p := cpuParams(t, 2, cfg, ParamOptions{Mirror: mirror})
			const B = 3
			V, T := cfg.VocabSize, cfg.Context
			tokens, _ := batchOf(cfg, B, T, 31)
			want := forwardLogits(t, p, B, tokens)
			d := must[*Decoder](t)(NewDecoder(p.r, p, B, 0))
			for _, prompt := range []int{1, 2, T / 2, T} {
				d.Reset()
				got := must[[]float32](t)(d.Prefill(columns(tokens, B, 0, prompt)))
				for pos := prompt - 1; ; pos++ {
					for b := range B {
						near(t, "logits", got[b*V:(b+1)*V], row(want, b, pos, T, V), bound32)
					}
					if d.Pos() != pos+1 {
						t.Fatalf("Pos is %d after %d tokens", d.Pos(), pos+1)
					}
					if pos == T-1 {
						break
					}
					got = must[[]float32](t)(d.Step(columns(tokens, B, pos+1, pos+2)))
				}
			}
		}
	}
}

// TestDecoderPrefillInParts appends further prompts to what is there already,
// in one pass where rows are aligned and token by token where they are not,
// and past the end of the window.
func TestDecoderPrefillInParts(t *testing.T) {
	aligned := odd
	aligned.Layers, aligned.Heads, aligned.HeadDim, aligned.KVHeads = 1, 8, 8, 2
	for _, cfg := range []Config{odd, aligned} {
		p := cpuParams(t, 2, cfg, ParamOptions{})
		tokens, _ := batchOf(cfg, 1, 60, 2)
		for _, parts := range [][]int{{17, 23}, {1, 39}, {2, 1, 30, 1, 1, 5}, {39, 1}, {20, 20, 20}} {
			d := must[*Decoder](t)(NewDecoder(p.r, p, 1, 47))
			var got []float32
			end := 0
			for i, n := range parts {
				if pass := d.atOnce(); i > 0 && (pass > 1) != (cfg.qDim() == 64 && d.Pos() < 46) {
					t.Errorf("%d tokens go through at once at position %d with %d query columns", pass, d.Pos(), cfg.qDim())
				}
				got = must[[]float32](t)(d.Prefill(tokens[end : end+n]))
				end += n
			}
			if cfg.Layers > 1 && end > 47 {
				continue // a window over several layers is no forward pass
			}
			last := tokens[max(0, end-47):end]
			want := forwardLogits(t, p, 1, last)
			near(t, "logits", got, row(want, 0, len(last)-1, len(last), cfg.VocabSize), bound32)
			d.Close()
		}
	}
}

// TestDecoderWindow goes far past the slots of a model with one layer, where a
// window of P positions is exactly the forward pass over the last P tokens:
// RoPE depends on distances only. Prompts longer than the window go through
// the same way.
func TestDecoderWindow(t *testing.T) {
	cfg := odd
	cfg.Layers = 1
	p := cpuParams(t, 2, cfg, ParamOptions{})
	const P, n = 8, 45
	tokens, _ := batchOf(cfg, 1, n, 77)
	d := must[*Decoder](t)(NewDecoder(p.r, p, 1, P))
	long := must[*Decoder](t)(NewDecoder(p.r, p, 1, P))
	for pos := range n {
		got := must[[]float32](t)(d.Step(tokens[pos : pos+1]))
		last := tokens[max(0, pos+1-P) : pos+1]
		want := forwardLogits(t, p, 1, last)
		near(t, "logits", got, row(want, 0, len(last)-1, len(last), cfg.VocabSize), bound32)
	}
	got := must[[]float32](t)(long.Prefill(tokens))
	near(t, "long prompt", got, must[[]float32](t)(d.logitsAgain()), bound32)
	if d.Pos() != n || d.Slots() != P {
		t.Errorf("Pos %d, Slots %d, want %d and %d", d.Pos(), d.Slots(), n, P)
	}
}

// logitsAgain reads the last step's logits once more.
func (d *Decoder) logitsAgain() ([]float32, error) {
	v := make([]float32, d.logits.Len())
	return v, op.ReadSlice(d.r, v, d.logits)
}

func TestDecoderBadInput(t *testing.T) {
	p := cpuParams(t, 1, tinyTied, ParamOptions{})
	d := must[*Decoder](t)(NewDecoder(p.r, p, 2, 8))
	for _, c := range []struct {
		want string
		call func() ([]float32, error)
	}{
		{"got 0 tokens", func() ([]float32, error) { return d.Prefill(nil) }},
		{"got 3 tokens", func() ([]float32, error) { return d.Prefill([]int32{1, 2, 3}) }},
		{"token 1 is 99", func() ([]float32, error) { return d.Prefill([]int32{1, 99}) }},
		{"got 1 tokens", func() ([]float32, error) { return d.Step([]int32{1}) }},
		{"token 0 is -1", func() ([]float32, error) { return d.Step([]int32{-1, 1}) }},
	} {
		if _, err := c.call(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
	}
	if d.Pos() != 0 {
		t.Errorf("bad input moved the decoder to %d", d.Pos())
	}
	for _, n := range [][2]int{{0, 8}, {1, -1}, {-1, 8}, {1 << 25, 8}} {
		if _, err := NewDecoder(p.r, p, n[0], n[1]); err == nil {
			t.Errorf("NewDecoder(batch %d, slots %d) succeeded", n[0], n[1])
		}
	}
}

// TestDecoderNoAllocation: a step allocates nothing once the window is full
// (until then the backend's scratch may grow with it).
func TestDecoderNoAllocation(t *testing.T) {
	p := cpuParams(t, 1, odd, ParamOptions{})
	d := must[*Decoder](t)(NewDecoder(p.r, p, 1, 16))
	token := []int32{3}
	for range 16 {
		must[[]float32](t)(d.Step(token))
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.Step(token); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a step allocates %v times, want 0", n)
	}
}

// BenchmarkPrefillMore reads 64 tokens of a conversation behind 128 others, in
// one pass and one by one.
func BenchmarkPrefillMore(b *testing.B) {
	cfg, err := Preset("micro")
	if err != nil {
		b.Fatal(err)
	}
	cfg.VocabSize = 4096
	p := cpuParams(b, 2, cfg, ParamOptions{})
	d, err := NewDecoder(p.r, p, 1, 256)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	tokens, _ := batchOf(cfg, 1, 192, 2)
	for name, part := range map[string]int{"pass": 64, "steps": 1} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				d.Reset()
				if _, err := d.Prefill(tokens[:128]); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for lo := 128; lo < 192; lo += part {
					if _, err := d.Prefill(tokens[lo : lo+part]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
