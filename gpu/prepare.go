package gpu

import (
	"runtime"
	"sync"
)

// Source is a kernel to compile: the text of NewPipeline or the module of
// NewModule.
type Source struct {
	Label  string
	WGSL   string
	Module *Module // instead of WGSL
}

// Prepare compiles kernels side by side on all processors, so that NewPipeline and
// NewModule find them made. A driver takes a few tenths of a second for a large
// kernel, and a tuner asks for dozens. What cannot be compiled is left to those two
// to report. Where a driver takes one kernel at a time, Prepare does nothing.
func (d *Device) Prepare(list []Source) {
	maker, ok := d.drv.(moduleDriver)
	if !ok || d.use("preparing kernels") != nil {
		return
	}
	jobs, seen := []*prepareJob{}, map[string]bool{}
	for _, s := range list {
		if j := d.prepareJob(maker, s); j != nil && !seen[j.key] {
			jobs, seen[j.key] = append(jobs, j), true
		}
	}
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, j := range jobs {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			defer rescue(j.label, &j.err)
			j.handle, j.err = j.compile()
		})
	}
	all.Wait()
	for _, j := range jobs {
		if j.err == nil {
			d.nextID++
			d.pipelines[j.key] = &Pipeline{label: j.label, slots: j.slots, id: d.nextID, handle: j.handle}
		}
	}
}

// prepareJob is a kernel on its way.
type prepareJob struct {
	key, label string
	slots      []Slot
	compile    func() (any, error)
	handle     any
	err        error
}

// prepareJob returns nil for a kernel that is made already, or that NewPipeline will
// refuse.
func (d *Device) prepareJob(maker moduleDriver, s Source) *prepareJob {
	j := &prepareJob{key: s.WGSL, label: s.Label}
	if m := s.Module; m != nil {
		j.key, j.slots = m.key(), append([]Slot(nil), m.Slots...)
		j.compile = func() (any, error) { return maker.newModule(s.Label, *m) }
	} else {
		entry, err := findEntry(s.WGSL)
		if err != nil {
			return nil
		}
		if j.slots, err = findSlots(s.WGSL); err != nil {
			return nil
		}
		j.compile = func() (any, error) { return d.drv.newPipeline(s.Label, s.WGSL, entry, j.slots) }
	}
	if _, made := d.pipelines[j.key]; made || d.limits.checkSlots(j.slots) != nil {
		return nil
	}
	return j
}
