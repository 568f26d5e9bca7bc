package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tezgah/checkpoint"
	"tezgah/op"
	"tezgah/train"
)

// weightsOf reads every weight of a run's model.llm.
func (w *workplace) weightsOf(name string) []byte {
	w.t.Helper()
	f, err := checkpoint.OpenLLM(w.s.path("runs", name, train.ModelName))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	var all bytes.Buffer
	for _, info := range f.Weights() {
		b := make([]byte, info.SizeBytes())
		if err := f.ReadBytes(info.Name, b); err != nil {
			w.t.Fatal(err)
		}
		all.Write(b)
	}
	return all.Bytes()
}

// TestPauseAndResume: a run that was paused, whose server was ended, and that
// was resumed has the bits of one that was not.
func TestPauseAndResume(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("whole"), "max_steps", 300), nil)
	w.ended("whole")
	w.do("POST", "/api/runs", with(tiny("broken"), "max_steps", 300), nil)
	w.until("broken", func(r runView) bool { return r.Step >= 30 })
	var r runView
	w.do("POST", "/api/runs/broken/pause", nil, &r)
	if r.State != "paused" || r.Step < 30 || r.Step >= 300 || r.Checkpoints[len(r.Checkpoints)-1].Step != r.Step {
		t.Fatalf("paused: %+v", r)
	}
	w.do("POST", "/api/runs/broken/resume", nil, &r)
	w.until("broken", func(r runView) bool { return r.Step >= 100 })
	w.close()
	w = openWorkplace(t, w.opt)
	w.do("GET", "/api/runs/broken", nil, &r)
	if r.State != "paused" || r.Step < 100 {
		t.Fatalf("after a restart: %+v", r)
	}
	w.do("POST", "/api/runs/broken/resume", map[string]any{"keep": 5}, &r)
	if r = w.ended("broken"); r.State != "done" || r.Step != 300 || r.Settings.Keep != 5 {
		t.Fatalf("resumed: %+v", r)
	}
	if !bytes.Equal(w.weightsOf("whole"), w.weightsOf("broken")) {
		t.Error("the weights differ from those of a run without a break")
	}
	w.refused("POST", "/api/runs/broken/resume", nil, "bad_request")
	w.do("POST", "/api/runs/broken/resume", map[string]any{"max_steps": 310}, nil)
	if r = w.ended("broken"); r.State != "done" || r.Step != 310 || r.Settings.MaxSteps != 310 {
		t.Errorf("with a larger limit: %+v", r)
	}
}

// TestKilledServerFindsItsRuns: without a farewell, from the files alone. The
// copy of the folder is what a killed process would leave.
func TestKilledServerFindsItsRuns(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 1<<40, "checkpoint_every", 10), nil)
	w.until("r", func(r runView) bool { return r.Step >= 45 })
	left := t.TempDir()
	for {
		if err := os.CopyFS(left, os.DirFS(w.opt.Dir)); err == nil {
			break
		}
		os.RemoveAll(left) // a checkpoint went away while it was copied
	}
	w = openWorkplace(t, testOptions(left))
	var r runView
	w.do("GET", "/api/runs/r", nil, &r)
	if r.State != "paused" || r.Step < 45 || len(r.Checkpoints) == 0 {
		t.Fatalf("%+v", r)
	}
	last := r.Checkpoints[len(r.Checkpoints)-1].Step
	w.do("POST", "/api/runs/r/resume", map[string]any{"max_steps": last + 100}, nil)
	if r = w.ended("r"); r.State != "done" || r.Step != last+100 {
		t.Errorf("%+v", r)
	}
}

