package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// LlamaConfig is the configuration of a LLaMA-style model, as far as other
// formats can express it. Its JSON is that of an .llm file's configuration, so
// that it travels between them without this package knowing the model.
type LlamaConfig struct {
	VocabSize   int          `json:"vocab_size"`
	Context     int          `json:"context"`
	DModel      int          `json:"d_model"`
	Layers      int          `json:"layers"`
	Heads       int          `json:"heads"`
	KVHeads     int          `json:"kv_heads"`   // 0 means Heads
	HeadDim     int          `json:"head_dim"`   // 0 means DModel/Heads
	FFN         int          `json:"ffn"`        // 0 means 4·DModel
	RopeTheta   float64      `json:"rope_theta"` // 0 means 10,000
	NormEps     float64      `json:"norm_eps"`   // 0 means 1e-5
	Tied        bool         `json:"tied"`
	Activation  string       `json:"activation"`             // "silu" ("" too) or "gelu_tanh"
	InitStd     float64      `json:"init_std"`               // 0 means 0.02
	RopeScaling *RopeScaling `json:"rope_scaling,omitempty"` // nil for none
}

// RopeScaling stretches the rotary frequencies of a model that was trained on
// a shorter context, as Llama 3.1 does.
type RopeScaling struct {
	Type            string  `json:"type"` // "llama3"
	Factor          float64 `json:"factor"`
	LowFreqFactor   float64 `json:"low_freq_factor"`
	HighFreqFactor  float64 `json:"high_freq_factor"`
	OriginalContext int     `json:"original_context"`
}

// parseLlamaConfig reads the configuration of an .llm file, fills in defaults
// and checks it. A field that LlamaConfig lacks is an error: the model then
// does something that the other formats cannot say.
func parseLlamaConfig(raw json.RawMessage) (LlamaConfig, error) {
	var c LlamaConfig
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("the model's configuration cannot be expressed in other formats: %w", err)
	}
	c.setDefaults()
	return c, c.check()
}

func (c *LlamaConfig) setDefaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	deff := func(p *float64, v float64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.KVHeads, c.Heads)
	if c.Heads > 0 {
		def(&c.HeadDim, c.DModel/c.Heads)
	}
	def(&c.FFN, 4*c.DModel)
	deff(&c.RopeTheta, 10000)
	deff(&c.NormEps, 1e-5)
	deff(&c.InitStd, 0.02)
	if c.Activation == "" {
		c.Activation = "silu"
	}
}

// check refuses sizes that no model has, so that products of two cannot
// overflow and the list of tensors stays small, and what contradicts itself.
func (c *LlamaConfig) check() error {
	for _, f := range []struct {
		name      string
		got, most int
	}{
		{"vocab_size", c.VocabSize, 1 << 24}, {"context", c.Context, 1 << 24}, {"d_model", c.DModel, 1 << 20}, {"layers", c.Layers, 1 << 12},
		{"heads", c.Heads, 1 << 12}, {"kv_heads", c.KVHeads, 1 << 12}, {"head_dim", c.HeadDim, 1 << 12}, {"ffn", c.FFN, 1 << 22},
	} {
		if f.got < 1 || f.got > f.most {
			return fmt.Errorf("configuration: %s is %d, want 1 to %d", f.name, f.got, f.most)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("configuration: %d heads cannot share %d key/value heads evenly", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("configuration: head_dim is %d, want an even number", c.HeadDim)
	case !(c.RopeTheta > 1) || math.IsInf(c.RopeTheta, 0):
		return fmt.Errorf("configuration: rope_theta is %v, want a finite number above 1", c.RopeTheta)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("configuration: norm_eps is %v, want a number between 0 and 1", c.NormEps)
	case c.Activation != "silu" && c.Activation != "gelu_tanh":
		return fmt.Errorf("configuration: activation is %q, want \"silu\" or \"gelu_tanh\"", c.Activation)
	}
	return c.RopeScaling.check()
}

func (r *RopeScaling) check() error {
	if r == nil {
		return nil
	}
	if r.Type != "llama3" {
		return fmt.Errorf("configuration: rope scaling of type %q is not supported, only \"llama3\"", r.Type)
	}
	if !(r.Factor >= 1 && r.LowFreqFactor > 0 && r.HighFreqFactor > r.LowFreqFactor && r.OriginalContext > 0) ||
		math.IsInf(r.Factor, 0) || math.IsInf(r.HighFreqFactor, 0) {
		return fmt.Errorf("configuration: rope scaling %+v makes no sense: want factor ≥ 1, 0 < low_freq_factor < high_freq_factor, a context above 0", *r)
	}
	return nil
}

// llamaTensor is one parameter under its three names.
type llamaTensor struct {
	ours, hf, gguf string
	shape          []int // ours; matrices are [in, out]
	turned         bool  // elsewhere stored as [out, in]
	heads          int   // of a q or k projection, whose rows GGUF permutes; else 0
}

// theirShape is the shape in the other formats.
func (t llamaTensor) theirShape() []int {
	if t.turned {
		return []int{t.shape[1], t.shape[0]}
	}
	return t.shape
}

// tensors lists every parameter of the model in the order of the file formats:
// embedding, layers, final norm, head.
func (c LlamaConfig) tensors() []llamaTensor {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	ts := []llamaTensor{{"tok_emb", "model.embed_tokens.weight", "token_embd.weight", []int{c.VocabSize, c.DModel}, false, 0}}
	for i := range c.Layers {
		n := strconv.Itoa(i)
		add := func(ours, hf, gguf string, heads int, shape ...int) {
			ts = append(ts, llamaTensor{
				"layers." + n + "." + ours, "model.layers." + n + "." + hf + ".weight", "blk." + n + "." + gguf + ".weight",
				shape, len(shape) == 2, heads,
			})
		}
		add("attn_norm", "input_layernorm", "attn_norm", 0, c.DModel)
		add("wq", "self_attn.q_proj", "attn_q", c.Heads, c.DModel, q)
		add("wk", "self_attn.k_proj", "attn_k", c.KVHeads, c.DModel, kv)
		add("wv", "self_attn.v_proj", "attn_v", 0, c.DModel, kv)
		add("wo", "self_attn.o_proj", "attn_output", 0, q, c.DModel)
		add("ffn_norm", "post_attention_layernorm", "ffn_norm", 0, c.DModel)
		add("w_gate", "mlp.gate_proj", "ffn_gate", 0, c.DModel, c.FFN)
		add("w_up", "mlp.up_proj", "ffn_up", 0, c.DModel, c.FFN)
		add("w_down", "mlp.down_proj", "ffn_down", 0, c.FFN, c.DModel)
	}
	ts = append(ts, llamaTensor{"final_norm", "model.norm.weight", "output_norm.weight", []int{c.DModel}, false, 0})
	if !c.Tied {
		ts = append(ts, llamaTensor{"lm_head", "lm_head.weight", "output.weight", []int{c.DModel, c.VocabSize}, true, 0})
	}
	return ts
}
