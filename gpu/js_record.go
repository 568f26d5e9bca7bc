//go:build js && wasm

package gpu

import (
	"syscall/js"
)

const (
	chunkBytes   = 4 << 20  // one upload call
	maxWritten   = 64 << 20 // bytes the browser may hold for uploads
	maxReadBytes = 16 << 20 // largest staging buffer for downloads
	maxUnknown   = 32       // batches the host may be ahead of the GPU
)

// GPUBufferUsage, GPUShaderStage and GPUMapMode bits.
const (
	usageMapRead  = 0x01
	usageCopySrc  = 0x04
	usageCopyDst  = 0x08
	usageUniform  = 0x40
	usageStorage  = 0x80
	stageCompute  = 4
	mapModeRead   = 1
	firstAndOnly  = 0 // index of the only bind group
	labelOfTezgah = "tezgah"
)

// jsPipeline is a pipeline and the description of its bind groups, which is
// filled anew for each: making the objects costs ten times as much.
type jsPipeline struct {
	pipeline  js.Value
	group     js.Value   // GPUBindGroupDescriptor
	resources []js.Value // the GPUBufferBindings in it
}

type jsGroup struct{ group js.Value }

func (d *jsDriver) newBuffer(label string, size uint64, uniform bool) (any, error) {
	usage := usageStorage | usageCopySrc | usageCopyDst
	if uniform {
		usage |= usageUniform
	}
	var b js.Value
	err := d.scoped("out-of-memory", func() {
		b = d.device.Call("createBuffer", map[string]any{"label": label, "size": float64(size), "usage": usage})
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (d *jsDriver) freeBuffer(buffer any) { buffer.(js.Value).Call("destroy") }

func (d *jsDriver) newPipeline(label, source, entry string, slots []Slot) (any, error) {
	var module js.Value
	err := d.scoped("validation", func() {
		module = d.device.Call("createShaderModule", map[string]any{"label": label, "code": source})
	})
	if d.lost != nil {
		return nil, d.lost
	}
	if err != nil {
		return nil, d.shaderError(label, source, module, err)
	}
	entries := make([]any, len(slots))
	for i, s := range slots {
		entries[i] = map[string]any{"binding": i, "visibility": stageCompute, "buffer": map[string]any{"type": jsLayoutType(s.Kind)}}
	}
	layout := d.device.Call("createBindGroupLayout", map[string]any{"label": label, "entries": entries})
	p, err := await(d.device.Call("createComputePipelineAsync", map[string]any{
		"label":   label,
		"layout":  d.device.Call("createPipelineLayout", map[string]any{"label": label, "bindGroupLayouts": []any{layout}}),
		"compute": map[string]any{"module": module, "entryPoint": entry},
	}))
	switch {
	case d.lost != nil:
		return nil, d.lost
	case err != nil:
		return nil, newShaderError(label, d.name, source, err.Error())
	}
	return describeGroup(label, p, layout, len(slots)), nil
}

// describeGroup makes the description of bind groups with n buffers.
func describeGroup(label string, pipeline, layout js.Value, n int) *jsPipeline {
	p := &jsPipeline{pipeline: pipeline, resources: make([]js.Value, n)}
	entries := make([]any, n)
	for i := range entries {
		p.resources[i] = js.ValueOf(map[string]any{})
		entries[i] = map[string]any{"binding": i, "resource": p.resources[i]}
	}
	p.group = js.ValueOf(map[string]any{"label": label, "layout": layout, "entries": entries})
	return p
}

// shaderError asks the browser for the compiler's first message.
func (d *jsDriver) shaderError(label, source string, module js.Value, err error) error {
	message := err.Error()
	if info, e := await(module.Call("getCompilationInfo")); e == nil {
		list := info.Get("messages")
		for i := range list.Length() {
			m := list.Index(i)
			if m.Get("type").String() != "error" {
				continue
			}
			e := newShaderError(label, d.name, source, m.Get("message").String())
			e.Line = m.Get("lineNum").Int()
			e.Excerpt = excerpt(source, e.Line)
			return e
		}
	}
	return newShaderError(label, d.name, source, message)
}

func jsLayoutType(k SlotKind) string {
	return map[SlotKind]string{ReadOnly: "read-only-storage", ReadWrite: "storage", UniformSlot: "uniform"}[k]
}

// Pipelines and bind groups have no destroy; dropping them is enough.
func (d *jsDriver) freePipeline(any) {}
func (d *jsDriver) freeGroup(any)    {}

func (d *jsDriver) newGroup(_ string, pipeline any, ranges []driverRange) (any, error) {
	p := pipeline.(*jsPipeline)
	for i, r := range ranges {
		p.resources[i].Set("buffer", r.buffer.(js.Value))
		p.resources[i].Set("offset", float64(r.offset))
		p.resources[i].Set("size", float64(r.size))
	}
	return &jsGroup{d.device.Call("createBindGroup", p.group)}, nil
}

// begin opens a command encoder if none is open.
func (d *jsDriver) begin() {
	if d.encoder.IsUndefined() {
		d.encoder = d.device.Call("createCommandEncoder", map[string]any{"label": labelOfTezgah})
	}
}

func (d *jsDriver) beginPass() {
	if d.pass.IsUndefined() {
		d.begin()
		d.pass = d.encoder.Call("beginComputePass", d.timedPass())
		d.lastPipeline, d.lastGroup = nil, nil
	}
}

func (d *jsDriver) endPass() {
	if !d.pass.IsUndefined() {
		d.pass.Call("end")
		d.pass = js.Undefined()
	}
}

func (d *jsDriver) dispatch(pipeline, group any, x, y, z uint32) error {
	d.beginPass()
	p, g := pipeline.(*jsPipeline), group.(*jsGroup)
	if p != d.lastPipeline {
		d.pass.Call("setPipeline", p.pipeline)
		d.lastPipeline, d.lastGroup = p, nil
	}
	if g != d.lastGroup {
		d.pass.Call("setBindGroup", firstAndOnly, g.group)
		d.lastGroup = g
	}
	d.pass.Call("dispatchWorkgroups", x, y, z)
	d.afterTimed()
	return nil
}

func (d *jsDriver) copyBuffer(dst any, dstOffset uint64, src any, srcOffset, n uint64) error {
	d.endPass()
	d.begin()
	d.encoder.Call("copyBufferToBuffer", src.(js.Value), float64(srcOffset), dst.(js.Value), float64(dstOffset), float64(n))
	return nil
}

func (d *jsDriver) clear(buffer any, offset, n uint64) error {
	d.endPass()
	d.begin()
	d.encoder.Call("clearBuffer", buffer.(js.Value), float64(offset), float64(n))
	return nil
}

// upload writes through the queue, which is earlier than anything recorded and
// not submitted: so that is submitted first, unless nothing of it is touched.
func (d *jsDriver) upload(buffer any, offset uint64, data []byte, fresh bool) error {
	if !fresh {
		if err := d.submit(); err != nil {
			return err
		}
	}
	for len(data) > 0 {
		n := js.CopyBytesToJS(d.scratch, data)
		d.queue.Call("writeBuffer", buffer.(js.Value), float64(offset), d.scratch, 0, n)
		data, offset, d.written = data[n:], offset+uint64(n), d.written+n
		if d.written >= maxWritten {
			if err := d.idle(); err != nil {
				return err
			}
		}
	}
	return d.status()
}

func (d *jsDriver) download(reads []driverRead) error {
	total := 0
	for _, r := range reads {
		total += len(r.dst)
	}
	if err := d.growDown(total); err != nil {
		return err
	}
	var parts [][]byte // what the staging buffer holds, in order
	used := 0
	for _, r := range reads {
		for len(r.dst) > 0 {
			n := min(len(r.dst), d.downSize-used)
			if err := d.copyBuffer(d.down, uint64(used), r.buffer, r.offset, uint64(n)); err != nil {
				return err
			}
			parts = append(parts, r.dst[:n])
			r.dst, r.offset, used = r.dst[n:], r.offset+uint64(n), used+n
			if used == d.downSize {
				if err := d.fetch(parts, used); err != nil {
					return err
				}
				parts, used = parts[:0], 0
			}
		}
	}
	if used == 0 {
		return nil
	}
	return d.fetch(parts, used)
}

// growDown makes the staging buffer for downloads hold n bytes, or the most.
func (d *jsDriver) growDown(n int) error {
	size := 64 << 10
	for size < min(n, maxReadBytes) {
		size *= 2
	}
	if d.downSize >= size {
		return nil
	}
	if d.down.Truthy() {
		d.down.Call("destroy") // every download waits, so it is free
		d.downSize = 0
	}
	err := d.scoped("out-of-memory", func() {
		d.down = d.device.Call("createBuffer", map[string]any{
			"label": "staging", "size": size, "usage": usageMapRead | usageCopyDst,
		})
	})
	if err == nil {
		d.downSize = size
	}
	return err
}

// fetch waits for the staging buffer and copies it to where its parts belong.
func (d *jsDriver) fetch(parts [][]byte, n int) error {
	d.flush()
	_, err := await(d.down.Call("mapAsync", mapModeRead, 0, n))
	_, _ = await(d.verdict)
	if e := d.status(); e != nil {
		if err == nil {
			d.down.Call("unmap")
		}
		return e
	}
	if err != nil {
		return err
	}
	memory := d.down.Call("getMappedRange", 0, n)
	at := 0
	for _, p := range parts {
		js.CopyBytesToGo(p, js.Global().Get("Uint8Array").New(memory, at, len(p)))
		at += len(p)
	}
	d.down.Call("unmap")
	d.unknown, d.written = 0, 0
	return nil
}

// flush hands over what is recorded. Its validation errors are known once the
// promise in d.verdict is.
func (d *jsDriver) flush() {
	defer d.nextScope()
	if d.encoder.IsUndefined() {
		return
	}
	d.endPass()
	commands := d.encoder.Call("finish")
	d.encoder = js.Undefined()
	d.queue.Call("submit", []any{commands})
	d.batch++
	d.unknown++
}

func (d *jsDriver) submit() error {
	d.flush()
	if d.unknown >= maxUnknown {
		return d.idle()
	}
	return d.status()
}

func (d *jsDriver) wait() error {
	d.flush()
	return d.idle()
}

// nextScope ends the error scope of a batch and begins that of the next.
func (d *jsDriver) nextScope() {
	d.verdict = d.device.Call("popErrorScope").Call("then", d.onVerdict, d.onVerdict)
	d.device.Call("pushErrorScope", "validation")
}

// idle waits for all submitted work; what went wrong in it is known then.
func (d *jsDriver) idle() error {
	d.unknown, d.written = 0, 0
	d.nextScope()
	_, err := await(d.queue.Call("onSubmittedWorkDone"))
	if d.lost == nil {
		_, _ = await(d.verdict)
	}
	if e := d.status(); e != nil {
		return e
	}
	return err
}

func (d *jsDriver) pending() uint64 {
	if d.encoder.IsUndefined() {
		return d.batch
	}
	return d.batch + 1
}

// done is the last submitted batch: the browser itself keeps what submitted
// work uses.
func (d *jsDriver) done() uint64 { return d.batch }