// TestRunOfTheCommandLine: run folders are those of tezgah train, both ways.
func TestRunOfTheCommandLine(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("mine"), "max_steps", 30), nil)
	w.ended("mine")
	open := func() (op.Backend, error) { b, _, err := w.opt.OpenBackend("cpu"); return b, err }
	// Ours goes on there.
	tr, err := train.Resume(train.Options{Dir: w.s.path("runs", "mine"), Open: open}, func(c *train.Config) { c.MaxSteps = 50 })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	var r runView
	w.do("GET", "/api/runs/mine", nil, &r)
	if r.State != "done" || r.Step != 50 || r.LastStep != 50 {
		t.Errorf("after the command line: %+v", r)
	}
	// One from there goes on here.
	cfg, err := train.LoadConfig(w.s.path("runs", "mine"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxSteps = 40
	ctx, cancel := context.WithCancel(context.Background())
	tr, err = train.New(cfg, train.Options{Dir: w.s.path("runs", "theirs"), Open: open, Observer: train.Observer{
		Save: func(step int64, _ string) { cancel() },
	}})
	if err != nil {
		t.Fatal(err)
	}
	tr.Run(ctx)
	tr.Close()
	w.do("GET", "/api/runs/theirs", nil, &r)
	if r.State != "paused" || r.Step == 0 || r.Settings.Data[0].Name != "data" || r.Settings.Batch != 2 {
		t.Errorf("a run of the command line: %+v", r)
	}
	w.do("POST", "/api/runs/theirs/resume", nil, nil)
	if r = w.ended("theirs"); r.State != "done" || r.Step != 40 {
		t.Errorf("resumed here: %+v", r)
	}
}

func TestStop(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 1<<40), nil)
	w.until("r", func(r runView) bool { return r.Step >= 10 })
	var r runView
	w.do("POST", "/api/runs/r/stop", nil, &r)
	m, err := w.s.model("r")
	if err != nil || r.State != "stopped" || m.Step != r.Step || m.Bytes == 0 || !isFile(w.s.path("runs", "r", train.ModelName)) {
		t.Errorf("stopped %+v, model %+v, %v", r, m, err)
	}
	w.do("POST", "/api/runs/r/resume", map[string]any{"max_steps": r.Step + 3}, nil)
	if r = w.ended("r"); r.State != "done" {
		t.Errorf("resumed: %+v", r)
	}
	// A paused run is stopped from its checkpoint.
	w.do("POST", "/api/runs", with(tiny("p"), "max_steps", 1<<40), nil)
	w.until("p", func(r runView) bool { return r.Step >= 10 })
	w.do("POST", "/api/runs/p/pause", nil, &r)
	step := r.Step
	w.do("POST", "/api/runs/p/stop", nil, &r)
	if m, err := w.s.model("p"); err != nil || r.State != "stopped" || r.Step != step || m.Step != step {
		t.Errorf("stopped %+v, model %+v, %v", r, m, err)
	}
}

func TestFork(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", tiny("old"), nil)
	w.ended("old")
	var r runView
	w.do("POST", "/api/runs/old/fork", map[string]any{"name": "new", "step": 20, "lr": 1e-3, "max_steps": 5, "weight_decay": 0}, &r)
	if r.Settings.Init != "old@20" || r.Settings.LR != 1e-3 || r.Settings.Batch != 2 || *r.Settings.WeightDecay != 0 {
		t.Errorf("settings %+v", r.Settings)
	}
	w.do("DELETE", "/api/runs/old", nil, nil) // the fork has the weights it needs
	if r = w.ended("new"); r.State != "done" || r.Step != 5 || *r.Loss > 5 {
		t.Errorf("%+v: want a loss near that of the old run's step 20", r)
	}
	w.refused("POST", "/api/runs/new/fork", map[string]any{"name": "x", "step": 99}, "bad_request")
	w.refused("POST", "/api/runs/new/fork", map[string]any{"name": "new"}, "exists")
	w.refused("POST", "/api/runs/new/fork", map[string]any{"name": "x", "preset": "micro"}, "bad_request")
	w.refused("POST", "/api/runs/new/fork", map[string]any{"name": "x", "lrr": 1}, "bad_request")
}

