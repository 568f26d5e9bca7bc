//go:build js && wasm

package gpu

import (
	"errors"
	"fmt"
	"strings"
	"syscall/js"
)

// The browser driver speaks WebGPU through syscall/js alone. Calls that wait
// (Open, NewBuffer, NewPipeline, Download, Wait) let the page's event loop run
// meanwhile; they must not be called from inside a js.FuncOf callback, which
// would wait for an event loop that waits for it: start a goroutine there.

// noAdapterHint is the advice for a browser without WebGPU.
const noAdapterHint = "  use a browser with WebGPU (Chrome or Edge 113, Safari 26, Firefox 141 or newer) over https or localhost, or --device cpu"

// adapterRequests are the ways to ask for an adapter; a browser gives one for
// each, often the same.
var adapterRequests = []map[string]any{
	{"powerPreference": "high-performance"},
	{"powerPreference": "low-power"},
	{"forceFallbackAdapter": true},
}

// platformAdapters lists the browser's adapters and what was looked at.
func platformAdapters(string) (s search) {
	gpu := js.Global().Get("navigator").Get("gpu")
	if gpu.IsUndefined() {
		return search{probed: []string{"navigator.gpu: missing in this browser or on this page"}}
	}
	seen := map[string]bool{}
	for _, request := range adapterRequests {
		a, err := await(gpu.Call("requestAdapter", request))
		if err != nil || !a.Truthy() {
			s.probed = append(s.probed, fmt.Sprintf("requestAdapter(%v): %s", request, reason(err)))
			continue
		}
		info := describe(a)
		s.probed = append(s.probed, fmt.Sprintf("requestAdapter(%v): %s", request, info.Name))
		if !seen[info.Name] {
			seen[info.Name] = true
			s.found = append(s.found, adapter{AdapterInfo: info, handle: request})
		}
	}
	return s
}

// otherWay finds nothing: a browser has one way to a GPU.
func otherWay(adapter) (adapter, bool) { return adapter{}, false }

