package optim_test

import (
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
)

// BenchmarkStep is a whole optimizer step, with one micro-step, of a preset on
// the CPU backend with all threads; it reports tokens/s and model FLOPs
// (Config.FLOPsPerToken).
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		preset string
		B, T   int
	}{{"nano", 8, 256}, {"mini", 4, 512}} {
		b.Run(c.preset, func(b *testing.B) {
			cfg, err := model.Preset(c.preset)
			check(b, err)
			r := op.NewRunner(cpuBackend(b, 0))
			p, err := model.NewParams(r, cfg, moments)
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
			b.ReportMetric(perSecond*float64(cfg.FLOPsPerToken(c.T))/1e9, "GFLOP/s")
		})
	}
}
