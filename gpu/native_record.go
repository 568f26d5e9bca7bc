//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"runtime"
	"time"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// maxFlying bounds how many batches the host may be ahead of the GPU.
const maxFlying = 32

// pooled is implemented by encoders that keep their command pool between
// batches (Vulkan).
type pooled interface{ SetPoolManaged(bool) }

// begin opens a command list if none is open.
func (h *halDriver) begin() error {
	if h.enc != nil {
		return nil
	}
	var enc hal.CommandEncoder
	if n := len(h.idle); n > 0 {
		enc, h.idle = h.idle[n-1], h.idle[:n-1]
	} else {
		var err error
		if enc, err = h.dev.CreateCommandEncoder(&hal.CommandEncoderDescriptor{Label: "tezgah"}); err != nil {
			return classify(err)
		}
		if p, ok := enc.(pooled); ok {
			p.SetPoolManaged(true)
		}
	}
	if err := enc.BeginEncoding("tezgah"); err != nil {
		h.idle = append(h.idle, enc)
		return classify(err)
	}
	h.enc = enc
	return nil
}

// beginPass opens a compute pass if none is open.
func (h *halDriver) beginPass() error {
	if h.pass != nil {
		return nil
	}
	if h.copied && h.splitAfterCopy {
		if err := h.submit(); err != nil {
			return err
		}
	}
	if err := h.begin(); err != nil {
		return err
	}
	h.pass = h.enc.BeginComputePass(h.timedPass())
	h.lastPipeline, h.lastGroup = nil, nil
	return nil
}

// endPass closes the compute pass; its writes are visible to copies then.
func (h *halDriver) endPass() {
	if h.pass != nil {
		h.pass.End()
		h.pass = nil
	}
}

func (h *halDriver) dispatch(pipeline, group any, x, y, z uint32) error {
	if err := h.beginPass(); err != nil {
		return err
	}
	p, g := pipeline.(*halPipeline), group.(hal.BindGroup)
	if p != h.lastPipeline {
		h.pass.SetPipeline(p.pipeline)
		h.lastPipeline, h.lastGroup = p, nil
	}
	if g != h.lastGroup {
		h.pass.SetBindGroup(0, g, nil)
		h.lastGroup = g
	}
	h.pass.Dispatch(x, y, z)
	h.afterTimed()
	return nil
}

// beginCopy prepares for copy and fill commands.
func (h *halDriver) beginCopy() error {
	h.endPass()
	if err := h.begin(); err != nil {
		return err
	}
	h.copied = true
	return nil
}

// afterCopy makes what was written to dst visible to all that follows.
func (h *halDriver) afterCopy(dst hal.Buffer) {
	if h.splitAfterCopy {
		return
	}
	h.enc.TransitionBuffers([]hal.BufferBarrier{{Buffer: dst, Usage: hal.BufferUsageTransition{
		OldUsage: gputypes.BufferUsageCopyDst,
		NewUsage: gputypes.BufferUsageStorage | gputypes.BufferUsageUniform | gputypes.BufferUsageCopySrc | gputypes.BufferUsageCopyDst,
	}}})
}

func (h *halDriver) copyBuffer(dst any, dstOffset uint64, src any, srcOffset, n uint64) error {
	if err := h.beginCopy(); err != nil {
		return err
	}
	to := dst.(hal.Buffer)
	h.enc.CopyBufferToBuffer(src.(hal.Buffer), to, []hal.BufferCopy{{SrcOffset: srcOffset, DstOffset: dstOffset, Size: n}})
	h.afterCopy(to)
	return nil
}

// zeroBytes is the size of the buffer of zeros.
const zeroBytes = 1 << 20

func (h *halDriver) clear(buffer any, offset, n uint64) error {
	if h.clearByCopy {
		return h.copyZeros(buffer, offset, n)
	}
	if err := h.beginCopy(); err != nil {
		return err
	}
	b := buffer.(hal.Buffer)
	h.enc.ClearBuffer(b, offset, n)
	h.afterCopy(b)
	return nil
}

// copyZeros clears by copying from a buffer that was zero from the start.
func (h *halDriver) copyZeros(buffer any, offset, n uint64) error {
	if h.zeros == nil {
		z, err := h.dev.CreateBuffer(&hal.BufferDescriptor{Label: "zeros", Size: zeroBytes,
			Usage: gputypes.BufferUsageCopySrc | gputypes.BufferUsageCopyDst})
		if err != nil {
			return classify(err)
		}
		h.zeros = z
		if err := h.upload(z, 0, make([]byte, zeroBytes), true); err != nil {
			return err
		}
	}
	for n > 0 {
		part := min(n, zeroBytes)
		if err := h.copyBuffer(buffer, offset, h.zeros, 0, part); err != nil {
			return err
		}
		offset, n = offset+part, n-part
	}
	return nil
}

func (h *halDriver) submit() error {
	if h.enc == nil {
		return nil
	}
	h.endPass()
	enc := h.enc
	h.enc, h.copied = nil, false
	cmd, err := enc.EndEncoding()
	if err != nil {
		enc.DiscardEncoding()
		enc.ResetAll(nil)
		h.idle = append(h.idle, enc)
		return classify(err)
	}
	index, err := h.queue.Submit([]hal.CommandBuffer{cmd})
	if err != nil {
		h.idle = append(h.idle, enc)
		return classify(err)
	}
	h.batch++
	h.flying = append(h.flying, flight{h.batch, index, enc, cmd})
	return h.waitUntilFlying(maxFlying)
}

func (h *halDriver) pending() uint64 {
	if h.enc != nil {
		return h.batch + 1
	}
	return h.batch
}

func (h *halDriver) done() uint64 {
	if len(h.flying) > 0 {
		h.land(h.queue.PollCompleted())
	}
	return h.finished
}

// land takes back the encoders of batches up to the queue's index.
func (h *halDriver) land(index uint64) {
	n := 0
	for n < len(h.flying) && h.flying[n].index <= index {
		f := h.flying[n]
		f.enc.ResetAll([]hal.CommandBuffer{f.cmd})
		h.idle = append(h.idle, f.enc)
		h.finished = f.batch
		n++
	}
	h.flying = append(h.flying[:0], h.flying[n:]...)
}

// waitUntilFlying waits until at most n batches are in flight. The hardware
// layer can only wait for all work, so this looks again after short sleeps.
func (h *halDriver) waitUntilFlying(n int) error {
	for tries := 0; len(h.flying) > n; tries++ {
		h.land(h.queue.PollCompleted())
		switch {
		case len(h.flying) <= n:
		case tries < 20:
			runtime.Gosched()
		case tries < 200_000: // about 20 seconds
			time.Sleep(100 * time.Microsecond)
		default:
			return h.idleAll() // a hung or lost device says so here
		}
	}
	return nil
}

func (h *halDriver) wait() error {
	if err := h.submit(); err != nil {
		return err
	}
	return h.idleAll()
}

// idleAll waits for all submitted work.
func (h *halDriver) idleAll() error {
	if len(h.flying) == 0 {
		return nil
	}
	if err := h.dev.WaitIdle(); err != nil {
		return classify(err)
	}
	h.land(h.flying[len(h.flying)-1].index)
	return nil
}
