package engine

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"tezgah/checkpoint"
)

// TestJourney goes the whole way: text, tokenizer, token file, run, generation,
// downloads, and back in again.
func TestJourney(t *testing.T) {
	w := newWorkplace(t, nil)
	var text Text
	w.do("PUT", "/api/texts/mine?label=a.txt", "The weaver sets the loom.\n", &text)
	if text.Label != "a.txt" || text.Files != 1 || text.Bytes != 26 || text.Format != "text" {
		t.Errorf("text %+v", text)
	}
	var tok Tokenizer
	w.job("POST", "/api/tokenizers", map[string]any{"name": "tok", "texts": []string{"sample", "mine"}, "vocab_size": 300, "pattern": "turkish"}, &tok)
	if tok.VocabSize != 300 || tok.Pattern != "turkish" || len(tok.Specials) != 1 || tok.Specials[0] != documentEnd {
		t.Errorf("tokenizer %+v", tok)
	}
	var data Data
	w.job("POST", "/api/data", map[string]any{"name": "data", "texts": []string{"sample", "mine"}, "tokenizer": "tok"}, &data)
	if data.Documents != 301 || data.VocabSize != 300 || data.Tokens < 5000 || data.Tokenizer != tok.SHA256 {
		t.Errorf("data %+v", data)
	}
	var run runView
	w.do("POST", "/api/runs", tiny("first"), &run)
	if run.State != "starting" && run.State != "running" {
		t.Errorf("a new run is %s", run.State)
	}
	run = w.ended("first")
	if run.State != "done" || run.Step != 40 || run.LastStep != 40 || len(run.Checkpoints) != 2 || run.Params == 0 || run.Bytes == 0 {
		t.Fatalf("run %+v", run)
	}
	w.fallingLoss("first")
	w.generates("first")
	w.roundTrips("first")
}

// fallingLoss checks the log of a run.
func (w *workplace) fallingLoss(name string) {
	w.t.Helper()
	var log struct {
		Records []map[string]any
		Next    int
		State   string
	}
	w.do("GET", "/api/runs/"+name+"/log", nil, &log)
	var losses []float64
	for _, r := range log.Records {
		if r["type"] == "step" {
			losses = append(losses, r["loss"].(float64))
		}
	}
	if len(losses) != 40 || losses[39] > losses[0]-0.5 {
		w.t.Errorf("losses %v: want 40, falling by half a nat", losses)
	}
	if log.State != "done" || log.Next != len(log.Records) {
		w.t.Errorf("log ends at %d of %d records, state %s", log.Next, len(log.Records), log.State)
	}
	w.do("GET", fmt.Sprintf("/api/runs/%s/log?after=%d", name, log.Next-1), nil, &log)
	if len(log.Records) != 1 || log.Records[0]["type"] != "done" {
		w.t.Errorf("the last line is %v", log.Records)
	}
}

// generates checks the stream of a generation, and that a seed repeats it.
func (w *workplace) generates(name string) {
	w.t.Helper()
	req := map[string]any{"model": name, "prompt": "The weaver", "max_tokens": 12, "seed": 5, "alternatives": 3, "ignore_end": true}
	a := w.raw("POST", "/api/generate", req)
	list := a.messages(w.t)
	if len(list) < 14 || list[0]["type"] != "start" || list[0]["seed"] != 5.0 || list[0]["prompt_tokens"].(float64) < 2 {
		w.t.Fatalf("stream %v", a.text())
	}
	end := list[len(list)-1]
	if end["type"] != "end" || end["reason"] != "length" || end["new_tokens"] != 12.0 {
		w.t.Errorf("end %v", end)
	}
	for _, m := range list[1:13] {
		alts := m["alternatives"].([]any)
		if m["type"] != "piece" || len(alts) != 3 || m["prob"].(float64) <= 0 {
			w.t.Errorf("piece %v", m)
		}
	}
	if b := w.raw("POST", "/api/generate", req); strings.Split(b.text(), `{"type":"end"`)[0] != strings.Split(a.text(), `{"type":"end"`)[0] {
		if pieces(w.t, a) != pieces(w.t, b) {
			w.t.Errorf("the same seed gave %q and %q", pieces(w.t, a), pieces(w.t, b))
		}
	}
	w.refused("POST", "/api/chat", map[string]any{"model": name, "messages": []map[string]string{{"role": "user", "content": "hi"}}}, "bad_request")
}

// pieces is the text of a stream.
func pieces(t *testing.T, a *answer) string {
	s := ""
	for _, m := range a.messages(t) {
		if m["type"] == "piece" {
			s += m["text"].(string)
		}
	}
	return s
}

