package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tezgah/tensor"
)

// hfConfig is the part of a Hugging Face config.json that decides what a Llama
// model computes. A pointer is nil when the key is missing.
type hfConfig struct {
	ModelType        string          `json:"model_type"`
	Architectures    []string        `json:"architectures"`
	VocabSize        int             `json:"vocab_size"`
	HiddenSize       int             `json:"hidden_size"`
	IntermediateSize int             `json:"intermediate_size"`
	Layers           int             `json:"num_hidden_layers"`
	Heads            int             `json:"num_attention_heads"`
	KVHeads          *int            `json:"num_key_value_heads"`
	HeadDim          *int            `json:"head_dim"`
	HiddenAct        string          `json:"hidden_act"`
	Context          int             `json:"max_position_embeddings"`
	InitRange        float64         `json:"initializer_range"`
	NormEps          *float64        `json:"rms_norm_eps"`
	Tied             bool            `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	RopeTheta        *float64        `json:"rope_theta"`      // transformers 4
	RopeScaling      *hfRope         `json:"rope_scaling"`    // transformers 4
	RopeParameters   *hfRope         `json:"rope_parameters"` // transformers 5
	SlidingWindow    json.RawMessage `json:"sliding_window"`
	PartialRotary    *float64        `json:"partial_rotary_factor"`
	QuantizationConf json.RawMessage `json:"quantization_config"`
	BOS              json.RawMessage `json:"bos_token_id"`
	EOS              json.RawMessage `json:"eos_token_id"`
	NumLocalExperts  *int            `json:"num_local_experts"`
	LayerTypes       []string        `json:"layer_types"`
}

// hfRope is both spellings of the rotary settings.
type hfRope struct {
	RopeType        string   `json:"rope_type"`
	Type            string   `json:"type"` // older name of rope_type
	Theta           *float64 `json:"rope_theta"`
	Factor          float64  `json:"factor"`
	LowFreqFactor   float64  `json:"low_freq_factor"`
	HighFreqFactor  float64  `json:"high_freq_factor"`
	OriginalContext int      `json:"original_max_position_embeddings"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
}

// mistralWindow is the sliding window of a Mistral config.json without the key.
const mistralWindow = 4096

// parseHFConfig reads config.json. What the model here cannot do is refused by
// name; where a key is missing, transformers' default counts.
func parseHFConfig(raw []byte) (c LlamaConfig, bos, eos []int32, err error) {
	var h hfConfig
	if err := json.Unmarshal(raw, &h); err != nil {
		return c, nil, nil, err
	}
	if err := h.supported(); err != nil {
		return c, nil, nil, err
	}
	c = LlamaConfig{
		VocabSize: h.VocabSize, Context: h.Context, DModel: h.HiddenSize, Layers: h.Layers, Heads: h.Heads,
		FFN: h.IntermediateSize, Tied: h.Tied, InitStd: h.InitRange, NormEps: 1e-6, KVHeads: h.Heads,
	}
	if h.ModelType == "mistral" {
		c.KVHeads = 8
	}
	for _, f := range []struct {
		name string
		got  int
	}{
		{"vocab_size", h.VocabSize}, {"hidden_size", h.HiddenSize}, {"intermediate_size", h.IntermediateSize},
		{"num_hidden_layers", h.Layers}, {"num_attention_heads", h.Heads}, {"max_position_embeddings", h.Context},
	} {
		if f.got == 0 {
			return c, nil, nil, fmt.Errorf("%q is missing", f.name)
		}
	}
	if h.KVHeads != nil {
		c.KVHeads = *h.KVHeads
	}
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	} else if h.HiddenSize%h.Heads != 0 {
		return c, nil, nil, fmt.Errorf("hidden_size %d is not a multiple of num_attention_heads %d, and there is no head_dim", h.HiddenSize, h.Heads)
	}
	if h.NormEps != nil {
		c.NormEps = *h.NormEps
	}
	if c.Activation, err = h.activation(); err != nil {
		return c, nil, nil, err
	}
	if err := h.rope(&c); err != nil {
		return c, nil, nil, err
	}
	c.setDefaults()
	if err := c.check(); err != nil {
		return c, nil, nil, err
	}
	if bos, err = tokenIDs(h.BOS, c.VocabSize); err == nil {
		eos, err = tokenIDs(h.EOS, c.VocabSize)
	}
	return c, bos, eos, err
}

