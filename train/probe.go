package train

import (
	"context"
	"os"
	"slices"
	"time"
)

// ProbeStep measures how long a step of cfg takes on a device: the median of a
// few real steps in a throw-away run. It also pays for what happens once, such
// as building kernels.
func ProbeStep(ctx context.Context, cfg Config, open OpenBackend) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "tezgah-probe-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	const steps = 6
	cfg.MaxSteps = steps
	t, err := New(cfg, Options{Dir: dir, Open: open, Context: ctx})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	var times []time.Duration
	for range steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		begin := time.Now()
		if _, err := t.step(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
