// Package engine is the workbench without its transport: texts, tokenizers,
// token files, training runs, models and generation in one folder, behind the
// requests of docs/api.md. The HTTP server of package workbench and the worker
// of cmd/tezgah-web hand it the same Request values.
//
// It opens no sockets and chooses no backend: devices, the sample text and the
// program's version come in Options. The folder's layout is
//
//	texts/NAME/         the files of a text, and text.json
//	tokenizers/NAME.json
//	data/NAME.bin
//	runs/NAME/          as tezgah train makes it, and workbench.json
//	models/NAME.llm     models that were brought in
//	cache/              the sample text, measured speeds
//	tmp/                what is not whole yet; emptied at start-up
//
// Open this file first, then route.go (which handler answers what), then the
// file of the topic: texts.go, tokenizers.go, data.go, runs.go (all runs), run.go
// (one of them) and session.go (its goroutine), models.go, generate.go. jobs.go
// and hub.go carry progress to the page.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tezgah/checkpoint"
	"tezgah/op"
)

// Device is something that can compute.
type Device struct {
	ID       string `json:"id"`   // for the setting device: cpu, gpu:0 …
	Name     string `json:"name"` // in words
	Kind     string `json:"kind"` // "cpu" or "gpu"
	Software bool   `json:"software"`
}

// Options are what a Service is given.
type Options struct {
	Dir     string // the folder; made if need be
	Place   string // "server" or "tab"
	Version string // of the program

	// OpenBackend opens a device by its id, by "auto" or "gpu"; notice is a line
	// for the user or empty. Required. It is called from several goroutines, and
	// the same device may be open more than once.
	OpenBackend func(device string) (b op.Backend, notice string, err error)
	// Devices lists what OpenBackend can open, without "auto". Required.
	Devices func() []Device
	// Device is what a request without the setting device gets; empty: "auto".
	Device  string
	Threads int // of tokenizers and token files; 0: all cores

	// Sample opens the sample text: text files put together, with <|endoftext|>
	// between them, gzip or plain. nil: there is no sample.
	Sample func(ctx context.Context) (io.ReadCloser, error)

	MaxUpload  int64                     // bytes of one upload; 0: 20 GiB
	FreeDisk   func() int64              // bytes that the folder may still grow by, 0 unknown; nil: the disk's
	Persistent func() bool               // whether the browser has promised to keep the folder; nil: true
	Yield      func(ctx context.Context) // called after every step of long work, for a tab that has one thread; may be nil
	Notices    []string                  // lines for the status, such as "this browser has no WebGPU"
}

// Service answers requests over one folder. Its methods may be called from
// several goroutines at once.
type Service struct {
	opt     Options
	lock    *checkpoint.RunLock
	started time.Time

	ctx      context.Context // ends when the service closes
	cancel   context.CancelCauseFunc
	training sync.WaitGroup // goroutines of runs

	hub       hub
	claims    claims
	jobs      jobs
	devices   devices
	disk      disk
	texts     texts
	sample    sample
	breather  breather
	runs      runs
	loaded    loaded
	speeds    speeds
	generated atomic.Int64 // tokens since the start

	tokenizers tokenizers
	dataFiles  dataFiles
	models     models
}

// maxUpload is the limit of one upload where Options sets none.
const maxUpload = 20 << 30

// folders of the workbench.
var folders = []string{"texts", "tokenizers", "data", "runs", "models", "cache", "tmp"}

// New opens or makes the folder, takes it for this process, and removes what
// was left half done. Runs that another process was training are paused now.
func New(opt Options) (*Service, error) {
	if opt.OpenBackend == nil || opt.Devices == nil || opt.Dir == "" {
		return nil, errors.New("engine: Options need Dir, OpenBackend and Devices")
	}
	if opt.MaxUpload == 0 {
		opt.MaxUpload = maxUpload
	}
	if opt.Device == "" {
		opt.Device = "auto"
	}
	dir, err := filepath.Abs(opt.Dir) // run folders name their token files
	if err != nil {
		return nil, err
	}
	opt.Dir = dir
	for _, sub := range folders {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			return nil, err
		}
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	s := newService(opt, lock)
	if err := s.sweep(); err != nil {
		lock.Unlock()
		return nil, err
	}
	return s, nil
}

func newService(opt Options, lock *checkpoint.RunLock) *Service {
	s := &Service{opt: opt, lock: lock, started: now()}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.devices.known, s.devices.busy = map[string]deviceInfo{}, map[string]bool{}
	s.texts.known = map[string]Text{}
	s.tokenizers.known = map[stamp]Tokenizer{}
	s.dataFiles.known = map[stamp]Data{}
	s.models.known = map[stamp]Model{}
	s.runs.open = map[string]*run{}
	s.speeds.path = s.path("cache", "speeds.json")
	s.speeds.load()
	return s
}

// lockFolder takes the folder for this process.
func lockFolder(dir string) (*checkpoint.RunLock, error) {
	lock, err := checkpoint.Lock(dir)
	var held *checkpoint.LockedError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%s is in use by another workbench (process %d): close it, or choose another folder with --dir", dir, held.PID)
	}
	return lock, err
}

// sweep removes what an ended process left half done.
func (s *Service) sweep() error {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(s.path("tmp", e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(s.samplePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // another version may bring another sample
	}
	return s.removeHalfTexts()
}

// Close pauses what trains, with a save, cancels jobs, and gives the folder
// back. It waits for all of that, or until ctx ends; the error is then ctx's.
func (s *Service) Close(ctx context.Context) error {
	s.cancel(errPaused) // from here on nothing new begins
	done := make(chan struct{})
	go func() {
		s.training.Wait()
		s.jobs.wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.loaded.close(ctx); err != nil {
		return err
	}
	return s.lock.Unlock()
}
