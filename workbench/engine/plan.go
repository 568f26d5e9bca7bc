package engine

import (
	"encoding/json"
	"os"
	"sync"

	"tezgah/checkpoint"
)

// problem is a setting that is wrong, as POST /api/runs/plan has it.
type problem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

type memoryRow struct {
	Label string `json:"label"`
	Bytes int64  `json:"bytes"`
}

// plan is POST /api/runs/plan: what settings mean, without doing anything.
func (s *Service) plan(c *call) error {
	var set RunSettings
	if err := readJSON(c.r, &set); err != nil {
		return err
	}
	want, wrong := s.settle(set)
	problems := []problem{}
	for _, e := range wrong {
		problems = append(problems, problem{e.Field, e.Message})
	}
	cfg, m := want.cfg, want.cfg.Model
	out := map[string]any{
		"params": 0, "model": m, "memory": []memoryRow{}, "total": 0, "free": 0, "fits": false, "tokens_per_step": 0, "steps": 0, "epochs": 0.0,
		"flops_per_token": 0, "notices": []string{}, "lr": cfg.Schedule.LR, "min_lr": cfg.Schedule.MinLR, "warmup": max(0, cfg.Schedule.Warmup), "tok_per_s": 0.0, "seconds": 0.0,
	}
	if m.VocabSize > 0 && m.Validate() == nil {
		out["params"] = m.NumParams()
	}
	if len(problems) == 0 {
		if err := s.planSize(set, want, out); err != nil {
			problems = append(problems, problem{named(err).Field, err.Error()})
		}
	}
	out["problems"] = problems
	return c.json(out)
}

// planSize adds memory and time.
func (s *Service) planSize(set RunSettings, want settled, out map[string]any) error {
	cfg := want.cfg
	perStep := int64(cfg.Batch) * int64(cfg.Context) * int64(cfg.Accum)
	steps := cfg.MaxSteps
	if want.passTokens == 0 && set.MaxSteps == 0 {
		steps = 0
	}
	out["tokens_per_step"], out["steps"], out["warmup"] = perStep, steps, cfg.Schedule.Warmup
	if want.passTokens > 0 {
		out["epochs"] = round(float64(steps*perStep) / float64(want.passTokens))
	}
	out["flops_per_token"] = cfg.Model.FLOPsPerToken(cfg.Context)
	info, err := s.deviceInfo(set.Device, cfg.Precision)
	if err != nil {
		return err
	}
	mem, notices, err := cfg.PredictMemory(info.standIns[cfg.Precision])
	if err != nil {
		return err
	}
	rows := []memoryRow{}
	for _, r := range mem.Rows {
		if r.Bytes > 0 {
			rows = append(rows, memoryRow{r.Label, r.Bytes})
		}
	}
	free := max(0, info.limits.FreeBytes)
	out["notices"] = append([]string{}, notices...)
	out["memory"], out["total"], out["free"], out["fits"] = rows, mem.Total(), free, free == 0 || mem.Total() <= free
	if speed := s.speeds.get(speedKey(cfg, info.words)); speed > 0 {
		out["tok_per_s"] = round(speed)
		out["seconds"] = round(float64(steps*perStep) / speed)
	}
	return nil
}

// speeds are the measured speeds of runs, kept in a file.
type speeds struct {
	mu    sync.Mutex
	path  string
	known map[string]float64 // tokens a second by speedKey
}

// keptSpeeds bounds the file.
const keptSpeeds = 500

func (p *speeds) load() {
	b, err := os.ReadFile(p.path)
	if err != nil || json.Unmarshal(b, &p.known) != nil || p.known == nil {
		p.known = map[string]float64{} // a cache: nothing is lost
	}
}

func (p *speeds) get(key string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[key]
}

func (p *speeds) put(key string, tokPerSec float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= keptSpeeds {
		clear(p.known)
	}
	p.known[key] = round(tokPerSec)
	if b, err := json.Marshal(p.known); err == nil {
		checkpoint.WriteBytesAtomic(p.path, b)
	}
}