// supported refuses by name what would give other results here.
func (h *hfConfig) supported() error {
	switch {
	case len(h.Architectures) > 0 && !slices.Contains([]string{"LlamaForCausalLM", "MistralForCausalLM"}, h.Architectures[0]):
		return fmt.Errorf("architecture %q is not supported, only LlamaForCausalLM and MistralForCausalLM", h.Architectures[0])
	case h.ModelType != "llama" && h.ModelType != "mistral":
		return fmt.Errorf("model_type %q is not supported, only \"llama\" and \"mistral\"", h.ModelType)
	case h.AttentionBias:
		return fmt.Errorf("attention_bias is true: biases are not supported")
	case h.MLPBias:
		return fmt.Errorf("mlp_bias is true: biases are not supported")
	case given(h.QuantizationConf):
		return fmt.Errorf("quantization_config is set: quantized weights are not supported, use the original model")
	case h.NumLocalExperts != nil && *h.NumLocalExperts > 1:
		return fmt.Errorf("num_local_experts is %d: mixtures of experts are not supported", *h.NumLocalExperts)
	case h.PartialRotary != nil && *h.PartialRotary != 1:
		return fmt.Errorf("partial_rotary_factor is %v: only 1 is supported", *h.PartialRotary)
	}
	for _, l := range h.LayerTypes {
		if l != "full_attention" {
			return fmt.Errorf("layer_types has %q: only full_attention is supported", l)
		}
	}
	return h.window()
}

// window refuses attention that does not see the whole context.
func (h *hfConfig) window() error {
	window := 0
	switch {
	case given(h.SlidingWindow):
		if err := json.Unmarshal(h.SlidingWindow, &window); err != nil {
			return fmt.Errorf("sliding_window is %s, want a number or null", h.SlidingWindow)
		}
	case h.ModelType == "mistral" && h.SlidingWindow == nil:
		window = mistralWindow
	}
	if window != 0 && h.ModelType == "mistral" && window < h.Context {
		return fmt.Errorf("sliding_window is %d, below the context of %d: sliding windows are not supported", window, h.Context)
	}
	return nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// activations maps hidden_act to our names.
var activations = map[string]string{
	"": "silu", "silu": "silu", "swish": "silu",
	"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
}

func (h *hfConfig) activation() (string, error) {
	a, ok := activations[h.HiddenAct]
	if !ok {
		return "", fmt.Errorf("hidden_act %q is not supported, only silu and gelu_pytorch_tanh", h.HiddenAct)
	}
	return a, nil
}

// rope reads the rotary settings from either spelling; both may be there if
// they agree.
func (h *hfConfig) rope(c *LlamaConfig) error {
	thetas := []*float64{h.RopeTheta}
	for _, r := range []*hfRope{h.RopeParameters, h.RopeScaling} {
		if r == nil {
			continue
		}
		thetas = append(thetas, r.Theta)
		if r.PartialRotary != nil && *r.PartialRotary != 1 {
			return fmt.Errorf("partial_rotary_factor is %v: only 1 is supported", *r.PartialRotary)
		}
		if r == h.RopeParameters && r.RopeType == "" && r.Theta == nil {
			return fmt.Errorf("rope_parameters has neither rope_type nor rope_theta; settings by layer are not supported")
		}
		s, err := r.scaling()
		if err != nil {
			return err
		}
		if s != nil && c.RopeScaling != nil && *s != *c.RopeScaling {
			return fmt.Errorf("rope_parameters and rope_scaling disagree")
		}
		if s != nil {
			c.RopeScaling = s
		}
	}
	for _, t := range thetas {
		if t == nil {
			continue
		}
		if c.RopeTheta != 0 && c.RopeTheta != *t {
			return fmt.Errorf("rope_theta is both %v and %v", c.RopeTheta, *t)
		}
		c.RopeTheta = *t
	}
	return nil
}

func (r *hfRope) scaling() (*RopeScaling, error) {
	kind := r.RopeType
	if kind == "" {
		kind = r.Type
	}
	switch kind {
	case "", "default":
		return nil, nil
	case "llama3":
		return &RopeScaling{kind, r.Factor, r.LowFreqFactor, r.HighFreqFactor, r.OriginalContext}, nil
	}
	return nil, fmt.Errorf("rope_type %q is not supported, only \"default\" and \"llama3\"", kind)
}

// tokenIDs reads a token id, a list of them, or null; each must be one of a
// vocabulary of so many.
func tokenIDs(raw json.RawMessage, vocab int) ([]int32, error) {
	if !given(raw) {
		return nil, nil
	}
	var ids []int32
	if raw[0] != '[' {
		raw = slices.Concat(json.RawMessage("["), raw, json.RawMessage("]"))
	}
	if err := json.Unmarshal(raw, &ids); err != nil {
		return nil, fmt.Errorf("token id %s: want a number or a list of numbers", raw)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("token id %d, want 0 to %d", id, vocab-1)
		}
	}
	return ids, nil
}

