//go:build js && wasm

package gpu

import "syscall/js"

// MaxTimed is the most dispatches that can be timed at once. Chromium's query sets
// have at most 4,096 queries, two a dispatch.
const MaxTimed = 2048

// usageResolve is GPUBufferUsage.QUERY_RESOLVE.
const usageResolve = 0x200

// jsTiming is a query set being filled; two stamps per dispatch.
type jsTiming struct {
	set, result js.Value
	most, used  int // dispatches
}

func (d *jsDriver) startTiming(n int) error {
	if !d.device.Get("features").Call("has", "timestamp-query").Bool() {
		return ErrNoTimestamps
	}
	d.endPass()
	d.timing = &jsTiming{
		set: d.device.Call("createQuerySet", map[string]any{"label": "timing", "type": "timestamp", "count": 2 * n}),
		result: d.device.Call("createBuffer", map[string]any{"label": "timing", "size": 16 * n,
			"usage": usageResolve | usageCopySrc}),
		most: n,
	}
	return nil
}

// timedPass is the description of the next pass: with stamps if one is timed.
func (d *jsDriver) timedPass() map[string]any {
	p := map[string]any{"label": labelOfTezgah}
	if t := d.timing; t != nil && t.used < t.most {
		p["timestampWrites"] = map[string]any{"querySet": t.set,
			"beginningOfPassWriteIndex": 2 * t.used, "endOfPassWriteIndex": 2*t.used + 1}
	}
	return p
}

// afterTimed ends the pass of a dispatch that is timed.
func (d *jsDriver) afterTimed() {
	if d.timing != nil && d.timing.used < d.timing.most {
		d.timing.used++
		d.endPass()
	}
}

// stopTiming returns the stamps in nanoseconds, in pairs. Browsers make them
// coarse, most often multiples of 100 microseconds.
func (d *jsDriver) stopTiming() ([]float64, error) {
	t := d.timing
	d.timing = nil
	defer func() {
		t.set.Call("destroy")
		t.result.Call("destroy")
	}()
	if t.used == 0 {
		return nil, d.wait()
	}
	d.endPass()
	d.begin()
	d.encoder.Call("resolveQuerySet", t.set, 0, 2*t.used, t.result, 0)
	ticks := make([]uint64, 2*t.used)
	if err := d.download([]driverRead{{t.result, 0, Bytes(ticks)}}); err != nil {
		return nil, err
	}
	stamps := make([]float64, len(ticks))
	for i, v := range ticks {
		stamps[i] = float64(v - ticks[0])
	}
	return stamps, nil
}
