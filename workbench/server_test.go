package workbench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/common/expfmt"
	commonmodel "github.com/prometheus/common/model"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/workbench/engine"
)

const testToken = "0123456789abcdef"

// zipped packs a file of the page.
func zipped(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b.Bytes()
}

// testPage is a built page in small.
func testPage() fstest.MapFS {
	return fstest.MapFS{
		"index.html":     {Data: []byte("<!doctype html><title>page</title>")},
		"app.js":         {Data: []byte("let x = 1")},
		"app.js.br":      {Data: []byte("br of app.js")},
		"app.js.gz":      {Data: zipped("let x = 1")},
		"engine.wasm.gz": {Data: zipped("\x00asm")},
		"fonts/a.woff2":  {Data: []byte("font")},
		"sample.txt.gz":  {Data: zipped("text")},
	}
}

// site is a server on a port, with its client.
type site struct {
	t   *testing.T
	srv *Server
	url string
}

func newService(t *testing.T, dir string) *engine.Service {
	t.Helper()
	s, err := engine.New(engine.Options{
		Dir: dir, Place: "server", Version: "test", Device: "cpu", Threads: 1,
		OpenBackend: func(string) (op.Backend, string, error) {
			b, err := cpu.New(cpu.Options{Threads: 1})
			return b, "", err
		},
		Devices: func() []engine.Device { return []engine.Device{{ID: "cpu", Name: "CPU", Kind: "cpu"}} },
		Sample: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("The weaver sets the loom, and the loom weaves.<|endoftext|>", 400))), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := newService(t, t.TempDir())
	srv, err := New(Options{Service: s, Token: testToken, Version: "v1", Device: "a CPU", Hosts: []string{"train.example.org"}, Page: testPage()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv)
	t.Cleanup(func() {
		s.Close(context.Background())
		h.Close()
	})
	return &site{t, srv, h.URL}
}

// ask makes a request; header holds pairs, and "Host" among them sets the Host.
func (s *site) ask(method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	// Kept alive, each of thousands of polls would hold two files until the process ends.
	res, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	return res
}

// auth asks with the token and reads the answer.
func (s *site) auth(method, path, body string) (int, string) {
	s.t.Helper()
	res := s.ask(method, path, body, "Authorization", "Bearer "+testToken)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// get asks with the token, must succeed, and decodes the answer.
func (s *site) get(method, path string, body, out any) {
	s.t.Helper()
	b, _ := json.Marshal(body)
	status, text := s.auth(method, path, string(b))
	if status != 200 {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestAccess(t *testing.T) {
	s := newSite(t)
	bearer := []string{"Authorization", "Bearer " + testToken}
	own := strings.TrimPrefix(s.url, "http://")
	cases := []struct {
		name, method, path string
		header             []string
		want               int
	}{
		{"token", "GET", "/api/status", bearer, 200},
		{"no token", "GET", "/api/status", nil, 401},
		{"wrong token", "GET", "/api/status", []string{"Authorization", "Bearer 0123456789abcdeF"}, 401},
		{"shorter token", "GET", "/api/status", []string{"Authorization", "Bearer 0123456789abcde"}, 401},
		{"empty token", "GET", "/api/status", []string{"Authorization", "Bearer "}, 401},
		{"basic", "GET", "/api/status", []string{"Authorization", testToken}, 401},
		{"token in the query", "GET", "/api/status?token=" + testToken, nil, 200},
		{"token in the query of a change", "DELETE", "/api/texts/x?token=" + testToken, nil, 401},
		{"metrics without token", "GET", "/metrics", nil, 401},
		{"metrics", "GET", "/metrics", bearer, 200},
		{"v1 without token", "GET", "/v1/models", nil, 401},
		{"v1", "GET", "/v1/models", bearer, 200},
		{"page", "GET", "/?token=anything", nil, 200},
		{"own origin", "GET", "/api/status", append([]string{"Origin", s.url}, bearer...), 200},
		{"foreign origin", "GET", "/api/status", append([]string{"Origin", "https://evil.example"}, bearer...), 403},
		{"origin of another port", "GET", "/api/status", append([]string{"Origin", "http://127.0.0.1:1"}, bearer...), 403},
		{"no origin at all", "GET", "/api/status", append([]string{"Origin", "null"}, bearer...), 403},
		{"foreign image", "GET", "/api/status?token=" + testToken, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"link from elsewhere", "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"foreign host", "GET", "/api/status", append([]string{"Host", "evil.example"}, bearer...), 403},
		{"foreign host, page", "GET", "/", []string{"Host", "evil.example:80"}, 403},
		{"localhost", "GET", "/api/status", append([]string{"Host", "localhost:7777"}, bearer...), 200},
		{"an address", "GET", "/api/status", append([]string{"Host", "192.168.1.4:7777"}, bearer...), 200},
		{"IPv6", "GET", "/api/status", append([]string{"Host", "[::1]:7777"}, bearer...), 200},
		{"allowed name", "GET", "/api/status", append([]string{"Host", "Train.Example.org"}, bearer...), 200},
		{"name that ends like an allowed one", "GET", "/api/status", append([]string{"Host", "localhost.evil.example"}, bearer...), 403},
		{"own host", "GET", "/api/status", append([]string{"Host", own}, bearer...), 200},
		{"writing a page's file", "PUT", "/index.html", bearer, 405},
	}
	for _, c := range cases {
		res := s.ask(c.method, c.path, "", c.header...)
		if res.StatusCode != c.want {
			b, _ := io.ReadAll(res.Body)
			t.Errorf("%s: status %d, want %d: %s", c.name, res.StatusCode, c.want, b)
		}
		for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Opener-Policy", "Referrer-Policy"} {
			if res.Header.Get(h) == "" {
				t.Errorf("%s: no header %s", c.name, h)
			}
		}
	}
	if res := s.ask("GET", "/api/nothing", "", bearer...); res.StatusCode != 404 || res.Header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("unknown request: %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
}

func TestPageFiles(t *testing.T) {
	s := newSite(t)
	cases := []struct{ path, accept, typ, encoding, body string }{
		{"/", "gzip, br", "text/html; charset=utf-8", "", "<!doctype html><title>page</title>"},
		{"/app.js", "gzip, deflate, br;q=1.0", "text/javascript; charset=utf-8", "br", "br of app.js"},
		{"/app.js", "gzip, br;q=0", "text/javascript; charset=utf-8", "gzip", string(zipped("let x = 1"))},
		{"/app.js", "", "text/javascript; charset=utf-8", "", "let x = 1"},
		{"/engine.wasm", "br, gzip", "application/wasm", "gzip", string(zipped("\x00asm"))},
		{"/engine.wasm", "identity", "application/wasm", "", "\x00asm"},
		{"/fonts/a.woff2", "br", "font/woff2", "", "font"},
		{"/x/../app.js", "", "text/javascript; charset=utf-8", "", "let x = 1"},
		{"/sample.txt.gz", "gzip", "application/gzip", "", string(zipped("text"))},
	}
	for _, c := range cases {
		res := s.ask("GET", c.path, "", "Accept-Encoding", c.accept)
		b, _ := io.ReadAll(res.Body)
		h := res.Header
		if res.StatusCode != 200 || h.Get("Content-Type") != c.typ || h.Get("Content-Encoding") != c.encoding || string(b) != c.body || h.Get("Vary") == "" {
			t.Errorf("%s, %q: %d, %q, %q, %q", c.path, c.accept, res.StatusCode, h.Get("Content-Type"), h.Get("Content-Encoding"), b)
		}
		again := s.ask("GET", c.path, "", "Accept-Encoding", c.accept, "If-None-Match", h.Get("ETag"))
		if again.StatusCode != 304 {
			t.Errorf("%s again: %d, want 304", c.path, again.StatusCode)
		}
	}
	for _, path := range []string{"/nothing.js", "/../../etc/passwd", "/%2e%2e/x", "/fonts", "/app.js/"} {
		if res := s.ask("GET", path, ""); path != "/app.js/" && res.StatusCode != 404 {
			t.Errorf("%s: %d, want 404", path, res.StatusCode)
		}
	}
}

// TestMissingPage: without a built page the server says how to build it.
func TestMissingPage(t *testing.T) {
	p := newPage(nil)
	for path, want := range map[string]int{"/": 200, "/app.js": 404} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want || !strings.Contains(w.Body.String(), "make web") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestWritePage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	n, size, err := WritePage(testPage(), dir, false)
	if err != nil || n != len(testPage()) || size == 0 {
		t.Fatalf("%d files, %d bytes, %v", n, size, err)
	}
	for name, want := range map[string]string{"engine.wasm.gz": string(zipped("\x00asm")), "fonts/a.woff2": "font", "app.js.br": "br of app.js", "index.html": "<!doctype html><title>page</title>"} {
		if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("mine"), 0o666)
	if _, _, err := WritePage(testPage(), dir, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a folder that is not empty: %v", err)
	}
	if _, _, err := WritePage(testPage(), dir, true); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "mine.txt")); string(b) != "mine" {
		t.Error("a file of the folder is gone")
	}
	if _, _, err := WritePage(nil, dir, true); err == nil || !strings.Contains(err.Error(), "make web") {
		t.Errorf("no page: %v", err)
	}
}

// prepare makes a tokenizer and a token file over HTTP.
func (s *site) prepare() {
	s.t.Helper()
	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"/api/tokenizers", map[string]any{"name": "tok", "texts": []string{"sample"}, "vocab_size": 280}},
		{"/api/data", map[string]any{"name": "data", "texts": []string{"sample"}, "tokenizer": "tok"}},
	} {
		var j engine.Job
		s.get("POST", step.path, step.body, &j)
		for j.State == "running" {
			var all []engine.Job
			s.get("GET", "/api/jobs", nil, &all)
			j = all[len(all)-1]
		}
		if j.State != "done" {
			s.t.Fatalf("%s: %+v", step.path, j)
		}
	}
}

// train starts a run over HTTP.
func (s *site) train(name string, steps int) {
	s.t.Helper()
	s.get("POST", "/api/runs", map[string]any{
		"name": name, "data": []map[string]any{{"name": "data"}}, "batch": 2, "context": 16, "max_steps": steps, "checkpoint_every": 10,
		"model": map[string]any{"d_model": 16, "layers": 1, "heads": 2, "kv_heads": 1, "ffn": 32},
	}, nil)
}

// until waits for a run's state.
func (s *site) until(name string, ok func(state string, step float64) bool) {
	s.t.Helper()
	for {
		var r map[string]any
		s.get("GET", "/api/runs/"+name, nil, &r)
		if r["state"] == "failed" {
			s.t.Fatalf("the run failed: %v", r["error"])
		}
		if ok(r["state"].(string), r["step"].(float64)) {
			return
		}
		time.Sleep(3 * time.Millisecond)
	}
}

// TestStreamsArriveAtOnce reads events while a run is on its way: each message
// must come before the answer ends.
func TestStreamsArriveAtOnce(t *testing.T) {
	s := newSite(t)
	s.prepare()
	s.train("r", 1<<40)
	res := s.ask("GET", "/api/runs/r/events", "", "Authorization", "Bearer "+testToken)
	sc := bufio.NewScanner(res.Body)
	steps := 0
	for steps < 5 && sc.Scan() {
		if strings.Contains(sc.Text(), `"type":"step"`) {
			steps++
		}
	}
	if steps < 5 {
		t.Fatalf("the stream ended after %d steps: %v", steps, sc.Err())
	}
	s.get("POST", "/api/runs/r/pause", nil, nil)
}

func TestMetrics(t *testing.T) {
	s := newSite(t)
	s.prepare()
	s.train("r", 20)
	s.until("r", func(state string, _ float64) bool { return state == "done" })
	s.auth("POST", "/api/generate", `{"model":"r","prompt":"The","max_tokens":7,"ignore_end":true}`)
	s.ask("GET", "/api/status", "")
	status, text := s.auth("GET", "/metrics", "")
	if status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	parser := expfmt.NewTextParser(commonmodel.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string, labels ...string) float64 {
		f, ok := families[name]
		if !ok {
			t.Errorf("no metric %s", name)
			return 0
		}
	metrics:
		for _, m := range f.Metric {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.Label {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue metrics
				}
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		t.Errorf("no %s with %v", name, labels)
		return 0
	}
	for _, c := range []struct {
		name   string
		want   float64
		labels []string
	}{
		{"tezgah_run_step", 20, []string{"run", "r"}},
		{"tezgah_run_tokens_total", 20 * 32, []string{"run", "r"}},
		{"tezgah_run_nonfinite_total", 0, []string{"run", "r"}},
		{"tezgah_run_running", 0, []string{"run", "r"}},
		{"tezgah_generated_tokens_total", 7, nil},
		{"tezgah_info", 1, []string{"version", "v1", "device", "a CPU"}},
		{"tezgah_requests_total", 1, []string{"path", "refused", "code", "401"}},
		{"tezgah_requests_total", 1, []string{"path", "/api/generate", "code", "200"}},
	} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	for _, name := range []string{"tezgah_run_loss", "tezgah_run_val_loss", "tezgah_run_learning_rate", "tezgah_run_grad_norm", "go_goroutines"} {
		if value(name) <= 0 {
			t.Errorf("%s is not positive", name)
		}
	}
	if strings.Contains(text, `path="/api/runs/r"`) {
		t.Error("requests are counted by name, which has no bound")
	}
}

// TestServeEndsWithASave: a server that ends while a run trains pauses it, and
// the next one finds it and goes on.
func TestServeEndsWithASave(t *testing.T) {
	dir := t.TempDir()
	start := func() (*site, context.CancelFunc, chan error) {
		srv, err := New(Options{Service: newService(t, dir), Token: testToken, Page: testPage()})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(ctx, ln) }()
		return &site{t, srv, "http://" + ln.Addr().String()}, cancel, ended
	}
	s, stop, ended := start()
	s.prepare()
	s.train("r", 1<<40)
	events := s.ask("GET", "/api/events", "", "Authorization", "Bearer "+testToken)
	s.until("r", func(_ string, step float64) bool { return step >= 15 })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(events.Body); err != nil {
		t.Errorf("the event stream broke off: %v", err)
	}
	s, stop, ended = start()
	var r map[string]any
	s.get("GET", "/api/runs/r", nil, &r)
	step := r["step"].(float64)
	checkpoints := r["checkpoints"].([]any)
	last := checkpoints[len(checkpoints)-1].(map[string]any)
	if r["state"] != "paused" || step < 15 || last["step"] != step {
		t.Errorf("after the restart: state %v, step %v, newest checkpoint %v", r["state"], step, last)
	}
	s.get("POST", "/api/runs/r/resume", map[string]any{"max_steps": step + 5}, nil)
	s.until("r", func(state string, now float64) bool { return state == "done" && now == step+5 })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestOpenAIOverHTTP(t *testing.T) {
	s := newSite(t)
	s.prepare()
	s.train("r", 10)
	s.until("r", func(state string, _ float64) bool { return state == "done" })
	status, text := s.auth("POST", "/v1/completions", `{"model":"r","prompt":"The","max_tokens":5,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
	if status != 200 || !strings.HasSuffix(text, "data: [DONE]\n\n") || !strings.Contains(text, `"object":"text_completion"`) || !strings.Contains(text, `"usage":{`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text = s.auth("POST", "/v1/completions", `{"model":"nobody","prompt":"x"}`); status != 404 || !strings.Contains(text, `"type":"invalid_request_error"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestTokens are random and fit into a URL.
func TestTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		tok := NewToken()
		if len(tok) != 22 || seen[tok] || strings.ContainsAny(tok, "+/=&?") {
			t.Errorf("token %q", tok)
		}
		seen[tok] = true
	}
	if _, err := New(Options{}); err == nil {
		t.Error(fmt.Errorf("a server without service and token was made"))
	}
}
