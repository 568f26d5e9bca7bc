package gpu

import (
	"errors"
	"fmt"
)

// ErrNoTimestamps says that a device cannot time its own work. Time a kernel
// then by submitting it alone and waiting, less the time of an empty wait.
var ErrNoTimestamps = errors.New("the GPU binding has no timestamps here")

// KernelTime is how long one dispatch took on the GPU.
type KernelTime struct {
	Kernel      string // the label of the pipeline
	Nanoseconds float64
}

// timing is what StartTiming begins.
type timing struct {
	labels []string
	most   int
}

// StartTiming makes the GPU note the time before and after each of the next
// dispatches, at most n (1 to MaxTimed). Every dispatch becomes a pass of its own
// meanwhile, which costs the host time but not the kernels. Errors:
// ErrNoTimestamps.
func (d *Device) StartTiming(n int) (err error) {
	if err := d.use("timing"); err != nil {
		return err
	}
	defer rescue("timing", &err)
	if n < 1 || n > MaxTimed || d.timing != nil {
		return invalid("timing: %d dispatches, want 1 to %d and no timing running", n, MaxTimed)
	}
	if err := d.drv.startTiming(n); err != nil {
		return d.failed("timing", err)
	}
	d.timing = &timing{most: n}
	return nil
}

// Timed is the number of dispatches that were timed since StartTiming.
func (d *Device) Timed() int {
	if d.timing == nil {
		return 0
	}
	return len(d.timing.labels)
}

// StopTiming waits for the GPU and returns the times of the dispatches since
// StartTiming, in order. A time is what a dispatch added: from the end of the
// one before, or its own start if that is later, to its end.
func (d *Device) StopTiming() (times []KernelTime, err error) {
	if err := d.use("timing"); err != nil {
		return nil, err
	}
	defer rescue("timing", &err)
	t := d.timing
	if t == nil {
		return nil, invalid("timing: StopTiming without StartTiming")
	}
	d.timing = nil
	d.handOver()
	stamps, err := d.drv.stopTiming()
	if err != nil {
		return nil, d.failed("timing", err)
	}
	if len(stamps) != 2*len(t.labels) {
		return nil, fmt.Errorf("gpu: timing: %d stamps for %d dispatches", len(stamps), len(t.labels))
	}
	before := 0.0
	for i, label := range t.labels {
		start, end := max(stamps[2*i], before), stamps[2*i+1]
		times = append(times, KernelTime{label, max(end-start, 0)})
		before = max(end, before)
	}
	return times, nil
}

// note counts a dispatch that is being timed.
func (t *timing) note(label string) {
	if t != nil && len(t.labels) < t.most {
		t.labels = append(t.labels, label)
	}
}
