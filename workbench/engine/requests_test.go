package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// TestRefusals: errors have a code and the field at fault.
func TestRefusals(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	for _, c := range []struct {
		method, path string
		body         any
		code, field  string
	}{
		{"GET", "/api/nothing", nil, "not_found", ""},
		{"GET", "/", nil, "not_found", ""},
		{"POST", "/api/status", nil, "bad_request", ""},
		{"POST", "/api/tokenizers", "{", "bad_request", ""},
		{"POST", "/api/tokenizers", nil, "bad_request", ""},
		{"POST", "/api/tokenizers", `{"name":"a"} {}`, "bad_request", ""},
		{"POST", "/api/tokenizers", `{"name":"a","vocabsize":3}`, "bad_request", "vocabsize"},
		{"POST", "/api/tokenizers", `{"name":"a","vocab_size":"3"}`, "bad_request", "vocab_size"},
		{"POST", "/api/tokenizers", `{"name":"a","texts":["sample"],"vocab_size":3}`, "bad_request", "vocab_size"},
		{"POST", "/api/tokenizers", `{"name":"a","texts":["sample"],"vocab_size":400,"pattern":"turkis"}`, "bad_request", "pattern"},
		{"POST", "/api/tokenizers", `{"name":"a","texts":[],"vocab_size":400}`, "bad_request", "texts"},
		{"POST", "/api/tokenizers", `{"name":"a","texts":["sample","sample"],"vocab_size":400}`, "bad_request", "texts"},
		{"POST", "/api/tokenizers", `{"name":"a","texts":["nobody"],"vocab_size":400}`, "not_found", ""},
		{"POST", "/api/tokenizers", "\"" + strings.Repeat("x", maxJSON) + "\"", "too_large", ""},
		{"POST", "/api/tokenizers/tok/encode", map[string]any{"text": strings.Repeat("x", maxEncode+1)}, "too_large", "text"},
		{"PUT", "/api/tokenizers/x", "{}", "bad_request", ""},
		{"PUT", "/api/data/x", "not a token file", "bad_request", ""},
		{"POST", "/api/data", `{"name":"a","texts":["sample"],"tokenizer":"nobody"}`, "not_found", ""},
		{"POST", "/api/runs", `{"name":"a"}`, "bad_request", "data"},
		{"POST", "/api/runs", with(tiny("a"), "lr", -1), "bad_request", "lr"},
		{"POST", "/api/runs", with(tiny("a"), "batch", -2), "bad_request", "batch"},
		{"POST", "/api/runs", with(tiny("a"), "model", map[string]any{"layerz": 2}), "bad_request", "layerz"},
		{"POST", "/api/runs", with(tiny("a"), "device", "gpu:7"), "bad_request", "device"},
		{"POST", "/api/runs", with(tiny("a"), "init", "nobody"), "bad_request", "init"},
		{"POST", "/api/runs", with(tiny("a"), "preset", "nanoo"), "bad_request", "preset"},
		{"GET", "/api/runs/nobody", nil, "not_found", ""},
		{"GET", "/api/runs/nobody/log", nil, "not_found", ""},
		{"DELETE", "/api/models/nobody", nil, "not_found", ""},
		{"DELETE", "/api/data/nobody", nil, "not_found", ""},
		{"DELETE", "/api/tokenizers/nobody", nil, "not_found", ""},
		{"GET", "/api/data/nobody", nil, "not_found", ""},
		{"GET", "/api/models/nobody/download", nil, "not_found", ""},
		{"DELETE", "/api/jobs/99", nil, "not_found", ""},
		{"POST", "/api/generate", `{"model":"nobody"}`, "not_found", ""},
		{"POST", "/api/generate", `{"model":"x","temperature":-1}`, "bad_request", "temperature"},
		{"POST", "/api/generate", `{"model":"x","top_p":2}`, "bad_request", "top_p"},
		{"POST", "/api/generate", `{"model":"x","max_tokens":-1}`, "bad_request", "max_tokens"},
		{"POST", "/api/generate", `{"model":"x","alternatives":11}`, "bad_request", "alternatives"},
		{"POST", "/api/generate", `{"model":"x","precision":"f8"}`, "bad_request", "precision"},
		{"POST", "/api/chat", `{"model":"x"}`, "bad_request", "messages"},
	} {
		if e := w.refused(c.method, c.path, c.body, c.code); e.Field != c.field || e.Message == "" {
			t.Errorf("%s %s %.60v: field %q, message %q; want field %q", c.method, c.path, c.body, e.Field, e.Message, c.field)
		}
	}
}

