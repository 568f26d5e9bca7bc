//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"unsafe"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// halPipeline is a compute pipeline and what it stands on.
type halPipeline struct {
	module   hal.ShaderModule
	slots    hal.BindGroupLayout
	layout   hal.PipelineLayout
	pipeline hal.ComputePipeline
}

func (h *halDriver) newBuffer(label string, size uint64, uniform bool) (any, error) {
	usage := gputypes.BufferUsageStorage | gputypes.BufferUsageCopySrc | gputypes.BufferUsageCopyDst
	if uniform {
		usage |= gputypes.BufferUsageUniform
	}
	b, err := h.dev.CreateBuffer(&hal.BufferDescriptor{Label: label, Size: size, Usage: usage})
	if err != nil {
		return nil, classify(err)
	}
	// Memory comes back from earlier buffers; WebGPU promises zeros.
	if err := h.clear(b, 0, size); err != nil {
		h.dev.DestroyBuffer(b)
		return nil, err
	}
	return b, nil
}

func (h *halDriver) freeBuffer(buffer any) { h.dev.DestroyBuffer(buffer.(hal.Buffer)) }

func (h *halDriver) newPipeline(label, source, entry string, slots []Slot) (any, error) {
	p := &halPipeline{}
	err := h.buildPipeline(p, label, source, entry, slots)
	if err != nil {
		h.freePipeline(p)
		if err = classify(err); isShaderFault(err) {
			err = newShaderError(label, h.name, source, err.Error())
		}
		return nil, err
	}
	return p, nil
}

// buildPipeline fills p step by step; on an error p holds what was made.
func (h *halDriver) buildPipeline(p *halPipeline, label, source, entry string, slots []Slot) (err error) {
	compiled, err := h.compile(source, entry, slots)
	if err != nil {
		return err
	}
	p.module, err = h.dev.CreateShaderModule(&hal.ShaderModuleDescriptor{Label: label, Source: compiled})
	if err != nil {
		return err
	}
	entries := make([]gputypes.BindGroupLayoutEntry, len(slots))
	for i, s := range slots {
		entries[i] = gputypes.BindGroupLayoutEntry{
			Binding:    uint32(i),
			Visibility: gputypes.ShaderStageCompute,
			Buffer:     &gputypes.BufferBindingLayout{Type: layoutType(s.Kind)},
		}
	}
	p.slots, err = h.dev.CreateBindGroupLayout(&hal.BindGroupLayoutDescriptor{Label: label, Entries: entries})
	if err != nil {
		return err
	}
	p.layout, err = h.dev.CreatePipelineLayout(&hal.PipelineLayoutDescriptor{Label: label, BindGroupLayouts: []hal.BindGroupLayout{p.slots}})
	if err != nil {
		return err
	}
	p.pipeline, err = h.dev.CreateComputePipeline(&hal.ComputePipelineDescriptor{
		Label: label, Layout: p.layout,
		Compute: hal.ComputeState{Module: p.module, EntryPoint: entry},
	})
	return err
}

func layoutType(k SlotKind) gputypes.BufferBindingType {
	switch k {
	case ReadOnly:
		return gputypes.BufferBindingTypeReadOnlyStorage
	case ReadWrite:
		return gputypes.BufferBindingTypeStorage
	}
	return gputypes.BufferBindingTypeUniform
}

func (h *halDriver) freePipeline(pipeline any) {
	p := pipeline.(*halPipeline)
	if p.pipeline != nil {
		h.dev.DestroyComputePipeline(p.pipeline)
	}
	if p.layout != nil {
		h.dev.DestroyPipelineLayout(p.layout)
	}
	if p.slots != nil {
		h.dev.DestroyBindGroupLayout(p.slots)
	}
	if p.module != nil {
		h.dev.DestroyShaderModule(p.module)
	}
	*p = halPipeline{}
}

func (h *halDriver) newGroup(label string, pipeline any, ranges []driverRange) (any, error) {
	entries := make([]gputypes.BindGroupEntry, len(ranges))
	for i, r := range ranges {
		entries[i] = gputypes.BindGroupEntry{Binding: uint32(i), Resource: gputypes.BufferBinding{
			Buffer: r.buffer.(hal.Buffer).NativeHandle(), Offset: r.offset, Size: r.size,
		}}
	}
	g, err := h.dev.CreateBindGroup(&hal.BindGroupDescriptor{Label: label, Layout: pipeline.(*halPipeline).slots, Entries: entries})
	if err != nil {
		return nil, classify(err)
	}
	return g, nil
}

func (h *halDriver) freeGroup(group any) { h.dev.DestroyBindGroup(group.(hal.BindGroup)) }

const (
	chunkBytes   = 4 << 20  // one staging buffer for uploads
	maxChunks    = 8        // of them
	maxReadBytes = 16 << 20 // largest staging buffer for downloads
)

// chunk is a staging buffer that the host sees at memory.
type chunk struct {
	buffer   hal.Buffer
	memory   []byte
	coherent bool
	used     int    // bytes taken by the batch below
	batch    uint64 // last batch that uses it
}