// orderedJSON builds a JSON object whose keys keep their order, so that the
// files read like those of other tools.
type orderedJSON struct{ strings.Builder }

func (o *orderedJSON) set(key string, value any) error {
	var v bytes.Buffer
	e := json.NewEncoder(&v)
	e.SetEscapeHTML(false) // special tokens are full of < and >
	e.SetIndent("  ", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	if o.Len() > 0 {
		o.WriteString(",\n")
	}
	fmt.Fprintf(o, "  %q: %s", key, bytes.TrimSpace(v.Bytes()))
	return nil
}

func (o *orderedJSON) bytes() []byte { return []byte("{\n" + o.String() + "\n}\n") }

// member is one key of an orderedJSON.
type member struct {
	key   string
	value any
}

func jsonObject(members []member) ([]byte, error) {
	var o orderedJSON
	for _, m := range members {
		if err := o.set(m.key, m.value); err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
	}
	return o.bytes(), nil
}

// hfConfigJSON writes config.json for a model whose weights have type t; ids
// below 0 become null. The rotary settings stand there in both spellings.
func hfConfigJSON(c LlamaConfig, t tensor.DType, ids roleIDs) ([]byte, error) {
	dtypes := map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}
	act := "silu"
	if c.Activation == "gelu_tanh" {
		act = "gelu_pytorch_tanh"
	}
	rope := []member{{"rope_type", "default"}, {"rope_theta", c.RopeTheta}}
	var scaling any
	if s := c.RopeScaling; s != nil {
		old := []member{
			{"rope_type", s.Type}, {"factor", s.Factor}, {"low_freq_factor", s.LowFreqFactor},
			{"high_freq_factor", s.HighFreqFactor}, {"original_max_position_embeddings", s.OriginalContext},
		}
		rope = append(slices.Clone(old), member{"rope_theta", c.RopeTheta})
		b, err := jsonObject(old)
		if err != nil {
			return nil, err
		}
		scaling = json.RawMessage(b)
	}
	ropeJSON, err := jsonObject(rope)
	if err != nil {
		return nil, err
	}
	return jsonObject([]member{
		{"architectures", []string{"LlamaForCausalLM"}}, {"attention_bias", false}, {"attention_dropout", 0},
		{"bos_token_id", idOrNull(ids.bos)}, {"dtype", dtypes[t]}, {"eos_token_id", idOrNull(ids.eos)}, {"head_dim", c.HeadDim},
		{"hidden_act", act}, {"hidden_size", c.DModel}, {"initializer_range", c.InitStd}, {"intermediate_size", c.FFN},
		{"max_position_embeddings", c.Context}, {"mlp_bias", false}, {"model_type", "llama"},
		{"num_attention_heads", c.Heads}, {"num_hidden_layers", c.Layers}, {"num_key_value_heads", c.KVHeads},
		{"pad_token_id", idOrNull(ids.pad)}, {"rms_norm_eps", c.NormEps}, {"rope_parameters", json.RawMessage(ropeJSON)},
		{"rope_scaling", scaling}, {"rope_theta", c.RopeTheta}, {"tie_word_embeddings", c.Tied},
		{"torch_dtype", dtypes[t]}, {"use_cache", true}, {"vocab_size", c.VocabSize},
	})
}

func idOrNull(id int32) any {
	if id < 0 {
		return nil
	}
	return id
}