// plan is the answer of POST /api/runs/plan.
type planView struct {
	Params, Total, Free, Steps, Warmup int64
	Fits                               bool
	Memory                             []memoryRow
	TokensPerStep                      int64 `json:"tokens_per_step"`
	Epochs, LR, Seconds                float64
	MinLR                              float64 `json:"min_lr"`
	Speed                              float64 `json:"tok_per_s"`
	Notices                            []string
	Problems                           []problem
}

func TestPlan(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	var p planView
	w.do("POST", "/api/runs/plan", with(tiny("r"), "accum", 2), &p)
	sum := int64(0)
	for _, r := range p.Memory {
		sum += r.Bytes
	}
	if len(p.Problems) > 0 || p.Params == 0 || p.Total != sum || !p.Fits || p.TokensPerStep != 64 || p.Steps != 40 || p.LR != 3e-3 || math.Abs(p.MinLR-3e-4) > 1e-12 || p.Speed != 0 {
		t.Errorf("%+v", p)
	}
	var epochs planView
	w.do("POST", "/api/runs/plan", with(tiny("r"), "max_steps", 0, "epochs", 2), &epochs)
	var data []Data
	w.do("GET", "/api/data", nil, &data)
	if want := 2 * 0.95 * float64(data[0].Tokens) / 32; math.Abs(float64(epochs.Steps)-want) > 1 || math.Abs(epochs.Epochs-2) > 0.01 {
		t.Errorf("2 epochs are %d steps, want about %.0f; %+v", epochs.Steps, want, epochs)
	}
	w.do("POST", "/api/runs/plan", `{"name":"","batch":-1,"device":"x","schedule":"sine","data":[{"name":"nobody"}]}`, &p)
	fields := ""
	for _, pr := range p.Problems {
		fields += pr.Field + " "
	}
	if fields != "data schedule device " {
		t.Errorf("problems %+v", p.Problems)
	}
	w.do("POST", "/api/runs/plan", with(tiny("r"), "model", map[string]any{"d_model": 1 << 16, "layers": 64, "heads": 64, "ffn": 1 << 16}, "batch", 64), &p)
	if p.Fits || p.Total < 1<<40 {
		t.Errorf("a model of a trillion parameters fits: %+v", p)
	}
	var all planView
	w.do("POST", "/api/runs/plan", `{"name":"r"}`, &all)
	if len(all.Problems) != 1 || all.Problems[0].Field != "data" {
		t.Errorf("%+v", all.Problems)
	}
}

// TestProbeAndProfile: measurements come back, and the plan knows the speed.
func TestProbeAndProfile(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	var probe struct {
		Speed  float64 `json:"tok_per_s"`
		StepMs float64 `json:"step_ms"`
		Total  float64 `json:"total_s"`
	}
	w.job("POST", "/api/runs/probe", tiny("r"), &probe)
	if probe.Speed <= 0 || probe.StepMs <= 0 || math.Abs(probe.Total-40*probe.StepMs/1e3) > 0.02*probe.Total {
		t.Errorf("%+v", probe)
	}
	var p planView
	w.do("POST", "/api/runs/plan", tiny("r"), &p)
	if p.Speed != probe.Speed || p.Seconds <= 0 {
		t.Errorf("the plan has a speed of %v, the probe %v", p.Speed, probe.Speed)
	}
	model := map[string]any{"d_model": 128, "layers": 2, "heads": 2, "ffn": 256} // large enough that a call takes longer than an empty one
	w.do("POST", "/api/runs", with(tiny("r"), "model", model, "context", 64, "max_steps", 1), nil)
	w.ended("r")
	var prof struct {
		Method string
		StepMs float64 `json:"step_ms"`
		Rows   []profileRow
	}
	w.job("POST", "/api/runs/r/profile", nil, &prof)
	share := 0.0
	for _, r := range prof.Rows {
		share += r.Share
	}
	if prof.Method == "" || prof.StepMs <= 0 || len(prof.Rows) < 8 || math.Abs(share-1) > 1e-6 {
		t.Errorf("%d rows, %v ms, shares add up to %v", len(prof.Rows), prof.StepMs, share)
	}
}