// newChunk makes a staging buffer. On Vulkan, asking for reads and writes
// gives memory that the CPU caches: copies are several times as fast as with
// the write-combined memory of an upload heap. DirectX 12 allows only one.
func (h *halDriver) newChunk(size uint64, usage gputypes.BufferUsage) (*chunk, error) {
	if !h.splitAfterCopy {
		usage = gputypes.BufferUsageMapRead | gputypes.BufferUsageMapWrite |
			gputypes.BufferUsageCopySrc | gputypes.BufferUsageCopyDst
	}
	b, err := h.dev.CreateBuffer(&hal.BufferDescriptor{Label: "staging", Size: size, Usage: usage})
	if err != nil {
		return nil, classify(err)
	}
	m, err := h.dev.MapBuffer(b, 0, size)
	if err != nil {
		h.dev.DestroyBuffer(b)
		return nil, classify(err)
	}
	return &chunk{buffer: b, memory: unsafe.Slice((*byte)(m.Ptr), size), coherent: m.IsCoherent}, nil
}

// flush makes host writes visible to the GPU, invalidate the other way round.
func (h *halDriver) flush(c *chunk) error {
	if c.coherent {
		return nil
	}
	return classify(h.dev.UnmapBuffer(c.buffer))
}

func (h *halDriver) invalidate(c *chunk) error {
	if c.coherent {
		return nil
	}
	_, err := h.dev.MapBuffer(c.buffer, 0, uint64(len(c.memory)))
	return classify(err)
}

// uploadChunk returns a staging buffer with room: the one in use, one that the
// GPU is done with, a new one, or after a wait the oldest.
func (h *halDriver) uploadChunk() (*chunk, error) {
	if n := len(h.up); n > 0 {
		c := h.up[n-1]
		if c.batch <= h.finished {
			c.used = 0
		}
		if c.used < chunkBytes {
			return c, nil
		}
	}
	if len(h.up) > 0 && h.up[0].batch > h.done() && len(h.up) == maxChunks {
		if err := h.wait(); err != nil {
			return nil, err
		}
	}
	if len(h.up) > 0 && h.up[0].batch <= h.finished {
		c := h.up[0]
		h.up = append(append(h.up[:0], h.up[1:]...), c)
		c.used = 0
		return c, nil
	}
	c, err := h.newChunk(chunkBytes, gputypes.BufferUsageMapWrite|gputypes.BufferUsageCopySrc)
	if err != nil {
		return nil, err
	}
	h.up = append(h.up, c)
	return c, nil
}

func (h *halDriver) upload(buffer any, offset uint64, data []byte, _ bool) error {
	for len(data) > 0 {
		c, err := h.uploadChunk()
		if err != nil {
			return err
		}
		n := copy(c.memory[c.used:], data)
		if err := h.flush(c); err != nil {
			return err
		}
		if err := h.copyBuffer(buffer, offset, c.buffer, uint64(c.used), uint64(n)); err != nil {
			return err
		}
		c.used, c.batch = c.used+(n+15)&^15, h.pending()
		data, offset = data[n:], offset+uint64(n)
		if c.used >= chunkBytes {
			if err := h.submit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readChunk returns the staging buffer for downloads, grown to n bytes or the
// most there is.
func (h *halDriver) readChunk(n int) (*chunk, error) {
	size := 64 << 10
	for size < min(n, maxReadBytes) {
		size *= 2
	}
	if h.down != nil && len(h.down.memory) >= size {
		return h.down, nil
	}
	c, err := h.newChunk(uint64(size), gputypes.BufferUsageMapRead|gputypes.BufferUsageCopyDst)
	if err != nil {
		return nil, err
	}
	if h.down != nil {
		h.dev.DestroyBuffer(h.down.buffer) // every download waits, so it is free
	}
	h.down = c
	return c, nil
}

func (h *halDriver) download(reads []driverRead) error {
	total := 0
	for _, r := range reads {
		total += len(r.dst)
	}
	c, err := h.readChunk(total)
	if err != nil {
		return err
	}
	var parts [][]byte // what the staging buffer holds, in order
	used := 0
	for _, r := range reads {
		for len(r.dst) > 0 {
			n := min(len(r.dst), len(c.memory)-used)
			if err := h.copyBuffer(c.buffer, uint64(used), r.buffer, r.offset, uint64(n)); err != nil {
				return err
			}
			parts = append(parts, r.dst[:n])
			r.dst, r.offset, used = r.dst[n:], r.offset+uint64(n), used+n
			if used == len(c.memory) {
				if err := h.fetch(c, parts); err != nil {
					return err
				}
				parts, used = parts[:0], 0
			}
		}
	}
	return h.fetch(c, parts)
}

// fetch waits and copies the staging buffer to where its parts belong.
func (h *halDriver) fetch(c *chunk, parts [][]byte) error {
	if err := h.wait(); err != nil {
		return err
	}
	if err := h.invalidate(c); err != nil {
		return err
	}
	from := c.memory
	for _, p := range parts {
		from = from[copy(p, from):]
	}
	return nil
}
