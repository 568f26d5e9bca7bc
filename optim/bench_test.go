package optim_test

import (
	"fmt"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
)

// BenchmarkStep is a whole optimizer step, with one micro-step, of a preset on
// the CPU backend with all threads, of all weights or of an adapter; it reports
// tokens/s, model FLOPs (Params.FLOPsPerToken) and memory.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		preset string
		B, T   int
		lora   model.LoRA
	}{{"nano", 8, 256, model.LoRA{}}, {"micro", 4, 512, model.LoRA{}}, {"micro", 4, 512, model.LoRA{Rank: 8}},
		{"micro", 4, 512, model.LoRA{Rank: 16}}, {"micro", 4, 512, model.LoRA{Rank: 16, Targets: "q,v"}}, {"mini", 4, 512, model.LoRA{}},
		{"mini", 4, 512, model.LoRA{Rank: 16}}} {
		b.Run(fmt.Sprintf("%s/%v", c.preset, c.lora.WithDefaults()), func(b *testing.B) {
			cfg, err := model.Preset(c.preset)
			check(b, err)
			r := op.NewRunner(cpuBackend(b, 0))
			o := moments
			o.LoRA = c.lora
			p, err := model.NewParams(r, cfg, o)
			check(b, err)
			check(b, p.Init(1))
			g, err := model.NewGraph(r, p, model.TrainOptions{Batch: c.B, Context: c.T})
			check(b, err)
			a := newAdamW(b, p, optim.Defaults())
			tokens := make([]int32, g.Rows())
			for i := range tokens {
				tokens[i] = int32(i * 7919 % cfg.VocabSize)
			}
			step := func() {
				check(b, g.MicroStep(tokens, tokens, nil, 1/float32(g.Rows())))
				_, err := a.Step(1e-4)
				check(b, err)
			}
			step() // scratch grows in the first
			for b.Loop() {
				step()
			}
			perSecond := float64(b.N*g.Rows()) / b.Elapsed().Seconds()
			b.ReportMetric(perSecond, "tok/s")
			b.ReportMetric(perSecond*float64(p.FLOPsPerToken(c.T))/1e9, "GFLOP/s")
			_, peak := r.Backend().MemoryBytes()
			b.ReportMetric(float64(peak)/(1<<20), "MiB")
		})
	}
}
