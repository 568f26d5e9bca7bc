package model

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

func TestPresets(t *testing.T) {
	sizes := map[string]float64{"nano": 1.05e6, "micro": 9.97e6, "mini": 38.8e6, "small": 116.4e6, "medium": 361e6, "large": 1026e6}
	for _, name := range Presets() {
		c := must[Config](t)(Preset(name))
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if got := float64(c.NumParams()); math.Abs(got-sizes[name]) > 0.005*sizes[name] {
			t.Errorf("%s has %.1fM parameters, want %.1fM", name, got/1e6, sizes[name]/1e6)
		}
		// Every preset fits a device with WebGPU's default limits.
		lim := op.Limits{MaxBufferBytes: 256 << 20, MaxBindingBytes: 128 << 20}
		if _, err := PredictMemory(c, ParamOptions{Grads: true, Moments: true}, TrainOptions{Batch: 1}, lim, tensor.F32); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for typo, want := range map[string]string{"smal": `"small"`, "Nano": `"nano"`, "mikro": `"micro"`} {
		if _, err := Preset(typo); err == nil || !strings.Contains(err.Error(), "did you mean "+want) {
			t.Errorf("%q: got error %v, want the suggestion %s", typo, err, want)
		}
	}
	if _, err := Preset("xyzzyx"); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("got error %v, want one without a suggestion", err)
	}
}

