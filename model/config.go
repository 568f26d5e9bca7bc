package model

import (
	"fmt"
	"math"

	"tezgah/op"
)

// Config describes a model completely: two models of equal Config have the
// same parameters in the same order. It goes into every checkpoint as JSON.
//
// Fields with a default take it when they are zero; WithDefaults is the one
// place where the defaults stand.
type Config struct {
	VocabSize  int     `json:"vocab_size"` // V; no default
	Context    int     `json:"context"`    // trained T, no default; decoding may go past it
	DModel     int     `json:"d_model"`    // C; no default
	Layers     int     `json:"layers"`     // L; no default
	Heads      int     `json:"heads"`      // H; no default
	KVHeads    int     `json:"kv_heads"`   // KVH, divides Heads; 0 means Heads (no grouping)
	HeadDim    int     `json:"head_dim"`   // D, even; 0 means DModel/Heads
	FFN        int     `json:"ffn"`        // F; 0 means 4·DModel
	RopeTheta  float64 `json:"rope_theta"` // base of the rotary frequencies; 0 means 10,000
	NormEps    float64 `json:"norm_eps"`   // added to the mean square; 0 means 1e-5
	Tied       bool    `json:"tied"`       // lm_head is tok_emb transposed; false means a matrix of its own
	Activation string  `json:"activation"` // "silu" or "gelu_tanh"; "" means "silu"
	InitStd    float64 `json:"init_std"`   // standard deviation of initial weights; 0 means 0.02

	RopeScaling RopeScaling `json:"rope_scaling,omitzero"` // of the rotary frequencies; zero means none
}

// WithDefaults returns the configuration with every zero field that has a
// default filled in.
func (c Config) WithDefaults() Config {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 && c.DModel%c.Heads == 0 {
		c.HeadDim = c.DModel / c.Heads
	}
	if c.FFN == 0 {
		c.FFN = 4 * c.DModel
	}
	if c.RopeTheta == 0 {
		c.RopeTheta = 10000
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-5
	}
	if c.Activation == "" {
		c.Activation = op.SiLU.String()
	}
	if c.InitStd == 0 {
		c.InitStd = 0.02
	}
	return c
}

// maxDim bounds batches, contexts and vocabularies. It and the bounds below are
// far above any model: they keep the sizes of a damaged file from overflowing
// an int or from asking for a table of a billion layers.
const maxDim = 1 << 24

// Validate says whether the model can be built. Its error names the field,
// what it is and what it should be.
func (c Config) Validate() error {
	c = c.WithDefaults()
	for _, f := range []struct {
		name      string
		got, most int
	}{
		{"vocab_size", c.VocabSize, maxDim}, {"context", c.Context, maxDim}, {"d_model", c.DModel, 1 << 20},
		{"layers", c.Layers, 1 << 12}, {"heads", c.Heads, 1 << 12}, {"kv_heads", c.KVHeads, 1 << 12}, {"ffn", c.FFN, 1 << 22},
	} {
		if f.got < 1 || f.got > f.most {
			return fmt.Errorf("model config: %s is %d, want 1 to %d", f.name, f.got, f.most)
		}
	}
	switch {
	case c.HeadDim == 0:
		return fmt.Errorf("model config: d_model is %d, want a multiple of heads %d (or set head_dim)", c.DModel, c.Heads)
	case c.HeadDim < 2 || c.HeadDim > 1<<12 || c.HeadDim%2 != 0:
		return fmt.Errorf("model config: head_dim is %d, want an even number from 2 to 4096 (rotary positions turn pairs)", c.HeadDim)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("model config: heads is %d, want a multiple of kv_heads %d", c.Heads, c.KVHeads)
	case !(c.RopeTheta > 1) || math.IsInf(c.RopeTheta, 0):
		return fmt.Errorf("model config: rope_theta is %v, want a finite number above 1", c.RopeTheta)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("model config: norm_eps is %v, want a number between 0 and 1", c.NormEps)
	case !(c.InitStd > 0 && c.InitStd < 10):
		return fmt.Errorf("model config: init_std is %v, want a number between 0 and 10", c.InitStd)
	}
	if err := c.RopeScaling.validate(); err != nil {
		return err
	}
	_, err := c.activation()
	return err
}

func (c Config) activation() (op.Activation, error) {
	for _, a := range []op.Activation{op.SiLU, op.GeLUTanh} {
		if a.String() == c.Activation {
			return a, nil
		}
	}
	return 0, fmt.Errorf("model config: activation is %q, want %q or %q", c.Activation, op.SiLU, op.GeLUTanh)
}

// qDim and kvDim are the widths of Q and of K and V.
func (c Config) qDim() int  { return c.Heads * c.HeadDim }
func (c Config) kvDim() int { return c.KVHeads * c.HeadDim }

// NumParams is the number of weights, a tied head counted once.
func (c Config) NumParams() int {
	n := 0
	for _, p := range c.Params() {
		n += p.Len()
	}
	return n
}

// FLOPsPerToken is what training does for each token of a sequence of T, a
// multiplication and an addition counted as two: 6·(weights that take part in
// matrix products: every matrix, with the head, without the embedding lookup)
// plus 6·L·H·D·T for causal attention (forward: two products of 2·H·D over
// (T+1)/2 keys on average, ≈ 2·H·D·T; backward twice that). Work that is done
// again by choice (recomputation) is not counted.
func (c Config) FLOPsPerToken(T int) int64 {
	c = c.WithDefaults()
	matrices := int64(0)
	for _, p := range c.Params() {
		if p.Decay && p.Name != embName {
			matrices += int64(p.Len())
		}
	}
	if c.Tied {
		matrices += int64(c.VocabSize) * int64(c.DModel)
	}
	return 6*matrices + 6*int64(c.Layers)*int64(c.qDim())*int64(T)
}