// TestEncode: the pieces put together are the text, and start and end fit.
func TestEncode(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.job("POST", "/api/tokenizers", map[string]any{"name": "nfc", "texts": []string{"sample"}, "vocab_size": 300, "nfc": true}, nil)
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 2), nil)
	w.ended("r")
	for _, name := range []string{"tok", "nfc", "model:r"} {
		for _, text := range []string{"", "The weaver sets the loom.", "Dokuma tezgâhı\n\n çalışır 🧵", "a\u0301b", "one<|endoftext|>two", "\x7f\x01"} {
			var out struct {
				Tokens       []shownToken
				Bytes, Words int
				VocabUsed    int     `json:"vocab_used"`
				PerToken     float64 `json:"bytes_per_token"`
				PerWord      float64 `json:"tokens_per_word"`
				Text         *string
			}
			w.do("POST", "/api/tokenizers/"+percent(name)+"/encode", map[string]string{"text": text}, &out)
			about, end := text, 0
			if out.Text != nil {
				about = *out.Text
			}
			for _, tok := range out.Tokens {
				if tok.Start != end || tok.End < tok.Start || tok.End > len(about) {
					t.Fatalf("%s, %q: token %+v after byte %d", name, text, tok, end)
				}
				if piece := about[tok.Start:tok.End]; piece != tok.Text && !strings.Contains(tok.Text, "\uFFFD") {
					t.Errorf("%s, %q: token %+v is not %q", name, text, tok, piece)
				}
				if tok.Special != (tok.Text == documentEnd) {
					t.Errorf("%s, %q: special %+v", name, text, tok)
				}
				end = tok.End
			}
			if end != len(about) || out.Bytes != len(about) || out.Words != len(strings.Fields(about)) {
				t.Errorf("%s, %q: tokens cover %d of %d bytes, %d words", name, text, end, len(about), out.Words)
			}
			if (out.Text != nil) != (name == "nfc" && text == "a\u0301b") {
				t.Errorf("%s, %q: text %v", name, text, out.Text)
			}
		}
	}
}

// TestCancelJob: a canceled build leaves nothing and its name is free again.
func TestCancelJob(t *testing.T) {
	w := newWorkplace(t, func(o *Options) { o.Yield = func(ctx context.Context) { time.Sleep(time.Millisecond) } })
	w.prepare()
	for range 20 {
		w.do("PUT", "/api/texts/big?append=1&label=x.txt", strings.Repeat(sampleDocs(), 20), nil)
	}
	var j Job
	w.do("POST", "/api/data", map[string]any{"name": "d", "texts": []string{"big"}, "tokenizer": "tok"}, &j)
	w.refused("DELETE", "/api/texts/big", nil, "busy")
	w.do("DELETE", "/api/jobs/"+j.ID, nil, nil)
	if j = w.wait(j.ID); j.State != "canceled" {
		t.Fatalf("%+v", j)
	}
	if w.left() != "" {
		t.Errorf("left over: %s", w.left())
	}
	w.do("DELETE", "/api/texts/big", nil, nil)
	w.job("POST", "/api/data", map[string]any{"name": "d", "texts": []string{"sample"}, "tokenizer": "tok"}, nil)
}

// hangUp is an answer whose reader leaves after some messages.
type hangUp struct {
	answer
	after  int
	cancel func()
}

func (h *hangUp) Flush() error {
	if h.after--; h.after == 0 {
		h.cancel()
	}
	return nil
}

