package engine

import (
	"context"

	"tezgah/bench"
	"tezgah/op"
	"tezgah/train"
)

// probe is POST /api/runs/probe: a few real steps of a throw-away run.
func (s *Service) probe(c *call) error {
	var set RunSettings
	if err := readJSON(c.r, &set); err != nil {
		return err
	}
	want, problems := s.settle(set)
	if len(problems) > 0 {
		return problems[0]
	}
	release, err := s.measure(set.Device, "a probe measures it", want.uses)
	if err != nil {
		return err
	}
	name := set.Name
	return c.json(s.startJob("probe", name, release, func(ctx context.Context, j *job) (any, error) {
		return s.probeSteps(ctx, j, want.cfg, set.Device)
	}))
}

// measure claims a device for a measurement, which a run would falsify.
func (s *Service) measure(device, holder string, uses []string) (release func(), err error) {
	free, err := s.claims.exclusive("device/"+s.deviceKey(device), holder)
	if err != nil {
		return nil, err
	}
	free2, err := s.claims.share(holder, uses...)
	if err != nil {
		free()
		return nil, err
	}
	s.loaded.unload()
	return func() { free2(); free() }, nil
}

func (s *Service) probeSteps(ctx context.Context, j *job, cfg train.Config, device string) (any, error) {
	j.change(true, func(v *Job) { v.Stage = "steps" })
	words := ""
	cfg.NoTensorBoard = true
	step, err := train.ProbeStep(ctx, cfg, func() (op.Backend, error) {
		b, _, err := s.open(device)
		if err == nil {
			words = b.Device()
		}
		return b, err
	})
	if err != nil {
		return nil, err
	}
	perStep := float64(cfg.Batch) * float64(cfg.Context) * float64(cfg.Accum)
	speed := perStep / step.Seconds()
	s.speeds.put(speedKey(cfg, words), speed)
	return map[string]any{
		"tok_per_s": round(speed), "step_ms": round(step.Seconds() * 1e3), "total_s": round(float64(cfg.MaxSteps) * step.Seconds()),
	}, nil
}

// profileSteps is how many steps a profile averages.
const profileSteps = 3

// profileRow is one operation's part of a step.
type profileRow struct {
	Name          string  `json:"name"`
	Calls         float64 `json:"calls"`
	Ms            float64 `json:"ms"`
	Share         float64 `json:"share"`
	GBPerSec      float64 `json:"gb_per_s"`
	TFLOPS        float64 `json:"tflops"`
	OfPeak        float64 `json:"of_peak"` // of whichever peak is nearer
	BoundByMemory bool    `json:"bound_by_memory"`
	OfCopy        float64 `json:"of_copy"` // of as many bytes, where bound by memory
}

// profile is POST /api/runs/NAME/profile: where the time of a step of this run
// goes.
func (s *Service) profile(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	cfg, err := train.LoadConfig(r.dir)
	if err != nil {
		return fail("bad_request", "the run has not begun yet: %v", err)
	}
	device := r.snapshot().Settings.Device
	release, err := s.measure(device, "a profile measures it", nil)
	if err != nil {
		return err
	}
	return c.json(s.startJob("profile", r.name, release, func(ctx context.Context, j *job) (any, error) {
		return s.profileRun(ctx, j, cfg, device)
	}))
}

func (s *Service) profileRun(ctx context.Context, j *job, cfg train.Config, device string) (any, error) {
	b, _, err := s.open(device)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	m, ok := b.(op.Measurer)
	if !ok {
		return nil, fail("device", "%s cannot measure its peak", b.Device())
	}
	j.change(true, func(v *Job) { v.Stage = "peak" })
	peak, err := m.MeasurePeak()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.yield(ctx)
	j.change(true, func(v *Job) { v.Stage = "steps" })
	opt := bench.StepOptions{Batch: cfg.Batch, Context: cfg.Context, Mixed: cfg.Precision == train.Mixed, Round: train.Rounding(cfg.Precision, b), Moments8: cfg.Moments8}
	prof, err := bench.ProfileStep(op.NewRunner(b), cfg.Model, opt, profileSteps, peak.SubmitOverhead)
	if err != nil {
		return nil, err
	}
	rows, ms := profileRows(prof, peak)
	return map[string]any{
		"method": prof.Method(), "step_ms": prof.Step.Seconds() * 1e3, "kernels_ms": ms, "rows": rows, "device": b.Device(),
		"peak_tflops": peak.FLOPS / 1e12, "peak_gb_per_s": peak.BytesPerSec / 1e9,
	}, nil
}

func profileRows(prof bench.StepProfile, peak op.Peak) (rows []profileRow, totalMs float64) {
	list, totalMs := prof.OpRows(peak)
	rows = []profileRow{}
	for _, r := range list {
		rows = append(rows, profileRow{Name: r.Name, Calls: r.Calls, Ms: r.Ms, Share: r.Share, GBPerSec: r.GBPerSec, TFLOPS: r.GFLOPS / 1e3,
			OfPeak: r.OfPeak, BoundByMemory: r.ByMemory, OfCopy: r.OfCopy})
	}
	return rows, totalMs
}
