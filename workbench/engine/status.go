package engine

import (
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/train"
)

// status is GET /api/status.
func (s *Service) status(c *call) error {
	type preset struct {
		Name   string       `json:"name"`
		Params int          `json:"params"`
		Model  model.Config `json:"model"`
	}
	var presets []preset
	for _, name := range model.Presets() {
		m, err := model.Preset(name)
		if err != nil {
			return err
		}
		presets = append(presets, preset{name, m.NumParams(), m})
	}
	devices := s.opt.Devices()
	if devices == nil {
		devices = []Device{}
	}
	notices := append([]string{}, s.opt.Notices...)
	info, err := s.deviceInfo(s.opt.Device)
	if err != nil {
		notices = append(notices, "the device cannot be opened: "+err.Error())
	} else if info.notice != "" {
		notices = append(notices, info.notice)
	}
	threads := s.opt.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return c.json(map[string]any{
		"version": s.opt.Version, "place": s.opt.Place, "device": info.words, "devices": devices,
		"f16": info.limits.F16, "threads": threads, "free_memory": max(0, info.limits.FreeBytes), "presets": presets,
		"storage": map[string]any{"used": s.usedDisk(), "free": s.freeDisk(), "persistent": s.opt.Persistent == nil || s.opt.Persistent()},
		"notices": notices, "dir": s.opt.Dir, "default_device": s.opt.Device, "sample": s.opt.Sample != nil,
	})
}

// deviceInfo is what is known of a device from having opened it.
type deviceInfo struct {
	words    string // as the backend calls itself
	limits   op.Limits
	notice   string
	standIns map[string]*train.StandIn // for plans, by the precisions that were asked for
	at       time.Time
}

// devices remembers what was found out about devices.
type devices struct {
	mu    sync.Mutex
	known map[string]deviceInfo
	busy  map[string]bool // being looked at again
}

// How long an answer about a device is good: free memory changes, and opening a
// GPU takes a while.
const (
	cpuInfoAge = 5 * time.Second
	gpuInfoAge = 10 * time.Minute
)

// deviceInfo opens a device, looks at it and closes it again: at what it is, and, for
// each precision, at what plans have to know. What is known from before is the answer
// at once; when it is old, it is found out anew for the next time, because opening a
// device that computes can take a second.
func (s *Service) deviceInfo(id string, precisions ...string) (deviceInfo, error) {
	key, age := s.deviceKey(id), gpuInfoAge
	if key == "cpu" {
		age = cpuInfoAge
	}
	d := &s.devices
	d.mu.Lock()
	defer d.mu.Unlock()
	info, ok := d.known[key]
	all := slices.Sorted(maps.Keys(info.standIns))
	for _, p := range precisions {
		if info.standIns[p] == nil {
			ok, all = false, append(all, p)
		}
	}
	switch {
	case !ok:
		return s.lookAt(id, key, all)
	case time.Since(info.at) >= age && !d.busy[key] && s.ctx.Err() == nil:
		d.busy[key] = true
		s.jobs.wait.Add(1)
		go func() {
			defer s.jobs.wait.Done()
			fresh, err := s.look(id, all)
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.busy[key] = false; err == nil {
				d.known[key] = fresh
			}
		}()
	}
	return info, nil
}

// lookAt looks at a device while the request waits. The caller holds the lock.
func (s *Service) lookAt(id, key string, precisions []string) (deviceInfo, error) {
	info, err := s.look(id, precisions)
	if err == nil {
		s.devices.known[key] = info
	}
	return info, err
}

// look opens a device and closes it again.
func (s *Service) look(id string, precisions []string) (deviceInfo, error) {
	b, notice, err := s.open(id)
	if err != nil {
		return deviceInfo{}, err
	}
	defer b.Close()
	info := deviceInfo{words: b.Device(), limits: b.Limits(), notice: notice, standIns: map[string]*train.StandIn{}, at: time.Now()}
	for _, p := range precisions {
		if info.standIns[p], err = train.NewStandIn(p, b); err != nil {
			return deviceInfo{}, fail("device", "%s cannot be planned for in %s: %v", b.Device(), p, err)
		}
	}
	return info, nil
}

// open opens a device; an empty id is the default.
func (s *Service) open(id string) (op.Backend, string, error) {
	if id == "" {
		id = s.opt.Device
	}
	b, notice, err := s.opt.OpenBackend(id)
	if err != nil {
		return nil, "", fail("device", "the device %s cannot be opened: %v", id, err)
	}
	return b, notice, nil
}

// deviceKey is the id of the one device that a setting means, as far as that
// can be told without opening it: "auto" and "gpu" are the first GPU.
func (s *Service) deviceKey(id string) string {
	if id == "" {
		id = s.opt.Device
	}
	if id != "auto" && id != "gpu" {
		return id
	}
	for _, d := range s.opt.Devices() {
		if d.Kind == "gpu" && !d.Software {
			return d.ID
		}
	}
	return "cpu"
}

// checkDevice refuses a setting that names no device.
func (s *Service) checkDevice(id string) error {
	if id == "" || id == "auto" || id == "gpu" || id == s.opt.Device {
		return nil
	}
	var ids []string
	for _, d := range s.opt.Devices() {
		if d.ID == id {
			return nil
		}
		ids = append(ids, d.ID)
	}
	return badField("device", "there is no device %q, want auto or one of %s", id, strings.Join(ids, ", "))
}

// disk remembers the folder's size for a short time.
type disk struct {
	mu   sync.Mutex
	used int64
	at   time.Time
}

// usedDisk is the size of everything in the folder.
func (s *Service) usedDisk() int64 {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if time.Since(s.disk.at) < 5*time.Second {
		return s.disk.used
	}
	s.disk.used = folderBytes(s.opt.Dir)
	s.disk.at = time.Now()
	return s.disk.used
}

// folderBytes adds up the files below dir; what disappears meanwhile counts
// nothing.
func folderBytes(dir string) (sum int64) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				sum += fi.Size()
			}
		}
		return nil
	})
	return sum
}

// freeDisk is how much more the folder may hold, 0 unknown.
func (s *Service) freeDisk() int64 {
	if s.opt.FreeDisk != nil {
		return s.opt.FreeDisk()
	}
	n, ok := checkpoint.FreeBytes(s.opt.Dir)
	if !ok {
		return 0
	}
	return n
}
