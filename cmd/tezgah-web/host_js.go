package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"syscall/js"
)

// host is what the worker's script offers: interface Host in
// workbench/web/src/worker/program.ts.
type host struct{ v js.Value }

func findHost() (host, error) {
	v := js.Global().Get("tezgahHost")
	if v.IsUndefined() {
		return host{}, errors.New("there is no worker of the workbench around this program: open the page")
	}
	return host{v}, nil
}

func (h host) ready(serve js.Func) { h.v.Call("ready", serve) }

// storage asks the browser for the bytes used and allowed, and for its promise
// to keep them.
func (h host) storage() (used, quota int64, persistent bool) {
	v, err := await(h.v.Call("storage"))
	if err != nil {
		return 0, 0, false
	}
	return int64(v.Index(0).Float()), int64(v.Index(1).Float()), v.Index(2).Bool()
}

func (h host) freeDisk() int64 {
	used, quota, _ := h.storage()
	return max(0, quota-used)
}

func (h host) persistent() bool {
	_, _, persistent := h.storage()
	return persistent
}

// sampleFile is the sample text's name beside the worker's script.
const sampleFile = "sample.txt.gz"

// sample fetches the sample text.
func (h host) sample(context.Context) (io.ReadCloser, error) {
	v, err := await(h.v.Call("asset", sampleFile))
	if err != nil {
		return nil, err
	}
	if v.IsNull() {
		return nil, errors.New(sampleFile + " is not where the page came from")
	}
	b := make([]byte, v.Length())
	js.CopyBytesToGo(b, v)
	return io.NopCloser(bytes.NewReader(b)), nil
}

// notices are lines for the user about this browser.
func (h host) notices() []string {
	if h.v.Get("keepsFiles").Bool() {
		return nil
	}
	return []string{"this browser, or its private window, has no file system for pages: everything made here is gone when the tab closes. " +
		"Download what you want to keep, or use a normal window of Chrome or Edge 108, Firefox 111, Safari 17 or newer"}
}

// await waits for a promise. The event loop turns meanwhile.
func await(promise js.Value) (js.Value, error) {
	type result struct {
		value js.Value
		err   error
	}
	done := make(chan result, 1)
	resolve := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- result{value: args[0]}
		return nil
	})
	defer resolve.Release()
	reject := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- result{err: js.Error{Value: args[0]}}
		return nil
	})
	defer reject.Release()
	promise.Call("then", resolve, reject)
	r := <-done
	return r.value, r.err
}

// version is the version that the build stamped, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "development"
}