// TestLogAndItsStream: a stream begins behind the lines that the page has, and
// starts anew when lines are taken back.
func TestLogAndItsStream(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 1<<40, "checkpoint_every", 10), nil)
	w.until("r", func(r runView) bool { return r.Step >= 25 })
	w.do("POST", "/api/runs/r/pause", nil, nil)
	var log struct {
		Records              []json.RawMessage
		Next, Total, Version int
	}
	w.do("GET", "/api/runs/r/log?after=3&limit=4", nil, &log)
	if len(log.Records) != 4 || log.Next != 7 || log.Total < 25 {
		t.Fatalf("%d records, next %d of %d", len(log.Records), log.Next, log.Total)
	}
	total := log.Total
	ctx, cancel := context.WithCancel(context.Background())
	stream, done := &answer{}, make(chan struct{})
	req, _ := NewRequest("GET", fmt.Sprintf("/api/runs/r/events?after=%d", total-2), nil, 0)
	go func() { w.s.Serve(ctx, stream, req); close(done) }()
	lines := func() (first, count, restarts int) {
		for _, m := range stream.messages(t) {
			if n, ok := m["line"].(float64); ok {
				if count++; count == 1 {
					first = int(n)
				}
			}
			if m["restart"] == true {
				restarts++
			}
		}
		return first, count, restarts
	}
	for {
		if first, count, _ := lines(); count == 2 {
			if first != total-1 {
				t.Fatalf("the stream begins at line %d, want %d", first, total-1)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	// The newest checkpoint is damaged: resuming goes back to the one before.
	list, err := checkpoint.List(w.s.path("runs", "r"))
	if err != nil || len(list) < 2 {
		t.Fatal(list, err)
	}
	if err := os.Truncate(list[len(list)-1].Path, 100); err != nil {
		t.Fatal(err)
	}
	w.do("POST", "/api/runs/r/resume", map[string]any{"max_steps": list[len(list)-1].Step + 5}, nil)
	w.ended("r")
	w.do("GET", "/api/runs/r/log", nil, &log)
	for {
		_, count, restarts := lines()
		if restarts == 1 && count == 2+log.Total && strings.Contains(stream.text(), `"state":"done"`) {
			break
		}
		if restarts > 1 || count > 2+log.Total {
			t.Fatalf("%d lines and %d restarts, want %d and 1", count, restarts, 2+log.Total)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	steps := map[float64]int{}
	for _, b := range log.Records {
		var rec map[string]any
		json.Unmarshal(b, &rec)
		if rec["type"] == "step" {
			steps[rec["step"].(float64)]++
		}
	}
	for step, n := range steps {
		if n != 1 {
			t.Errorf("step %v is in the log %d times", step, n)
		}
	}
	if log.Version == 0 {
		t.Error("the log's version did not change")
	}
}

// TestMovedFolder: everything is found when the folder lies elsewhere.
func TestMovedFolder(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 60), nil)
	w.until("r", func(r runView) bool { return r.Step >= 5 })
	w.do("POST", "/api/runs/r/pause", nil, nil)
	w.do("POST", "/api/runs", with(tiny("base"), "context", 64, "max_steps", 2), nil)
	w.ended("base")
	w.do("PUT", "/api/texts/talk?label=talk.jsonl", chats(), nil)
	w.do("POST", "/api/runs", map[string]any{"name": "chat", "sft": []string{"talk"}, "init": "base", "batch": 2, "context": 64, "max_steps": 500}, nil)
	w.until("chat", func(r runView) bool { return r.Step >= 2 })
	w.do("POST", "/api/runs/chat/pause", nil, nil)
	w.close()
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(w.opt.Dir, moved); err != nil {
		t.Fatal(err)
	}
	w = openWorkplace(t, testOptions(moved))
	w.do("POST", "/api/runs/r/resume", nil, nil)
	if r := w.ended("r"); r.State != "done" || r.Step != 60 {
		t.Errorf("%+v", r)
	}
	w.do("POST", "/api/runs/chat/resume", map[string]any{"max_steps": 503}, nil)
	w.until("chat", func(r runView) bool { return r.State == "running" || r.State == "done" })
	w.do("POST", "/api/runs/chat/pause", nil, nil)
}

// TestFailedRunSaysWhy and can be tried again.
func TestFailedRunSaysWhy(t *testing.T) {
	broken := true
	w := newWorkplace(t, func(o *Options) {
		open := o.OpenBackend
		o.OpenBackend = func(device string) (op.Backend, string, error) {
			if device == "cpu2" && broken {
				return nil, "", fmt.Errorf("the driver is gone")
			}
			return open(device)
		}
	})
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "device", "cpu2"), nil)
	var r runView
	for r.State != "failed" {
		w.do("GET", "/api/runs/r", nil, &r)
	}
	if !strings.Contains(r.Error, "the driver is gone") {
		t.Errorf("error %q", r.Error)
	}
	w.close()
	w = openWorkplace(t, w.opt)
	if w.do("GET", "/api/runs/r", nil, &r); r.State != "failed" || r.Error == "" {
		t.Errorf("after a restart: %+v", r)
	}
	broken = false
	w.do("POST", "/api/runs/r/resume", nil, nil)
	if r = w.ended("r"); r.State != "done" || r.Error != "" {
		t.Errorf("tried again: %+v", r)
	}
}

func TestSamplesInRuns(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "sample_every", 15, "sample_prompt", "The weaver", "sample_tokens", 8), nil)
	r := w.ended("r")
	if r.Sample == nil || r.Sample.Step != 30 || !strings.HasPrefix(r.Sample.Text, "The weaver") || len(r.Sample.Text) < 12 {
		t.Errorf("sample %+v", r.Sample)
	}
}
