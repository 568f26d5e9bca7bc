package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"
)

// hub carries messages to every open event stream. A slow reader does not hold
// anybody up: of messages with the same key only the newest waits for it.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]bool
	n    uint64 // for keys of messages that must all arrive
}

// subscriber is one open stream.
type subscriber struct {
	mu      sync.Mutex
	order   []string // keys in order of their first message
	waiting map[string][]byte
	wake    chan struct{} // holds one token while something waits
}

// most messages that wait for one reader; beyond that the oldest go.
const maxWaiting = 1000

func (h *hub) subscribe() *subscriber {
	sub := &subscriber{waiting: map[string][]byte{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*subscriber]bool{}
	}
	h.subs[sub] = true
	return sub
}

func (h *hub) unsubscribe(sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, sub)
}

// publish sends v, as JSON, to every stream. An empty key is one of its own.
func (h *hub) publish(key string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return // values of this package; the tests would have seen it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if key == "" {
		h.n++
		key = strconv.FormatUint(h.n, 10)
	}
	for sub := range h.subs {
		sub.put(key, b)
	}
}

func (sub *subscriber) put(key string, b []byte) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if _, ok := sub.waiting[key]; !ok {
		if len(sub.order) == maxWaiting {
			delete(sub.waiting, sub.order[0])
			sub.order = slices.Delete(sub.order, 0, 1)
		}
		sub.order = append(sub.order, key)
	}
	sub.waiting[key] = b
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// take returns what waits.
func (sub *subscriber) take() (all [][]byte) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, k := range sub.order {
		all = append(all, sub.waiting[k])
	}
	sub.order = sub.order[:0]
	clear(sub.waiting)
	return all
}

// heartbeat is how often a stream without news sends a comment, so that a
// connection that is gone is noticed.
const heartbeat = 15 * time.Second

// stream is a server-sent event stream on w.
type stream struct{ w ResponseWriter }

func startStream(w ResponseWriter) stream {
	w.Start(200, map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Accel-Buffering": "no",
	})
	return stream{w}
}

// send writes one message and flushes.
func (s stream) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.raw(b)
}

func (s stream) raw(messages ...[]byte) error {
	var buf []byte
	for _, b := range messages {
		buf = append(append(append(buf, "data: "...), b...), "\n\n"...)
	}
	if _, err := s.w.Write(buf); err != nil {
		return err
	}
	return s.w.Flush()
}

func (s stream) ping() error {
	if _, err := s.w.Write([]byte(": still here\n\n")); err != nil {
		return err
	}
	return s.w.Flush()
}

// follow sends what sub gets until ctx or the service ends, or nobody listens.
func (s stream) follow(ctx context.Context, sub *subscriber, closed <-chan struct{}) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
			return nil
		case <-beat.C:
			if err := s.ping(); err != nil {
				return err
			}
		case <-sub.wake:
			if err := s.raw(sub.take()...); err != nil {
				return err
			}
		}
	}
}
