package model

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestRopeScaling compares rotary tables with frequencies worked out by hand
// from the definition: a wavelength under context/high stays, one above
// context/low is divided by the factor, one between is interpolated.
func TestRopeScaling(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want map[int]float64 // pair: radians a position
	}{
		// Wavelengths 2π·{1, 10, 100, 1000}; high below 32, low above 128. The
		// second is between: 128/62.83 = 2.037 turns keep 1.037/3 of it.
		{Config{RopeTheta: 10000, HeadDim: 8, RopeScaling: RopeScaling{Llama3, 8, 1, 4, 128}},
			map[int]float64{0: 1, 1: 0.042751178754307596, 2: 0.00125, 3: 0.000125}},
		// No scaling: pure powers.
		{Config{RopeTheta: 10000, HeadDim: 8}, map[int]float64{0: 1, 1: 0.1, 2: 0.01, 3: 0.001}},
		// A factor of 1 changes nothing either.
		{Config{RopeTheta: 10000, HeadDim: 8, RopeScaling: RopeScaling{Llama3, 1, 1, 4, 128}},
			map[int]float64{0: 1, 1: 0.1, 2: 0.01, 3: 0.001}},
		// Llama 3.1 itself: the numbers of transformers' formula.
		{Config{RopeTheta: 500000, HeadDim: 128, RopeScaling: RopeScaling{Llama3, 8, 1, 4, 8192}},
			map[int]float64{20: 0.016560440080994446, 28: 0.003211445994752591, 29: 0.002166570763503359, 31: 0.0008567514129196321,
				34: 0.0001785078127679964, 35: 9.556212353964683e-05, 63: 3.068925988914511e-07}},
	} {
		const first, n = 1000, 3
		table := ropeTable(c.cfg, first, n)
		D := c.cfg.HeadDim
		for pair, freq := range c.want {
			for pos := range n {
				angle := float64(first+pos) * freq
				cos, sin := float64(table[pos*D+pair]), float64(table[pos*D+D/2+pair])
				// Half a unit of float32, and 1000 positions times the rounding of freq.
				if math.Abs(cos-math.Cos(angle)) > 1e-7 || math.Abs(sin-math.Sin(angle)) > 1e-7 {
					t.Errorf("%+v pair %d position %d: cos %v sin %v, want %v %v", c.cfg.RopeScaling, pair, first+pos,
						cos, sin, math.Cos(angle), math.Sin(angle))
				}
			}
		}
	}
}

// TestRopeScalingConfig: an unscaled configuration is written as before, a
// scaled one survives the way through a file, and nonsense is refused by name.
func TestRopeScalingConfig(t *testing.T) {
	plain := tinyTied.WithDefaults()
	if b := must[[]byte](t)(json.Marshal(plain)); strings.Contains(string(b), "rope_scaling") {
		t.Errorf("an unscaled configuration is written as %s", b)
	}
	scaled := plain
	scaled.RopeScaling = RopeScaling{Llama3, 8, 1, 4, 16}
	b := must[[]byte](t)(json.Marshal(scaled))
	if want := `"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_context":16}`; !strings.Contains(string(b), want) {
		t.Errorf("%s lacks %s", b, want)
	}
	var back Config
	if err := json.Unmarshal(b, &back); err != nil || back != scaled || back == plain {
		t.Errorf("%s became %+v (%v)", b, back, err)
	}
	if err := scaled.Validate(); err != nil {
		t.Error(err)
	}
	for want, s := range map[string]RopeScaling{
		`type is "yarn", want "llama3"`:     {"yarn", 8, 1, 4, 16},
		`type is ""`:                        {Factor: 8},
		"factor is 0.5":                     {Llama3, 0.5, 1, 4, 16},
		"factor is NaN":                     {Llama3, math.NaN(), 1, 4, 16},
		"factor is +Inf":                    {Llama3, math.Inf(1), 1, 4, 16},
		"low_freq_factor is 0":              {Llama3, 8, 0, 4, 16},
		"high_freq_factor is 1, want":       {Llama3, 8, 1, 1, 16},
		"original_context is 0":             {Llama3, 8, 1, 4, 0},
		"original_context is 4611686018427": {Llama3, 8, 1, 4, 4611686018427},
	} {
		c := plain
		c.RopeScaling = s
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "rope_scaling") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one with %q", s, err, want)
		}
	}
}

// TestRopeScalingModel: the decoder goes past the original context with the
// same scaled angles as the whole forward pass, and they are not the plain ones.
func TestRopeScalingModel(t *testing.T) {
	cfg := odd
	cfg.RopeTheta = 100
	plain := forwardLogits(t, cpuParams(t, 1, cfg, ParamOptions{}), 1, ramp(cfg, 60))
	cfg.RopeScaling = RopeScaling{Llama3, 4, 1, 4, 20}
	p := cpuParams(t, 1, cfg, ParamOptions{})
	want := forwardLogits(t, p, 1, ramp(cfg, 60))
	d := must[*Decoder](t)(NewDecoder(p.r, p, 1, 64))
	V := cfg.VocabSize
	got := must[[]float32](t)(d.Prefill(ramp(cfg, 60)))
	near(t, "logits", got, want[59*V:], bound32)
	diff := 0.0
	for i, v := range want {
		diff = max(diff, math.Abs(float64(v-plain[i])))
	}
	if diff < 0.01 {
		t.Errorf("scaling changes logits by %v at most: the test proves nothing", diff)
	}
}

// ramp is n tokens of a fixed, unordered sequence.
func ramp(c Config, n int) []int32 {
	tokens, _ := batchOf(c, 1, n, 12)
	return tokens
}
