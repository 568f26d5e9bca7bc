package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall/js"

	"tezgah/workbench/engine"
)

// serve answers one request of the page: class Exchange in
// workbench/web/src/worker/exchange.ts.
func serve(s *engine.Service, x js.Value) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	onAbort := js.FuncOf(func(js.Value, []js.Value) any {
		cancel()
		return nil
	})
	defer onAbort.Release()
	x.Set("onabort", onAbort)
	defer x.Set("onabort", js.Null())
	if x.Get("aborted").Bool() { // before this goroutine ran
		cancel()
	}

	w := &answer{ctx: ctx, x: x}
	defer w.end()
	size := x.Get("size").Int()
	var body io.Reader
	if size >= 0 {
		body = &bodyReader{ctx: ctx, x: x}
	}
	r, err := engine.NewRequest(x.Get("method").String(), x.Get("path").String(), body, int64(size))
	if err != nil {
		w.Start(400, map[string]string{"Content-Type": "application/json"})
		fmt.Fprintf(w, `{"error":{"code":"bad_request","message":%q}}`, err)
		return
	}
	s.Serve(ctx, w, r)
}

// chunkBytes is the size of the parts that an answer goes to the page in.
const chunkBytes = 256 << 10

// answer is the engine.ResponseWriter of one request. It gathers what is
// written until Flush, or until there is a chunk.
type answer struct {
	ctx context.Context
	x   js.Value
	buf []byte
}

func (a *answer) Start(status int, header map[string]string) {
	h := make(map[string]any, len(header))
	for k, v := range header {
		h[k] = v
	}
	a.x.Call("start", status, h)
}

func (a *answer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), chunkBytes-len(a.buf))
		a.buf = append(a.buf, p[:k]...)
		p = p[k:]
		if len(a.buf) == chunkBytes {
			if err := a.Flush(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, a.ctx.Err()
}

func (a *answer) Flush() error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if len(a.buf) > 0 {
		chunk := js.Global().Get("Uint8Array").New(len(a.buf))
		js.CopyBytesToJS(chunk, a.buf)
		a.x.Call("chunk", chunk)
		a.buf = a.buf[:0]
	}
	return nil
}

func (a *answer) end() {
	a.Flush()
	a.x.Call("end")
}

// bodyReader reads a request's body, which may be a file larger than memory,
// part by part as it is asked for.
type bodyReader struct {
	ctx  context.Context
	x    js.Value
	part []byte
}

func (b *bodyReader) Read(p []byte) (int, error) {
	for len(b.part) == 0 {
		if err := b.pull(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.part)
	b.part = b.part[n:]
	return n, nil
}

// pull gets the next part from the page.
func (b *bodyReader) pull() error {
	done := make(chan error, 1)
	f := js.FuncOf(func(_ js.Value, args []js.Value) any {
		switch fault, part := args[0], args[1]; {
		case fault.Truthy():
			done <- errors.New("the file cannot be read to its end: " + fault.String())
		case part.IsNull():
			done <- io.EOF
		default:
			b.part = make([]byte, part.Length())
			js.CopyBytesToGo(b.part, part)
			done <- nil
		}
		return nil
	})
	b.x.Call("pull", f)
	select {
	case err := <-done:
		f.Release()
		return err
	case <-b.ctx.Done():
		go func() { // the callback still comes
			<-done
			f.Release()
		}()
		return b.ctx.Err()
	}
}
