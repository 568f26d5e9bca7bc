package webgpu

import (
	"fmt"
	"time"

	"tezgah/op"
	"tezgah/tensor"
)

// copyRates is bytes read and written per second by the copy kernel: for smaller
// sizes, and last for one far larger than caches where the device is large enough.
func (b *Backend) copyRates(overhead time.Duration) ([]op.CopyRate, error) {
	n, repeats := 1<<20, 1
	if b.tuner.budget >= 1e10 {
		// Little enough for one row of workgroups: see flat_id in 00_shared.wgsl.
		n = int(min(b.dev.Limits().BindingSize, 240<<20) / 4)
		repeats = 10
	}
	var t [2]op.Tensor
	for i := range t {
		mem, err := b.Alloc(fmt.Sprintf("bandwidth %d", i), tensor.F32, n)
		if err != nil {
			return nil, err
		}
		defer b.Free(mem)
		t[i] = op.Of(mem, 0, n)
	}
	d, err := b.shortest(5, func() error {
		for range repeats {
			if err := b.Copy(t[0], t[1]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	large := op.CopyRate{Bytes: int64(8 * n), BytesPerSec: float64(8*n*repeats) / seconds(d-overhead)}
	rates, err := b.smallCopies(t[0], t[1], overhead)
	return append(rates, large), err
}

// copyWindows is the most copies of a small size that a measurement goes through.
const copyWindows = 16

// smallCopies measures copies of parts of src to dst, by the device's own clock
// where it has one, else less the overhead of a submit. Each copy has a part of its
// own, and all sizes take turns, so that caches hold little of it.
func (b *Backend) smallCopies(dst, src op.Tensor, overhead time.Duration) (rates []op.CopyRate, err error) {
	var ways []func() error
	var moved []int64
	for _, bytes := range op.CopyBytes() {
		n := int(bytes / 8)
		if n >= src.Len() {
			break
		}
		rates = append(rates, op.CopyRate{Bytes: bytes})
		windows := min(copyWindows, src.Len()/n)
		step := src.Len() / windows / op.AlignElems * op.AlignElems // a binding may begin there
		moved = append(moved, int64(windows)*bytes)
		ways = append(ways, func() error {
			for i := range windows {
				if err := b.Copy(op.Of(dst.Buf, i*step, n), op.Of(src.Buf, i*step, n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	clock, err := b.hasClock()
	if err != nil {
		return nil, err
	}
	if clock {
		overhead = 0
	}
	times, err := b.inTurn(ways...)
	if err != nil {
		return nil, err
	}
	for i, d := range times {
		rates[i].BytesPerSec = float64(moved[i]) / seconds(d-overhead)
	}
	return rates, nil
}

// hasClock reports whether timeKernels reads the device's own clock.
func (b *Backend) hasClock() (bool, error) {
	ok, err := b.StartTiming()
	if !ok || err != nil {
		return false, err
	}
	_, err = b.StopTiming()
	return true, err
}