// roundTrips downloads a model in every form and brings it in again: it then
// writes the same text.
func (w *workplace) roundTrips(name string) {
	w.t.Helper()
	want := w.greedy(name)
	for i, query := range []string{"format=llm", "format=hf", "format=hf&type=bf16"} {
		a := w.raw("GET", "/api/models/"+name+"/download?"+query, nil)
		if a.status != 200 {
			w.t.Fatalf("%s: %s", query, a.text())
		}
		copied := fmt.Sprintf("copy%d", i)
		var m Model
		w.job("PUT", "/api/models/"+copied+"?label=x", a.body.Bytes(), &m)
		if m.Name != copied || m.Run != "" || m.Params == 0 || !m.Tokenizer {
			w.t.Errorf("%s: %+v", query, m)
		}
		if got := w.greedy(copied); got != want && !strings.Contains(query, "bf16") {
			w.t.Errorf("%s: the copy writes %q, the model %q", query, got, want)
		}
		w.refused("PUT", "/api/models/"+copied, a.body.Bytes(), "exists")
		w.do("DELETE", "/api/models/"+copied, nil, nil)
	}
	a := w.raw("GET", "/api/models/"+name+"/download?format=gguf&type=f16", nil)
	if a.status != 200 || !bytes.HasPrefix(a.body.Bytes(), []byte("GGUF")) {
		w.refused("GET", "/api/models/"+name+"/download?format=gguf&type=f16", nil, "bad_request") // a pattern that llama.cpp does not know
		a = w.raw("GET", "/api/models/"+name+"/download?format=gguf&type=f16&force=1", nil)
	}
	if !bytes.HasPrefix(a.body.Bytes(), []byte("GGUF")) || !strings.Contains(a.header["Content-Disposition"], name+".gguf") {
		w.t.Errorf("gguf: %d, %v, %.40q", a.status, a.header, a.text())
	}
	w.refused("GET", "/api/models/"+name+"/download?format=zip", nil, "bad_request")
	w.refused("DELETE", "/api/models/"+name, nil, "forbidden")
}

func (w *workplace) greedy(name string) string {
	w.t.Helper()
	a := w.raw("POST", "/api/generate", map[string]any{"model": name, "prompt": "The", "max_tokens": 10, "temperature": 0, "ignore_end": true})
	if a.status != 200 {
		w.t.Fatalf("generate: %s", a.text())
	}
	return pieces(w.t, a)
}

// TestDownloadOfACheckpoint leaves the moments out.
func TestDownloadOfACheckpoint(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 100000, "checkpoint_every", 5), nil)
	w.until("r", func(r runView) bool { return len(r.Checkpoints) > 0 })
	w.do("POST", "/api/runs/r/pause", nil, nil)
	a := w.raw("GET", "/api/models/r/download", nil)
	f, err := checkpoint.NewLLM(bytes.NewReader(a.body.Bytes()), int64(a.body.Len()), "download")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Moments()) > 0 || f.Header.State != nil || len(f.Weights()) == 0 || f.Verify() != nil {
		t.Errorf("%d moments, state %s, %d weights, %v", len(f.Moments()), f.Header.State, len(f.Weights()), f.Verify())
	}
}

// TestImportOfBadFiles: nothing of them stays.
func TestImportOfBadFiles(t *testing.T) {
	w := newWorkplace(t, nil)
	pack := func(files map[string]string) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, content := range files {
			f, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			f.Write([]byte(content))
		}
		z.Close()
		return b.Bytes()
	}
	for name, file := range map[string][]byte{
		"no model":     []byte("hello"),
		"empty":        {},
		"no config":    pack(map[string]string{"model.safetensors": "x"}),
		"bad config":   pack(map[string]string{"config.json": "{", "model.safetensors": "x"}),
		"outside":      pack(map[string]string{"config.json": `{"architectures":["LlamaForCausalLM"]}`, "../../evil.json": "x", "/abs.json": "x", "a/../../b.json": "x"}),
		"other family": pack(map[string]string{"m/config.json": `{"architectures":["BertModel"]}`}),
	} {
		var j Job
		w.do("PUT", "/api/models/bad", file, &j)
		if j = w.wait(j.ID); j.State != "failed" || j.Error == "" {
			t.Errorf("%s: %+v", name, j)
		}
	}
	var list []Model
	w.do("GET", "/api/models", nil, &list)
	if len(list) != 0 || w.left() != "" {
		t.Errorf("models %v, left over %s", list, w.left())
	}
}

// left lists what is in tmp.
func (w *workplace) left() string {
	entries, err := os.ReadDir(w.s.path("tmp"))
	if err != nil {
		w.t.Fatal(err)
	}
	names := ""
	for _, e := range entries {
		names += e.Name() + " "
	}
	return names
}

// TestEventsTellOfJobsAndRuns reads the stream while a job and a run go on.
func TestEventsTellOfJobsAndRuns(t *testing.T) {
	w := newWorkplace(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	events, done := &answer{}, make(chan struct{})
	req, _ := NewRequest("GET", "/api/events", nil, 0)
	go func() { w.s.Serve(ctx, events, req); close(done) }()
	for events.text() == "" {
	}
	w.prepare()
	w.do("POST", "/api/runs", tiny("r"), nil)
	w.ended("r")
	for !strings.Contains(events.text(), `"state":"done","step":40`) || !strings.Contains(events.text(), `"what":"models"`) {
		if t.Context().Err() != nil {
			t.Fatal(events.text())
		}
	}
	cancel()
	<-done
	if h := events.header["Content-Type"]; !strings.HasPrefix(h, "text/event-stream") {
		t.Errorf("content type %q", h)
	}
	seen := map[string]bool{}
	for _, m := range events.messages(t) {
		switch m["type"] {
		case "job":
			j := m["job"].(map[string]any)
			seen["job "+j["kind"].(string)+" "+j["state"].(string)] = true
		case "run":
			seen["run "+m["run"].(map[string]any)["state"].(string)] = true
		case "list":
			seen["list "+m["what"].(string)] = true
		}
	}
	for _, want := range []string{"job tokenizer running", "job tokenizer done", "job data done", "run done", "list tokenizers", "list data", "list runs", "list models"} {
		if !seen[want] {
			t.Errorf("no event %q in %v", want, seen)
		}
	}
}
