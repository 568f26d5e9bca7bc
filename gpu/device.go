package gpu

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Options say which GPU to open and what not to use of it.
type Options struct {
	// Device is "gpu" or "" (the best GPU that is not software), "gpu:N"
	// (number N of Adapters) or a part of an adapter's name. A software adapter
	// is opened only when its number or name is asked for.
	Device string
	// Backend is how the GPU is reached: "vulkan" straight on Vulkan, "webgpu"
	// through the WebGPU layer (Vulkan, Metal, DirectX 12). "" takes Vulkan
	// where it is there, unless the variable TEZGAH_BACKEND says otherwise. A
	// browser has only its own.
	Backend string
	// ForceDefaultLimits lowers the device to WebGPU's default limits.
	ForceDefaultLimits bool
	// DisableF16 and DisableSubgroups act as if the probe had failed.
	DisableF16       bool
	DisableSubgroups bool
	// BatchSize is the number of dispatches after which recorded work is handed
	// to the GPU without a Submit. Zero means 64.
	BatchSize int
}

// Features are what kernels may use on this device, as probe kernels found.
type Features struct {
	F16          bool // f16 in storage buffers and arithmetic
	Subgroups    bool // subgroupAdd, subgroupMax and the like
	SubgroupSize int  // threads per subgroup in the probe, 0 without subgroups
}

// Device is an open GPU. One goroutine at a time may use it.
type Device struct {
	info     AdapterInfo
	limits   Limits
	features Features
	notice   string
	drv      driver

	lost   atomic.Pointer[error]
	closed bool

	buffers   map[*Buffer]struct{}
	nextID    uint64 // of buffers and pipelines; 0 is never used
	liveBytes atomic.Int64
	peakBytes atomic.Int64

	pipelines map[string]*Pipeline
	groups    groupCache
	uniforms  uniformCache
	garbage   []garbage

	batchSize int
	recorded  int    // dispatches since the last hand-over
	handed    uint64 // hand-overs
	entries   []driverRange
	timing    *timing // nil when not timing
}

// Open opens a GPU within its limits and probes what it can do. One that does not
// open straight on Vulkan is tried through the WebGPU layer, unless Backend says
// otherwise. The error wraps ErrNoAdapter when there is none to open. Print Notice
// to the user.
func Open(o Options) (*Device, error) {
	all, err := listAdapters(o.Backend)
	if err != nil {
		return nil, err
	}
	a, err := chooseAdapter(all, o.Device)
	if err != nil {
		return nil, err
	}
	return openEither(a, backendChoice(o.Backend) == "", otherWay, o.open)
}

// openEither opens an adapter, or, where that fails and the choice of a backend is
// free, the same one another way.
func openEither(a adapter, free bool, other func(adapter) (adapter, bool), open func(adapter) (*Device, error)) (*Device, error) {
	d, err := open(a)
	if err == nil || !free {
		return d, err
	}
	b, ok := other(a)
	if !ok {
		return nil, err
	}
	b.Index = a.Index
	d, second := open(b)
	if second != nil {
		return nil, fmt.Errorf("%w; nor%s: %v", err, BackendThrough, second)
	}
	d.notice = joinLines(fmt.Sprintf("NOTE: %s is reached%s, without matrix units: %v", a.Name, BackendThrough, err), d.notice)
	return d, nil
}

// open probes an adapter and opens it.
func (o Options) open(a adapter) (*Device, error) {
	limits := a.Limits
	if o.ForceDefaultLimits {
		limits = limits.within(DefaultLimits())
		limits.StorageAlign = DefaultLimits().StorageAlign
	}
	features, probeNotice, err := probe(a)
	if err != nil {
		return nil, err
	}
	if o.DisableF16 {
		features.F16 = false
	}
	if o.DisableSubgroups {
		features.Subgroups, features.SubgroupSize = false, 0
	}
	d, err := openAdapter(a, limits)
	if err != nil {
		return nil, err
	}
	d.features = features
	if o.BatchSize > 0 {
		d.batchSize = o.BatchSize
	}
	d.notice = joinLines(softwareNotice(a.AdapterInfo), layeredNotice(a.AdapterInfo), probeNotice)
	return d, nil
}

// openAdapter makes a Device without features.
func openAdapter(a adapter, limits Limits) (d *Device, err error) {
	defer rescue("open "+a.Name, &err)
	drv, err := openDriver(a, limits)
	if err != nil {
		return nil, fmt.Errorf("gpu: open %s: %w", a.Name, err)
	}
	return newDevice(a.AdapterInfo, limits, drv), nil
}

// newDevice makes a Device around a driver.
func newDevice(info AdapterInfo, limits Limits, drv driver) *Device {
	d := &Device{
		info:      info,
		limits:    limits,
		drv:       drv,
		buffers:   map[*Buffer]struct{}{},
		pipelines: map[string]*Pipeline{},
		batchSize: 64,
		entries:   make([]driverRange, 0, maxSlots),
	}
	d.groups.init()
	d.uniforms.init()
	return d
}

