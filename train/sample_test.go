package train

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/runlog"
)

// TestSamplesChangeNothing: a run with samples has the weights of one without,
// and its log has the texts, the same as what Observer heard.
func TestSamplesChangeNothing(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps = 12
	plain, sampled := filepath.Join(dir, "plain"), filepath.Join(dir, "sampled")
	runAll(t, plain, cfg)
	cfg.SampleEvery, cfg.SamplePrompt, cfg.SampleTokens = 5, "the weaver", 9
	var heard []string
	tr, err := New(cfg, Options{Dir: sampled, Open: openCPU, Observer: Observer{Sample: func(step int64, prompt, text string) {
		if step%5 != 0 || prompt != "the weaver" {
			t.Errorf("a sample at step %d from %q", step, prompt)
		}
		heard = append(heard, text)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	a, b := weights(t, plain), weights(t, sampled)
	for name := range a {
		if !slices.Equal(a[name], b[name]) {
			t.Fatalf("%s differs from a run without samples", name)
		}
	}
	var logged []string
	for rec, err := range runlog.Read(filepath.Join(sampled, runlog.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event == nil || rec.Event.Type != runlog.KindSample {
			continue
		}
		var d Sample
		if err := json.Unmarshal(rec.Event.Data, &d); err != nil || d.Prompt != "the weaver" || d.NewTokens < 1 || d.NewTokens > 9 {
			t.Errorf("sample %s: %+v, %v", rec.Event.Data, d, err)
		}
		logged = append(logged, rec.Event.Message)
	}
	if len(logged) != 2 || !slices.Equal(logged, heard) {
		t.Errorf("logged %q, heard %q, want 2 texts", logged, heard)
	}
}

// TestSampleThatCannotBe ends the samples with one notice, not the run.
func TestSampleThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps, cfg.SampleEvery = 6, 1
	var notices []string
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "run"), Open: openCPU, Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.data.tokenizer = nil
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "tokenizer") {
		t.Errorf("notices %q", notices)
	}
}

func TestBadSampleSettings(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.SampleEvery = -1 },
		func(c *Config) { c.SampleTokens = -1 },
		func(c *Config) { c.Data, c.Chats, c.InitFrom, c.SampleEvery = nil, []string{"x"}, "y", 5 },
	} {
		cfg := tinyConfig("x.bin")
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "sample-") {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}
