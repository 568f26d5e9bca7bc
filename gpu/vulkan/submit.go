//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"runtime"
	"slices"
	"time"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

const (
	// maxFlying bounds how many batches the host may be ahead of the GPU.
	maxFlying = 32
	// maxBatches bounds how many are kept with what they hold: several training
	// steps of a deep model.
	maxBatches = 256
)

// Submit hands what is recorded to the GPU. After an error that work is lost.
func (d *Device) Submit() error {
	if d.list.empty() {
		return nil
	}
	b, err := d.ready(&d.list)
	if err == nil {
		err = b.start(d, &d.list)
	}
	d.list.reset()
	if err != nil {
		d.hazards.lost = true
		return err
	}
	d.last++
	b.number = d.last
	d.flying = append(d.flying, b)
	return d.waitUntilFlying(maxFlying)
}

// start hands a batch to the GPU with the list's uploads.
func (b *batch) start(d *Device, l *list) error {
	if len(l.uploads) > 0 {
		copy(b.own.memory, l.uploads)
	}
	err := check("vkQueueSubmit", d.cmds.QueueSubmit(d.queue, 1, &b.submit, b.fence))
	if err != nil {
		b.free(d)
	}
	return err
}

// ready returns a batch that does what the list says: one that did so before and
// is with the GPU no more, or one that is recorded now. Objects that were freed
// are in no new list, so what held them cannot be found; dropStale lets go of it.
func (d *Device) ready(l *list) (*batch, error) {
	d.dropStale()
	if l.again() {
		// The one that was used longest ago stands first, and is the likely one.
		for i, b := range d.idle {
			if slices.Equal(b.holds, l.commands) {
				d.idle = slices.Delete(d.idle, i, i+1)
				return b, nil
			}
		}
	}
	b, err := d.blank()
	if err != nil {
		return nil, err
	}
	if err := b.record(d, l); err != nil {
		b.free(d)
		return nil, err
	}
	d.recorded++
	return b, nil
}

// blank returns a batch to record into: one that holds nothing, a new one while
// there are few, or the one that was used longest ago.
func (d *Device) blank() (b *batch, err error) {
	used := len(d.idle) > 0
	if !used || len(d.idle[0].holds) > 0 && len(d.idle)+len(d.flying) < maxBatches {
		if b, err = d.newBatch(); err == nil || !used {
			return b, err
		}
	}
	b = d.idle[0]
	d.idle = slices.Delete(d.idle, 0, 1)
	return b, nil
}

// dropStale makes batches that name freed objects hold nothing. They come first
// then, to be recorded anew.
func (d *Device) dropStale() {
	if !d.stale {
		return
	}
	d.stale = false
	for i, b := range d.idle {
		if slices.ContainsFunc(b.holds, command.stale) {
			clear(b.holds)
			b.holds = b.holds[:0]
			copy(d.idle[1:i+1], d.idle[:i])
			d.idle[0] = b
		}
	}
}

// stale tells whether a command names a freed object.
func (c command) stale() bool {
	return c.pipeline != nil && c.pipeline.handle == 0 || c.group != nil && c.group.set == 0 ||
		c.src != nil && c.src.handle == 0 || c.dst != nil && c.dst.handle == 0
}

// Recorded counts the command buffers that were recorded, and not only submitted
// again.
func (d *Device) Recorded() uint64 { return d.recorded }

// Wait submits and waits until the GPU has done everything, what was submitted
// before included when the last part cannot be.
func (d *Device) Wait() error {
	err := d.Submit()
	if e := d.waitUntilFlying(0); err == nil {
		err = e
	}
	return err
}

// Pending is the number of the batch being recorded, or of the last one when
// nothing is; Done that of the last batch that the GPU has finished.
func (d *Device) Pending() uint64 {
	if !d.list.empty() {
		return d.last + 1
	}
	return d.last
}

// Done looks what the GPU has finished.
func (d *Device) Done() uint64 {
	for len(d.flying) > 0 && d.cmds.GetFenceStatus(d.handle, d.flying[0].fence) == vk.Success {
		_ = d.land()
	}
	return d.finished
}

// land takes back the oldest batch, which is done.
func (d *Device) land() error {
	b := d.flying[0]
	d.flying = slices.Delete(d.flying, 0, 1)
	d.finished = b.number
	if err := check("vkResetFences", d.cmds.ResetFences(d.handle, 1, &b.fence)); err != nil {
		b.free(d)
		return err
	}
	if len(b.holds) == 0 {
		d.idle = slices.Insert(d.idle, 0, b)
	} else {
		d.idle = append(d.idle, b)
	}
	return nil
}

// hangTime is after how long without progress a GPU counts as hung. Drivers
// reset one much earlier.
const hangTime = 2 * time.Minute

// waitUntilFlying waits until at most n batches are with the GPU. It looks
// often at first; then it lets the driver wait, in short turns, because Go's
// garbage collector cannot run while a thread is in the driver.
func (d *Device) waitUntilFlying(n int) error {
	if d.hung {
		return &Error{"waiting for the GPU", vk.ErrorDeviceLost}
	}
	start := time.Now()
	for tries := 0; len(d.flying) > n; tries++ {
		fence := &d.flying[0].fence
		var code vk.Result
		if tries < 50 {
			code = d.cmds.GetFenceStatus(d.handle, *fence)
		} else {
			code = d.cmds.WaitForFences(d.handle, 1, fence, 1, uint64(200*time.Microsecond))
		}
		switch code {
		case vk.Success:
			if err := d.land(); err != nil {
				return err
			}
			start, tries = time.Now(), -1
		case vk.NotReady, vk.Timeout:
			if time.Since(start) > hangTime {
				d.hung = true
				return &Error{"waiting for the GPU", vk.ErrorDeviceLost}
			}
			runtime.Gosched()
		default:
			return check("waiting for the GPU", code)
		}
	}
	return nil
}
