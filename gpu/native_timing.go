//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// halTiming is a query set being filled; two stamps per dispatch.
type halTiming struct {
	set    hal.QuerySet
	result hal.Buffer
	most   int // dispatches
	used   int
}

func (h *halDriver) startTiming(n int) error {
	period := h.queue.GetTimestampPeriod()
	set, err := h.dev.CreateQuerySet(&hal.QuerySetDescriptor{Label: "timing", Type: hal.QueryTypeTimestamp, Count: uint32(2 * n)})
	if errors.Is(err, hal.ErrTimestampsNotSupported) || (err == nil && period <= 0) {
		return ErrNoTimestamps
	}
	if err != nil {
		return fmt.Errorf("%w: %v", ErrNoTimestamps, err)
	}
	result, err := h.dev.CreateBuffer(&hal.BufferDescriptor{Label: "timing", Size: uint64(16 * n),
		Usage: gputypes.BufferUsageQueryResolve | gputypes.BufferUsageCopySrc | gputypes.BufferUsageCopyDst})
	if err != nil {
		h.dev.DestroyQuerySet(set)
		return classify(err)
	}
	h.endPass()
	h.timing = &halTiming{set: set, result: result, most: n}
	return nil
}

// timedPass is the description of the next pass: with stamps if one is timed.
func (h *halDriver) timedPass() *hal.ComputePassDescriptor {
	d := &hal.ComputePassDescriptor{Label: "tezgah"}
	if t := h.timing; t != nil && t.used < t.most {
		first := uint32(2 * t.used)
		last := first + 1
		d.TimestampWrites = &hal.ComputePassTimestampWrites{QuerySet: t.set, BeginningOfPassWriteIndex: &first, EndOfPassWriteIndex: &last}
	}
	return d
}

// afterTimed ends the pass of a dispatch that is timed.
func (h *halDriver) afterTimed() {
	if h.timing != nil && h.timing.used < h.timing.most {
		h.timing.used++
		h.endPass()
	}
}

// stopTiming returns the stamps in nanoseconds, in pairs.
func (h *halDriver) stopTiming() ([]float64, error) {
	t := h.timing
	h.timing = nil
	defer func() { // after the wait in download
		h.dev.DestroyQuerySet(t.set)
		h.dev.DestroyBuffer(t.result)
	}()
	if t.used == 0 {
		return nil, h.wait()
	}
	if err := h.beginCopy(); err != nil {
		return nil, err
	}
	h.enc.ResolveQuerySet(t.set, 0, uint32(2*t.used), t.result, 0)
	h.afterCopy(t.result)
	ticks := make([]uint64, 2*t.used)
	if err := h.download([]driverRead{{t.result, 0, Bytes(ticks)}}); err != nil {
		_ = h.idleAll()
		return nil, err
	}
	stamps := make([]float64, len(ticks))
	for i, v := range ticks {
		stamps[i] = float64(v-ticks[0]) * float64(h.queue.GetTimestampPeriod())
	}
	return stamps, nil
}