// softwareNotice is the loud line for a software adapter.
func softwareNotice(a AdapterInfo) string {
	if a.Kind != Software {
		return ""
	}
	return fmt.Sprintf("WARNING: %s is a SOFTWARE adapter: the CPU imitates a GPU. It is for testing; --device cpu is much faster.", a.Name)
}

// layeredNotice is the line for an adapter that should be reached another way.
func layeredNotice(a AdapterInfo) string {
	if a.Note == "" {
		return ""
	}
	return fmt.Sprintf("NOTE: %s is reached%s, without matrix units: %s", a.Name, BackendThrough, a.Note)
}

// joinLines joins the lines that are not empty.
func joinLines(lines ...string) string {
	all := ""
	for _, line := range lines {
		if line != "" && all != "" {
			all += "\n"
		}
		all += line
	}
	return all
}

// Info describes the adapter behind the device.
func (d *Device) Info() AdapterInfo { return d.info }

// Limits are the device's limits; every call that exceeds one fails.
func (d *Device) Limits() Limits { return d.limits }

// Features are what kernels may use.
func (d *Device) Features() Features { return d.features }

// Notice is what the user should be told about this device, "" if nothing.
func (d *Device) Notice() string { return d.notice }

// Lost tells whether the device is gone; all calls fail with ErrLost then.
func (d *Device) Lost() bool { return d.lost.Load() != nil }

// Memory is what the device's buffers take, in bytes.
type Memory struct {
	Live    int64 // now
	Peak    int64 // at most since Open
	Buffers int   // number of buffers now
}

// Memory reports the bytes in buffers, those for uniforms included. Staging
// memory for transfers (at most 48 MiB) is not counted, nor what a driver
// rounds up.
func (d *Device) Memory() Memory {
	return Memory{Live: d.liveBytes.Load(), Peak: d.peakBytes.Load(), Buffers: len(d.buffers)}
}

// FreeBytes is the GPU memory that this process can still get, 0 where it is
// not known: through WebGPU, and from drivers that do not tell.
func (d *Device) FreeBytes() uint64 {
	if f, ok := d.drv.(interface{ freeBytes() uint64 }); ok && !d.closed && !d.Lost() {
		return f.freeBytes()
	}
	return 0
}

// Close waits for the GPU and frees everything that belongs to the device.
func (d *Device) Close() {
	if d.closed {
		return
	}
	var err error
	defer rescue("close", &err)
	if s, ok := d.drv.(interface{ settle() }); ok {
		s.settle()
	} else if !d.Lost() {
		_ = d.drv.wait()
	}
	d.groups.dropAll(d)
	for b := range d.buffers {
		b.Release()
	}
	for _, p := range d.pipelines {
		d.discard(func() { d.drv.freePipeline(p.handle) })
	}
	for _, g := range d.garbage {
		g.free()
	}
	d.garbage = nil
	d.closed = true
	d.drv.close()
}

// use checks that the device can be used, at the start of every call.
func (d *Device) use(what string) error {
	if d.closed {
		return fmt.Errorf("gpu: %s: the device is closed", what)
	}
	if e := d.lost.Load(); e != nil {
		return fmt.Errorf("gpu: %s: %w", what, *e)
	}
	return nil
}

// failed adds what was being done to a driver's error and notes a lost device.
func (d *Device) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if isLost(err) {
		d.lost.CompareAndSwap(nil, &err)
	}
	if errors.Is(err, ErrOutOfMemory) {
		return fmt.Errorf("gpu: %s: %w; %s", what, err, d.memoryState())
	}
	return fmt.Errorf("gpu: %s: %w", what, err)
}

// memoryState says where a GPU's memory is, after it ran out, and what to do.
func (d *Device) memoryState() string {
	const mebi = 1 << 20
	s := fmt.Sprintf("%.1f MiB are in this program's buffers", float64(d.liveBytes.Load())/mebi)
	if free := d.FreeBytes(); free > 0 {
		s += fmt.Sprintf(" and %.1f MiB free", float64(free)/mebi)
	}
	return s + ": close what else uses the GPU, or ask less of it"
}

// garbage is a resource that the GPU may still use.
type garbage struct {
	batch uint64 // free it once the driver's done reaches this
	free  func()
}

// discard frees a resource once all work recorded until now is done.
func (d *Device) discard(free func()) {
	d.garbage = append(d.garbage, garbage{d.drv.pending(), free})
}

// collect frees the garbage that the GPU is done with.
func (d *Device) collect() {
	if len(d.garbage) == 0 {
		return
	}
	done, n := d.drv.done(), 0
	for n < len(d.garbage) && d.garbage[n].batch <= done {
		d.garbage[n].free()
		n++
	}
	d.garbage = append(d.garbage[:0], d.garbage[n:]...)
}