func reason(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// describe reads what a GPUAdapter tells.
func describe(a js.Value) AdapterInfo {
	info := a.Get("info")
	var words []string
	for _, key := range []string{"vendor", "architecture", "device", "description"} {
		if v := info.Get(key); v.Type() == js.TypeString && v.String() != "" {
			words = append(words, v.String())
		}
	}
	name := strings.Join(words, " ")
	if name == "" {
		name = "WebGPU adapter"
	}
	kind := Unknown
	if info.Get("isFallbackAdapter").Truthy() || a.Get("isFallbackAdapter").Truthy() {
		kind = Software
	}
	return AdapterInfo{
		Name: name, Vendor: info.Get("vendor").String(), Kind: kind, Backend: "browser",
		Driver: browserName(js.Global().Get("navigator").Get("userAgent").String()),
		Limits: jsLimits(a.Get("limits")).cap(),
	}
}

// browsers are the marks of browsers in a user agent, each before those that
// it also bears.
var browsers = []struct{ mark, name string }{
	{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"HeadlessChrome/", "Chrome"}, {"Chrome/", "Chrome"}, {"Version/", "Safari"},
}

// browserName is a browser's name and main version; the user agent itself when
// it has no known mark.
func browserName(userAgent string) string {
	for _, b := range browsers {
		if _, after, ok := strings.Cut(userAgent, b.mark); ok {
			version, _, _ := strings.Cut(after, ".")
			return b.name + " " + version
		}
	}
	return userAgent
}

func jsLimits(l js.Value) Limits {
	n := func(key string) int { return l.Get(key).Int() }
	return Limits{
		BufferSize:      uint64(l.Get("maxBufferSize").Float()),
		BindingSize:     uint64(l.Get("maxStorageBufferBindingSize").Float()),
		UniformSize:     uint64(l.Get("maxUniformBufferBindingSize").Float()),
		StorageAlign:    uint64(n("minStorageBufferOffsetAlignment")),
		StorageBuffers:  n("maxStorageBuffersPerShaderStage"),
		UniformBuffers:  n("maxUniformBuffersPerShaderStage"),
		WorkgroupMemory: n("maxComputeWorkgroupStorageSize"),
		Invocations:     n("maxComputeInvocationsPerWorkgroup"),
		WorkgroupSizeX:  n("maxComputeWorkgroupSizeX"),
		WorkgroupSizeY:  n("maxComputeWorkgroupSizeY"),
		Workgroups:      uint32(n("maxComputeWorkgroupsPerDimension")),
	}
}

// required is what to ask of requestDevice so that it grants l.
func (l Limits) required() map[string]any {
	return map[string]any{
		"maxBufferSize":                     float64(l.BufferSize),
		"maxStorageBufferBindingSize":       float64(l.BindingSize),
		"maxUniformBufferBindingSize":       float64(l.UniformSize),
		"minStorageBufferOffsetAlignment":   float64(l.StorageAlign),
		"maxStorageBuffersPerShaderStage":   l.StorageBuffers,
		"maxUniformBuffersPerShaderStage":   l.UniformBuffers,
		"maxComputeWorkgroupStorageSize":    l.WorkgroupMemory,
		"maxComputeInvocationsPerWorkgroup": l.Invocations,
		"maxComputeWorkgroupSizeX":          l.WorkgroupSizeX,
		"maxComputeWorkgroupSizeY":          l.WorkgroupSizeY,
	}
}

// jsDriver is the browser driver.
type jsDriver struct {
	name          string // adapter and browser: for shader errors
	device, queue js.Value

	encoder, pass js.Value // undefined when not open
	lastPipeline  *jsPipeline
	lastGroup     *jsGroup

	batch   uint64 // number of the last submitted batch
	unknown int    // batches submitted since the last wait

	// Errors that WebGPU does not return from the call that made them: a scope
	// is always open, and each batch ends it and opens the next.
	lost      error    // set by the browser's promise
	reported  []error  // by scopes and events, not returned yet
	verdict   js.Value // promise that the last ended scope is in reported
	onVerdict js.Func
	handlers  []js.Func

	timing *jsTiming // nil when not timing

	scratch  js.Value // Uint8Array of chunkBytes for uploads
	written  int      // bytes uploaded since the last wait
	down     js.Value // staging buffer for downloads
	downSize int
}

// openDriver asks for the adapter again, because one may give a device only
// once, and for a device with these limits and all features kernels can use.
func openDriver(a adapter, l Limits) (driver, error) {
	got, err := await(js.Global().Get("navigator").Get("gpu").Call("requestAdapter", a.handle))
	if err != nil || !got.Truthy() {
		return nil, fmt.Errorf("%w: the browser no longer offers it: %s", ErrNoAdapter, reason(err))
	}
	var features []any
	for _, name := range []string{"shader-f16", "subgroups", "timestamp-query"} {
		if got.Get("features").Call("has", name).Bool() {
			features = append(features, name)
		}
	}
	device, err := await(got.Call("requestDevice", map[string]any{
		"label": "tezgah", "requiredFeatures": features, "requiredLimits": l.required(),
	}))
	if err != nil {
		return nil, err
	}
	d := &jsDriver{
		name: a.Name + " (" + a.Driver + ")", device: device, queue: device.Get("queue"),
		scratch: js.Global().Get("Uint8Array").New(chunkBytes),
	}
	d.listen()
	return d, nil
}

// listen keeps what the browser reports on its own: the loss of the device, the
// errors of scopes, and errors outside of them (of memory, or internal).
func (d *jsDriver) listen() {
	onLost := js.FuncOf(func(_ js.Value, args []js.Value) any {
		d.lost = fmt.Errorf("%w: %s: %s", ErrLost, args[0].Get("reason").String(), args[0].Get("message").String())
		return nil
	})
	onError := js.FuncOf(func(_ js.Value, args []js.Value) any {
		d.report(args[0].Get("error"))
		args[0].Call("preventDefault")
		return nil
	})
	d.onVerdict = js.FuncOf(func(_ js.Value, args []js.Value) any {
		if len(args) > 0 && args[0].Truthy() && d.lost == nil {
			d.report(args[0])
		}
		return nil
	})
	d.device.Get("lost").Call("then", onLost)
	d.device.Call("addEventListener", "uncapturederror", onError)
	d.handlers = []js.Func{onLost, onError, d.onVerdict}
	d.device.Call("pushErrorScope", "validation")
}

// report keeps the first errors; those after are most often their consequence.
func (d *jsDriver) report(e js.Value) {
	if len(d.reported) < 4 {
		d.reported = append(d.reported, jsError(e))
	}
}

// status returns what was reported since it was last asked.
func (d *jsDriver) status() error {
	if d.lost != nil {
		return d.lost
	}
	err := errors.Join(d.reported...)
	d.reported = nil
	return err
}

// jsError classifies a GPUError or an exception.
func jsError(v js.Value) error {
	name, message := v.Get("constructor").Get("name").String(), v.Get("message").String()
	switch name {
	case "GPUValidationError":
		return fmt.Errorf("%w: %s", ErrValidation, message)
	case "GPUOutOfMemoryError":
		return fmt.Errorf("%w: %s", ErrOutOfMemory, message)
	}
	return fmt.Errorf("%s: %s", name, message)
}

// await waits for a promise. A rejection is an error.
func await(promise js.Value) (js.Value, error) {
	type result struct {
		value js.Value
		err   error
	}
	done := make(chan result, 1)
	resolve := js.FuncOf(func(_ js.Value, args []js.Value) any {
		value := js.Undefined()
		if len(args) > 0 {
			value = args[0]
		}
		done <- result{value, nil}
		return nil
	})
	defer resolve.Release()
	reject := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- result{js.Undefined(), jsError(args[0])}
		return nil
	})
	defer reject.Release()
	promise.Call("then", resolve, reject)
	r := <-done
	return r.value, r.err
}

// scoped runs a call inside an error scope and returns the error it made.
func (d *jsDriver) scoped(filter string, call func()) error {
	d.device.Call("pushErrorScope", filter)
	call()
	e, err := await(d.device.Call("popErrorScope"))
	switch {
	case d.lost != nil:
		return d.lost
	case err != nil:
		return err
	case e.Truthy():
		return jsError(e)
	}
	return nil
}

// close destroys the device and waits until the browser says so, so that no
// handler is called after a program's end.
func (d *jsDriver) close() {
	if d.down.Truthy() {
		d.down.Call("destroy")
	}
	d.device.Call("removeEventListener", "uncapturederror", d.handlers[1])
	d.device.Call("destroy")
	_, _ = await(d.device.Get("lost"))
	if d.verdict.Truthy() {
		_, _ = await(d.verdict)
	}
	for _, h := range d.handlers {
		h.Release()
	}
}

// driverVersion adds nothing: the browser's version is in AdapterInfo.Driver.
func driverVersion() string { return "" }