// TestGenerationEndsWithItsReader, and the next one gets the model at once.
func TestGenerationEndsWithItsReader(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("r"), "max_steps", 5), nil)
	w.ended("r")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := &hangUp{after: 4, cancel: cancel}
	req, _ := NewRequest("POST", "/api/generate", strings.NewReader(`{"model":"r","prompt":"The","max_tokens":1000000,"ignore_end":true}`), -1)
	w.s.Serve(ctx, h, req)
	list := h.messages(t)
	if len(list) < 4 || len(list) > 6 || list[len(list)-1]["reason"] != "canceled" {
		t.Errorf("%d messages, the last %v", len(list), list[len(list)-1])
	}
	w.greedy("r")
	if n := w.s.Generated(); n < 12 || n > 20 {
		t.Errorf("%d tokens are counted", n)
	}
}

// openAI makes a request of the other interface that must succeed.
func (w *workplace) openAI(path string, body any) map[string]any {
	w.t.Helper()
	var out map[string]any
	w.do("POST", path, body, &out)
	return out
}

func TestOpenAI(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", tiny("r"), nil)
	w.ended("r")
	var models struct {
		Object string
		Data   []map[string]any
	}
	w.do("GET", "/v1/models", nil, &models)
	if models.Object != "list" || len(models.Data) != 1 || models.Data[0]["id"] != "r" || models.Data[0]["object"] != "model" {
		t.Errorf("%+v", models)
	}
	out := w.openAI("/v1/completions", map[string]any{"model": "r", "prompt": "The", "max_tokens": 6, "temperature": 0, "user": "me", "n": 1, "logprobs": nil, "stop": nil})
	choice := out["choices"].([]any)[0].(map[string]any)
	usage := out["usage"].(map[string]any)
	if out["object"] != "text_completion" || choice["text"] == "" || choice["finish_reason"] != "length" || usage["completion_tokens"] != 6.0 ||
		usage["total_tokens"] != usage["prompt_tokens"].(float64)+6 || out["model"] != "r" || !strings.HasPrefix(out["id"].(string), "cmpl-") {
		t.Errorf("%v", out)
	}
	a := w.raw("POST", "/v1/completions", map[string]any{"model": "r", "prompt": []string{"The"}, "max_tokens": 6, "temperature": 0, "stream": true})
	text, reason := "", any(nil)
	for _, m := range a.messages(t) {
		c := m["choices"].([]any)[0].(map[string]any)
		text += c["text"].(string)
		reason = c["finish_reason"]
	}
	if text != choice["text"] || reason != "length" || !strings.HasSuffix(a.text(), "data: [DONE]\n\n") {
		t.Errorf("streamed %q (%v), whole %q", text, reason, choice["text"])
	}
	for field, value := range map[string]any{
		"n": 2, "logprobs": 3, "echo": true, "presence_penalty": 0.5, "tools": []any{map[string]any{}}, "response_format": map[string]any{"type": "json_object"},
		"temprature": 1, "max_tokens": 0, "prompt": []int{1, 2},
	} {
		a := w.raw("POST", "/v1/completions", map[string]any{"model": "r", field: value})
		var e struct{ Error map[string]any }
		if err := json.Unmarshal([]byte(a.text()), &e); err != nil || a.status != 400 || e.Error["param"] != field || e.Error["type"] != "invalid_request_error" {
			t.Errorf("%s %v: %d %s", field, value, a.status, a.text())
		}
	}
	if a := w.raw("POST", "/v1/chat/completions", map[string]any{"model": "r", "messages": []map[string]string{{"role": "user", "content": "hi"}}}); a.status != 400 {
		t.Errorf("a model without template chats: %s", a.text())
	}
}