func TestAutoPreset(t *testing.T) {
	all, train := ParamOptions{Grads: true, Moments: true}, TrainOptions{Batch: 4, Context: 256}
	last := -1
	for free := int64(128 << 20); free < 64<<30; free *= 2 {
		name, cfg, plan, err := AutoPreset(4096, free, all, train, op.Limits{}, tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Total() > free || cfg.VocabSize != 4096 || cfg.Context != 256 {
			t.Errorf("%d bytes free: %s needs %d (%+v)", free, name, plan.Total(), cfg)
		}
		index := strings.Index(strings.Join(Presets(), " "), name)
		if index < last {
			t.Errorf("more memory gave the smaller %s", name)
		}
		last = index
	}
	if last != strings.Index(strings.Join(Presets(), " "), "large") {
		t.Error("32 GiB are not enough for large")
	}
	if _, _, _, err := AutoPreset(0, 1<<20, all, train, op.Limits{}, tensor.F32); err == nil || !strings.Contains(err.Error(), "nano needs") {
		t.Errorf("1 MiB: got error %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"vocab_size is 0":      func(c *Config) { c.VocabSize = 0 },
		"context is -1":        func(c *Config) { c.Context = -1 },
		"d_model is 999999999": func(c *Config) { c.DModel = 999999999 },
		"layers is 0":          func(c *Config) { c.Layers = 0 },
		"multiple of heads 5":  func(c *Config) { c.Heads, c.KVHeads, c.HeadDim = 5, 5, 0 },
		"head_dim is 7":        func(c *Config) { c.HeadDim = 7 },
		"head_dim is -2":       func(c *Config) { c.HeadDim = -2 },
		"kv_heads 3":           func(c *Config) { c.KVHeads = 3 },
		"ffn is -4":            func(c *Config) { c.FFN = -4 },
		"rope_theta is NaN":    func(c *Config) { c.RopeTheta = math.NaN() },
		"norm_eps is -1":       func(c *Config) { c.NormEps = -1 },
		"init_std is -1":       func(c *Config) { c.InitStd = -1 },
		`activation is "relu"`: func(c *Config) { c.Activation = "relu" },
	} {
		c := tinyTied
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
		if _, err := NewParams(op.NewRunner(ref.New[float32]()), c, ParamOptions{}); err == nil {
			t.Errorf("NewParams accepted a configuration where %s", want)
		}
	}
	b := must[[]byte](t)(json.Marshal(tinyUntied.WithDefaults()))
	var back Config
	if err := json.Unmarshal(b, &back); err != nil || back != tinyUntied.WithDefaults() {
		t.Errorf("%s became %+v (%v)", b, back, err)
	}
}

// FuzzConfig: whatever a file holds, a configuration is refused or can be
// planned, and never panics.
func FuzzConfig(f *testing.F) {
	scaled := odd
	scaled.RopeScaling = RopeScaling{Llama3, 8, 1, 4, 64}
	for _, c := range []Config{tinyTied, tinyUntied, odd, scaled, {}} {
		b, _ := json.Marshal(c)
		f.Add(b)
	}
	f.Add([]byte(`{"vocab_size":16777216,"context":16777216,"d_model":1048576,"layers":9,"heads":4096,"head_dim":4096,"ffn":4194304}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Config
		if json.Unmarshal(data, &c) != nil || c.Validate() != nil {
			return
		}
		plan, err := PredictMemory(c, ParamOptions{Grads: true, Moments8: true}, TrainOptions{Batch: 1}, op.Limits{}, tensor.F32)
		if n := c.NumParams(); n < 1 || err == nil && plan.Total() < 4*int64(n) || c.FLOPsPerToken(c.Context) < 1 {
			t.Errorf("%+v: %d parameters, plan of %d bytes, error %v", c, n, plan.Total(), err)
		}
	})
}

// TestFLOPs counts by hand for one model, and against the matrix products that
// a step really does.
func TestFLOPs(t *testing.T) {
	c := Config{VocabSize: 10, Context: 4, DModel: 8, Layers: 3, Heads: 2, KVHeads: 1, FFN: 12}
	layer := 8*8 + 2*8*4 + 8*8 + 3*8*12
	want := int64(6*(3*layer+80) + 6*3*8*100)
	if got := c.FLOPsPerToken(100); got != want {
		t.Errorf("untied: %d FLOPs, want %d", got, want)
	}
	c.Tied = true // the head's product is still there
	if got := c.FLOPsPerToken(100); got != want {
		t.Errorf("tied: %d FLOPs, want %d", got, want)
	}
}

// TestMemory: what is predicted is allocated, to the byte, and freed again.
func TestMemory(t *testing.T) {
	lim := op.Limits{F16: true, MaxBufferBytes: 1 << 20, MaxBindingBytes: 400 << 10}
	for _, o := range []struct {
		p   ParamOptions
		t   TrainOptions
		lim op.Limits
	}{
		{ParamOptions{}, TrainOptions{Batch: 2}, op.Limits{}},
		{ParamOptions{Grads: true, Moments: true}, TrainOptions{Batch: 3}, op.Limits{}},
		{ParamOptions{Grads: true, Moments: true, Mirror: true}, TrainOptions{Batch: 3, DocMask: true, Recompute: true}, lim},
		{ParamOptions{Grads: true, Moments: true, Rounded: tensor.BF16}, TrainOptions{Batch: 2}, lim},
		{ParamOptions{Grads: true, Moments8: true, Rounded: tensor.F16}, TrainOptions{Batch: 3, LossChunkRows: 10}, lim},
	} {
		o.lim.F16 = true
		cpuBackend := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: 1}))
		defer cpuBackend.Close()
		for _, b := range []op.Backend{ref.New[float32](), cpuBackend} {
			r := op.NewRunner(limited{b, o.lim})
			plan := must[Plan](t)(PredictMemory(odd, o.p, o.t, o.lim, tensor.F32))
			p := must[*Params](t)(NewParams(r, odd, o.p))
			g := must[*Graph](t)(NewGraph(r, p, o.t))
			if now, _ := b.MemoryBytes(); now != plan.Total() || now == 0 {
				t.Errorf("%+v: %d bytes allocated, predicted %d\n%v", o, now, plan.Total(), plan)
			}
			g.Close()
			dplan := must[Plan](t)(PredictDecoder(odd, o.p, 2, 50, o.lim))
			d := must[*Decoder](t)(NewDecoder(r, p, 2, 50))
			if now, _ := b.MemoryBytes(); now != dplan.Total() {
				t.Errorf("decoder: %d bytes allocated, predicted %d\n%v", now, dplan.Total(), dplan)
			}
			d.Close()
			p.Close()
			if now, _ := b.MemoryBytes(); now != 0 {
				t.Errorf("%d bytes are left after Close", now)
			}
		}
	}
}

// TestMemoryOptions: recomputation and 8-bit moments really need less.
func TestMemoryOptions(t *testing.T) {
	c := must[Config](t)(Preset("small"))
	total := func(p ParamOptions, o TrainOptions) int64 {
		plan := must[Plan](t)(PredictMemory(c, p, o, op.Limits{F16: true}, tensor.F32))
		if s := plan.String(); !strings.Contains(s, "weights") || !strings.Contains(s, "total") {
			t.Errorf("plan prints as %q", s)
		}
		return plan.Total()
	}
	f32 := ParamOptions{Grads: true, Moments: true}
	full := total(f32, TrainOptions{Batch: 8})
	if less := total(f32, TrainOptions{Batch: 8, Recompute: true}); less > full/2 {
		t.Errorf("recomputation needs %s instead of %s", FormatBytes(less), FormatBytes(full))
	}
	saved := full - total(ParamOptions{Grads: true, Moments8: true}, TrainOptions{Batch: 8})
	// 8 bytes a parameter become 2 + 8/256.
	if want := float64(c.NumParams()) * (8 - 2 - 8.0/256); math.Abs(float64(saved)-want) > 0.01*want {
		t.Errorf("8-bit moments save %d bytes, want about %.0f", saved, want)
	}
	// A batch too large for a binding is refused by name.
	lim := op.Limits{MaxBindingBytes: 128 << 20}
	if _, err := PredictMemory(c, f32, TrainOptions{Batch: 64}, lim, tensor.F32); err == nil || !strings.Contains(err.Error(), "smaller batch") {
		t.Errorf("got error %v, want one that asks for a smaller batch", err)
	}
	if _, err := PredictMemory(c, f32, TrainOptions{Batch: maxDim, Context: maxDim}, op.Limits{}, tensor.F32); err == nil {
		t.Error("an absurd batch was accepted")
	}
}
