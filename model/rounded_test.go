package model

import (
	"fmt"
	"testing"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// TestRoundedWeights compares graphs whose products read rounded weights with graphs
// whose products round them, over memory of 16 bits that begins full of NaN: every bit
// is the same. So nothing but products reads the copies, gains and the embedding's rows
// least of all.
func TestRoundedWeights(t *testing.T) {
	for _, m := range operandModes {
		for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprintf("%s %v", m.name, typ), func(t *testing.T) {
				var runs [2]operandRun
				for i, copies := range []tensor.DType{tensor.F32, typ} {
					b := rounding{ref.New[float32]()}
					if err := b.RoundProducts(typ); err != nil {
						t.Fatal(err)
					}
					o := m.p
					o.Rounded = copies
					p := must[*Params](t)(NewParams(op.NewRunner(b), m.cfg, o))
					fill(t, p)
					if p.Adapter() != nil {
						fillAdapter(t, p)
					}
					g := must[*Graph](t)(NewGraph(p.r, p, m.o))
					if x := g.blocks[0].w.wq.Type(); x != copies {
						t.Fatalf("wq is %v, want %v", x, copies)
					}
					runs[i] = runOperands(t, g)
				}
				sameRuns(t, runs[0], runs[1])
			})
		}
	}
}

// TestRoundedTypes says what reads the copies: matrices in the products of a graph, a
// tied embedding as the head's among them. Gains, the embedding's rows and a decoder
// read float32.
func TestRoundedTypes(t *testing.T) {
	for _, cfg := range []Config{tinyTied, tinyUntied} {
		for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
			b := ref.New[float32]()
			b.RoundProducts(typ)
			p := must[*Params](t)(NewParams(op.NewRunner(b), cfg, ParamOptions{Grads: true, Rounded: typ}))
			g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 1}))
			w := g.blocks[1].w
			for name, x := range map[string]op.Tensor{"wq": w.wq, "wk": w.wk, "wv": w.wv, "wo": w.wo, "w_gate": w.wGate, "w_up": w.wUp, "w_down": w.wDown, "head": g.head.w} {
				if x.Type() != typ {
					t.Errorf("tied %t: %s is %v, want %v", cfg.Tied, name, x.Type(), typ)
				}
			}
			d := must[*Decoder](t)(NewDecoder(p.r, p, 1, 0))
			for name, x := range map[string]op.Tensor{"attn_norm": w.attnNorm, "ffn_norm": w.ffnNorm, "final_norm": g.head.norm, "the embedding's rows": p.weight(embName),
				"the decoder's wq": d.layers[0].wq, "the decoder's head": d.headW} {
				if x.Type() != tensor.F32 {
					t.Errorf("tied %t: %s is %v, want F32", cfg.Tied, name, x.Type())
				}
			}
		}
	}
}

// TestRoundedMerge: after an adapter was merged products read the new weights.
func TestRoundedMerge(t *testing.T) {
	var runs [2]operandRun
	for i, copies := range []tensor.DType{tensor.F32, tensor.BF16} {
		b := rounding{ref.New[float32]()}
		b.RoundProducts(tensor.BF16)
		p := must[*Params](t)(NewParams(op.NewRunner(b), tinyUntied, ParamOptions{Grads: true, Rounded: copies, LoRA: loraOf(2, "q,down")}))
		fill(t, p)
		fillAdapter(t, p)
		g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2}))
		before := runOperands(t, g)
		if err := p.Merge(); err != nil {
			t.Fatal(err)
		}
		runs[i] = runOperands(t, g)
		if before.logits[0] == runs[i].logits[0] {
			t.Error("merging changed no logit, which proves nothing") // it rounds other numbers
		}
	}
	sameBits(t, "logits", runs[0].logits, runs[1].logits)
	sameBits(t, "losses", runs[0].losses, runs[1].losses)
}

// TestRoundedOn: a device gets the type that its products round to, where it can be had.
func TestRoundedOn(t *testing.T) {
	half := op.Limits{F16: true}
	for _, c := range []struct {
		lim            op.Limits
		operands, want tensor.DType
	}{
		{half, tensor.F32, tensor.F32}, {half, tensor.BF16, tensor.BF16}, {half, tensor.F16, tensor.F16},
		{op.Limits{}, tensor.BF16, tensor.BF16}, {op.Limits{}, tensor.F16, tensor.F32},
	} {
		got := RoundedOn(c.lim, c.operands)
		if got != c.want {
			t.Errorf("%v with %+v: got %v, want %v", c.operands, c.lim, got, c.want)
		}
		if _, err := PredictMemory(tinyTied, ParamOptions{Rounded: got}, TrainOptions{Batch: 1}, c.lim, c.operands); err != nil {
			t.Error(err)
		}
	}
}