// chats are conversations to fine-tune on.
func chats() string {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"What does weaver %d set?"},{"role":"assistant","content":"The loom %d."}]}`+"\n", i%5, i%5)
	}
	return b.String()
}

// TestChat fine-tunes a model on conversations and talks to it, in both
// interfaces.
func TestChat(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("base"), "context", 64), nil)
	w.ended("base")
	w.do("PUT", "/api/texts/talk?label=talk.jsonl", chats(), nil)
	sft := map[string]any{"name": "talker", "sft": []string{"talk"}, "init": "base", "batch": 4, "context": 64, "max_steps": 12, "lr": 3e-3,
		"sample_every": 6, "sample_prompt": "What does weaver 1 set?"}
	var p planView
	if w.do("POST", "/api/runs/plan", sft, &p); len(p.Problems) > 0 {
		t.Fatalf("%+v", p.Problems)
	}
	w.do("POST", "/api/runs", sft, nil)
	r := w.ended("talker")
	m, err := w.s.model("talker")
	if err != nil || r.State != "done" || m.ChatTemplate != "chatml" || r.Sample == nil {
		t.Fatalf("%+v, %+v, %v", r, m, err)
	}
	messages := []map[string]string{{"role": "system", "content": "Answer."}, {"role": "user", "content": "What does weaver 1 set?"}}
	a := w.raw("POST", "/api/chat", map[string]any{"model": "talker", "messages": messages, "max_tokens": 8, "seed": 1, "temperature": 0})
	list := a.messages(t)
	if a.status != 200 || list[0]["type"] != "start" || list[0]["prompt_tokens"].(float64) < 10 || list[len(list)-1]["type"] != "end" {
		t.Fatalf("%s", a.text())
	}
	out := w.openAI("/v1/chat/completions", map[string]any{"model": "talker", "messages": messages, "max_completion_tokens": 8, "temperature": 0})
	message := out["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
	if out["object"] != "chat.completion" || message["role"] != "assistant" || message["content"] != pieces(t, a) {
		t.Errorf("%v, want the content %q", out, pieces(t, a))
	}
	s := w.raw("POST", "/v1/chat/completions", map[string]any{"model": "talker", "messages": messages, "max_tokens": 8, "temperature": 0, "stream": true})
	text, role := "", any(nil)
	for i, m := range s.messages(t) {
		d := m["choices"].([]any)[0].(map[string]any)["delta"].(map[string]any)
		if i == 0 {
			role = d["role"]
		}
		if c, ok := d["content"].(string); ok {
			text += c
		}
	}
	if text != message["content"] || role != "assistant" {
		t.Errorf("streamed %q as %v, want %q", text, role, message["content"])
	}
	// A conversation that is longer than the context loses its oldest turns.
	var long []map[string]string
	for i := range 20 {
		long = append(long, map[string]string{"role": "user", "content": fmt.Sprint("question ", i)}, map[string]string{"role": "assistant", "content": "yes"})
	}
	long = append(long, messages[1])
	if a = w.raw("POST", "/api/chat", map[string]any{"model": "talker", "messages": long, "max_tokens": 4}); !strings.Contains(a.text(), "does not see the first") {
		t.Errorf("no note of what was left out: %s", a.text())
	}
	w.refused("POST", "/api/chat", map[string]any{"model": "talker", "messages": []map[string]string{{"role": "tool", "content": "x"}}}, "bad_request")
}

// TestAdapters trains adapters on conversations: the run's checkpoints can be
// talked to, and its end is a whole model.
func TestAdapters(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	w.do("POST", "/api/runs", with(tiny("base"), "context", 64, "max_steps", 5), nil)
	w.ended("base")
	w.do("PUT", "/api/texts/talk?label=talk.jsonl", chats(), nil)
	w.do("POST", "/api/runs", map[string]any{"name": "lora", "sft": []string{"talk"}, "init": "base", "lora": map[string]any{"rank": 4},
		"batch": 2, "context": 64, "max_steps": 1 << 40, "checkpoint_every": 5}, nil)
	w.until("lora", func(r runView) bool { return len(r.Checkpoints) > 0 })
	w.do("POST", "/api/runs/lora/pause", nil, nil)
	m, err := w.s.model("lora")
	if err != nil || !m.Adapters || m.ChatTemplate != "chatml" {
		t.Fatalf("%+v, %v", m, err)
	}
	w.greedy("lora")
	w.refused("GET", "/api/models/lora/download", nil, "busy")
	w.do("POST", "/api/runs/lora/stop", nil, nil)
	if m, err = w.s.model("lora"); err != nil || m.Adapters {
		t.Fatalf("%+v, %v", m, err)
	}
	if a := w.raw("GET", "/api/models/lora/download", nil); a.status != 200 {
		t.Error(a.text())
	}
	w.do("POST", "/api/runs/lora/fork", map[string]any{"name": "more", "max_steps": 3}, nil)
	if r := w.ended("more"); r.State != "done" {
		t.Errorf("a fork of adapters: %+v", r)
	}
}

// TestTokenFilesAndTokenizersTravel: what is downloaded can be brought in again.
func TestTokenFilesAndTokenizersTravel(t *testing.T) {
	w := newWorkplace(t, nil)
	w.prepare()
	tok, data := w.raw("GET", "/api/tokenizers/tok", nil), w.raw("GET", "/api/data/data", nil)
	if !strings.Contains(data.header["Content-Disposition"], `filename="data.bin"`) || data.header["Content-Length"] != fmt.Sprint(data.body.Len()) {
		t.Errorf("%v", data.header)
	}
	w2 := newWorkplace(t, nil)
	w2.do("PUT", "/api/tokenizers/tok", tok.body.Bytes(), nil)
	var d Data
	w2.do("PUT", "/api/data/data", data.body.Bytes(), &d)
	var list []Data
	w.do("GET", "/api/data", nil, &list)
	if d.Tokens != list[0].Tokens || d.Tokenizer != list[0].Tokenizer {
		t.Errorf("%+v, want %+v", d, list[0])
	}
	damaged := append([]byte{}, data.body.Bytes()...)
	damaged[len(damaged)/2] ^= 1
	w2.refused("PUT", "/api/data/other", damaged, "bad_request")
	w2.do("DELETE", "/api/tokenizers/tok", nil, nil)
	w2.do("DELETE", "/api/data/data", nil, nil)
}

// TestStatus has what the page builds its forms from.
func TestStatus(t *testing.T) {
	w := newWorkplace(t, func(o *Options) { o.Notices = []string{"hello"}; o.Persistent = func() bool { return false } })
	var s struct {
		Version, Place, Device string
		Devices                []Device
		Presets                []struct {
			Name   string
			Params int
			Model  map[string]any
		}
		Notices []string
		Storage struct {
			Used, Free int64
			Persistent bool
		}
		Threads int
		F16     bool
		Free    int64 `json:"free_memory"`
	}
	w.do("GET", "/api/status", nil, &s)
	if s.Version != "test" || s.Place != "server" || s.Device == "" || len(s.Devices) != 2 || len(s.Presets) < 6 || s.Presets[0].Params < 1e5 ||
		len(s.Notices) != 1 || s.Storage.Persistent || s.Threads != 1 || s.Free <= 0 {
		t.Errorf("%+v", s)
	}
}

// TestRequestTargets reads what a browser may put into one.
func TestRequestTargets(t *testing.T) {
	r, err := NewRequest("GET", "/api/texts/%C3%87ekirge%20a?label=a+b%2B&append=1&x&&append=0", nil, 0)
	if err != nil || r.Path != "/api/texts/Çekirge a" || r.Query["label"] != "a b+" || r.Query["append"] != "0" || r.Query["x"] != "" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"/%", "/%4", "/%zz", "/x?%"} {
		if _, err := NewRequest("GET", bad, nil, 0); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// FuzzServe: no request makes the service panic, whatever its path and body.
func FuzzServe(f *testing.F) {
	for _, r := range routes {
		f.Add(r.method, strings.ReplaceAll(strings.ReplaceAll(r.pattern, "{name}", "x"), "{id}", "1"), `{"name":"x","model":"x","texts":["sample"]}`)
	}
	opt := testOptions(f.TempDir())
	s, err := New(opt)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, method, target, body string) {
		if strings.HasSuffix(target, "/events") {
			return // they do not end
		}
		req, err := NewRequest(method, target, io.Reader(strings.NewReader(body)), int64(len(body)))
		if err != nil {
			return
		}
		a := &answer{}
		s.Serve(context.Background(), a, req)
		if a.status == 0 {
			t.Errorf("%s %q: no answer", method, target)
		}
	})
}
