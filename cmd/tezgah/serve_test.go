package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tezgah/workbench"
)

// freePort finds a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestServe starts the workbench, asks it something and ends it.
func TestServe(t *testing.T) {
	dir, addr := filepath.Join(t.TempDir(), "wb"), freePort(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		out, errOut string
		code        int
	}
	ended := make(chan result, 1)
	go func() {
		out, errOut, code := invoke(t, ctx, "serve", "--dir", dir, "--addr", addr, "--device", "cpu", "--threads", "1", "--open=false")
		ended <- result{out, errOut, code}
	}()
	status := askStatus(t, "http://"+addr, filepath.Join(dir, tokenFile), ended)
	cancel()
	r := <-ended
	if r.code != exitDone || status["place"] != "server" || status["default_device"] != "cpu" || status["dir"] != dir {
		t.Errorf("exit code %d, status %v\n%s%s", r.code, status, r.out, r.errOut)
	}
	token, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil || !strings.Contains(r.out, "http://"+addr+"/?token="+strings.TrimSpace(string(token))) {
		t.Errorf("the URL is not in\n%s", r.out)
	}
	if fi, err := os.Stat(filepath.Join(dir, tokenFile)); runtime.GOOS != "windows" && (err != nil || fi.Mode().Perm() != 0o600) {
		t.Errorf("the token's file: %v, %v", fi.Mode(), err)
	}
}

// askStatus asks until the server answers; one that ends instead fails the
// test.
func askStatus[T any](t *testing.T, url, tokenPath string, ended <-chan T) (status map[string]any) {
	t.Helper()
	for {
		select {
		case r := <-ended:
			t.Fatalf("serve ended: %+v", r)
		case <-time.After(10 * time.Millisecond):
		}
		token, err := os.ReadFile(tokenPath)
		if err != nil {
			continue
		}
		req, _ := http.NewRequest("GET", url+"/api/status", nil)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || json.Unmarshal(b, &status) != nil {
			t.Fatalf("%d %s", res.StatusCode, b)
		}
		return status
	}
}

func TestServeUsage(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--addr", "7777"}, {"--dir", ""}, {"--token", "short"}, {"--token", "with spaces in it, long"}, {"--max-upload", "0"},
		{"--host", "http://x"}, {"--threads", "-1"},
	} {
		args = append([]string{"serve", "--open=false", "--device", "cpu"}, args...)
		if args[4] != "--dir" {
			args = append(args, "--dir", dir)
		}
		if _, errOut, code := invoke(t, context.Background(), args...); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, exitUsage, errOut)
		}
	}
}

// TestListen: a port that somebody asked for is not replaced by another, the
// usual one is.
func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	if ln, err := listen(addr, true); err == nil || !strings.Contains(err.Error(), "--addr") {
		t.Errorf("a port in use was opened: %v, %v", ln, err)
	}
	ln, err := listen(addr, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ln.Addr().String() == addr {
		t.Error("one port for two")
	}
	if got := urlHost(&net.TCPAddr{IP: net.IPv4zero, Port: 80}); got != "127.0.0.1:80" {
		t.Errorf("the URL of 0.0.0.0 is %s", got)
	}
}

// TestSampleText: the sample is text with separators, and not endless.
func TestSampleText(t *testing.T) {
	open := sampleText()
	if open == nil {
		t.Skip("neither page nor Go source here")
	}
	r, err := open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	head := make([]byte, 1<<16)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	gz := head[0] == 0x1f && head[1] == 0x8b
	if !gz && !strings.Contains(string(head), "<|endoftext|>") {
		t.Errorf("no end of a document in %.200q", head)
	}
}

func TestWebBuild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	_, errOut, code := invoke(t, context.Background(), "web", "build", dir)
	if workbench.EmbeddedPage() == nil {
		if code != exitFailed || !strings.Contains(errOut, "make web") {
			t.Errorf("without a page: exit code %d, %s", code, errOut)
		}
		return
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); code != exitDone || err != nil {
		t.Errorf("exit code %d, %v: %s", code, err, errOut)
	}
	if _, errOut, code = invoke(t, context.Background(), "web", "build", dir); code != exitFailed || !strings.Contains(errOut, "--force") {
		t.Errorf("a second time: exit code %d, %s", code, errOut)
	}
}
