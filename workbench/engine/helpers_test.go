package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"tezgah/op"
	"tezgah/op/cpu"
)

// answer is a ResponseWriter that keeps what it gets.
type answer struct {
	mu     sync.Mutex
	status int
	header map[string]string
	body   bytes.Buffer
	gone   bool // writes fail, as when the client has left
}

func (a *answer) Start(status int, header map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status != 0 {
		panic("Start was called twice")
	}
	a.status, a.header = status, header
}

func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		panic("Write before Start")
	}
	if a.gone {
		return 0, io.ErrClosedPipe
	}
	return a.body.Write(p)
}

func (a *answer) Flush() error { return nil }

func (a *answer) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.body.String()
}

// messages are the events of a stream so far.
func (a *answer) messages(t *testing.T) (list []map[string]any) {
	t.Helper()
	for part := range strings.SplitSeq(a.text(), "\n\n") {
		data, ok := strings.CutPrefix(part, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatalf("message %q: %v", data, err)
		}
		list = append(list, m)
	}
	return list
}

// workplace is a service over a folder of a test.
type workplace struct {
	t   *testing.T
	s   *Service
	opt Options
}

// sampleDocs are the documents of the tests' sample text.
func sampleDocs() string {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "Document %d. The weaver sets the loom, and the loom weaves cloth %d.\nDokuma tezgâhı %d iplikle çalışır.\n%s\n", i, i%7, i%11, documentEnd)
	}
	return b.String()
}

func testOptions(dir string) Options {
	return Options{
		Dir: dir, Place: "server", Version: "test", Device: "cpu", Threads: 1,
		OpenBackend: func(device string) (op.Backend, string, error) {
			if device != "cpu" && device != "auto" && device != "cpu2" {
				return nil, "", fmt.Errorf("no device %q", device)
			}
			b, err := cpu.New(cpu.Options{Threads: 1})
			return b, "", err
		},
		Devices: func() []Device {
			return []Device{{ID: "cpu", Name: "the processor", Kind: "cpu"}, {ID: "cpu2", Name: "the processor again", Kind: "cpu"}}
		},
		Sample: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(sampleDocs())), nil
		},
	}
}

// newWorkplace starts a service, which ends with the test.
func newWorkplace(t *testing.T, change func(*Options)) *workplace {
	t.Helper()
	opt := testOptions(t.TempDir())
	if change != nil {
		change(&opt)
	}
	return openWorkplace(t, opt)
}

func openWorkplace(t *testing.T, opt Options) *workplace {
	t.Helper()
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	w := &workplace{t, s, opt}
	t.Cleanup(w.close)
	return w
}

func (w *workplace) close() {
	if w.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.s.Close(ctx); err != nil {
		w.t.Errorf("closing: %v", err)
	}
	w.s = nil
}

// raw makes a request and returns the whole answer.
func (w *workplace) raw(method, target string, body any) *answer {
	w.t.Helper()
	var r io.Reader
	n := int64(0)
	switch b := body.(type) {
	case nil:
	case string:
		r, n = strings.NewReader(b), int64(len(b))
	case []byte:
		r, n = bytes.NewReader(b), int64(len(b))
	case io.Reader:
		r, n = b, -1
	default:
		j, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		r, n = bytes.NewReader(j), int64(len(j))
	}
	req, err := NewRequest(method, target, r, n)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &answer{}
	w.s.Serve(context.Background(), a, req)
	if a.status == 0 {
		w.t.Fatalf("%s %s: no answer", method, target)
	}
	return a
}

// do makes a request that must succeed, and decodes the answer into out.
func (w *workplace) do(method, target string, body, out any) {
	w.t.Helper()
	a := w.raw(method, target, body)
	if a.status/100 != 2 {
		w.t.Fatalf("%s %s: status %d, %s", method, target, a.status, a.text())
	}
	if out != nil {
		if err := json.Unmarshal([]byte(a.text()), out); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, target, err, a.text())
		}
	}
}

// refused makes a request that must fail with a code, and returns the error.
func (w *workplace) refused(method, target string, body any, code string) apiError {
	w.t.Helper()
	a := w.raw(method, target, body)
	var out struct{ Error apiError }
	if err := json.Unmarshal([]byte(a.text()), &out); err != nil {
		w.t.Fatalf("%s %s: %v in %s", method, target, err, a.text())
	}
	if out.Error.Code != code || a.status != statusOf[code] {
		w.t.Fatalf("%s %.200s: status %d, %+v; want %s", method, target, a.status, out.Error, code)
	}
	return out.Error
}

// job waits for a job that must be done and decodes its result.
func (w *workplace) job(method, target string, body, result any) {
	w.t.Helper()
	var j Job
	w.do(method, target, body, &j)
	j = w.wait(j.ID)
	if j.State != "done" {
		w.t.Fatalf("%s %s: the job is %s: %s", method, target, j.State, j.Error)
	}
	if result != nil {
		b, err := json.Marshal(j.Result)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := json.Unmarshal(b, result); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *workplace) wait(id string) Job {
	w.t.Helper()
	for {
		var all []Job
		w.do("GET", "/api/jobs", nil, &all)
		for _, j := range all {
			if j.ID == id && j.State != "running" {
				return j
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// runView is a Run as a client sees it.
type runView struct {
	Name, State, Error string
	Step               int64
	LastStep           int64 `json:"last_step"`
	Loss               *float64
	ValLoss            *float64 `json:"val_loss"`
	Tokens             int64
	Settings           RunSettings
	Warnings           []Warning
	Notices            []string
	Sample             *sampleOut
	Checkpoints        []checkpointFacts
	Params             int
	Bytes              int64
	Elapsed            float64 `json:"elapsed_s"`
}

// until waits for a run to satisfy cond.
func (w *workplace) until(name string, cond func(runView) bool) runView {
	w.t.Helper()
	for {
		var r runView
		w.do("GET", "/api/runs/"+name, nil, &r)
		if cond(r) {
			return r
		}
		if r.State == "failed" {
			w.t.Fatalf("the run failed: %s", r.Error)
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func (w *workplace) ended(name string) runView {
	w.t.Helper()
	return w.until(name, func(r runView) bool { return r.State == "done" || r.State == "paused" || r.State == "stopped" })
}

// prepare makes a tokenizer "tok" and a token file "data" from the sample.
func (w *workplace) prepare() {
	w.t.Helper()
	w.job("POST", "/api/tokenizers", map[string]any{"name": "tok", "texts": []string{"sample"}, "vocab_size": 300}, nil)
	w.job("POST", "/api/data", map[string]any{"name": "data", "texts": []string{"sample"}, "tokenizer": "tok"}, nil)
}

// tiny are settings of a run of a fraction of a second.
func tiny(name string) map[string]any {
	return map[string]any{
		"name": name, "data": []map[string]any{{"name": "data"}}, "batch": 2, "context": 16, "max_steps": 40, "lr": 3e-3, "seed": 7,
		"model":      map[string]any{"d_model": 16, "layers": 1, "heads": 2, "kv_heads": 1, "ffn": 32},
		"eval_every": 20, "checkpoint_every": 20,
	}
}

// with changes settings.
func with(set map[string]any, pairs ...any) map[string]any {
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i].(string)] = pairs[i+1]
	}
	return set
}
