package engine

import (
	"encoding/json"
	"time"
)

// logLimit is how many lines one answer holds.
const logLimit = 20000

// runLog is GET /api/runs/NAME/log?after=LINE.
func (s *Service) runLog(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	after, err := intQuery(c.r, "after", 0)
	if err != nil {
		return err
	}
	limit, err := intQuery(c.r, "limit", logLimit)
	if err != nil {
		return err
	}
	v := r.snapshot()
	r.mu.Lock()
	lines, next, err := r.log.read(after, min(limit, logLimit))
	version, total := r.log.version, len(r.log.starts)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	records := make([]json.RawMessage, len(lines))
	for i, l := range lines {
		records[i] = l.Record
	}
	return c.json(map[string]any{"records": records, "next": next, "state": v.State, "total": total, "version": version})
}

// runEvents is GET /api/runs/NAME/events?after=LINE.
func (s *Service) runEvents(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	after, err := intQuery(c.r, "after", 0)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	r.mu.Lock()
	r.streams[wake] = true
	version := r.log.version
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, wake)
		r.mu.Unlock()
	}()
	r.follow(c, startStream(c.w), wake, after, version)
	return nil
}

// follow sends the lines after line number after as they come, and the run
// when its state changes or a second has passed.
func (r *run) follow(c *call, st stream, wake <-chan struct{}, after, version int) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	state, sent := "", time.Time{}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-r.s.ctx.Done():
			return
		case <-beat.C:
			if st.ping() != nil {
				return
			}
			continue
		case <-wake:
		}
		view := r.snapshot()
		for more := true; more; {
			var err error
			if after, version, more, err = r.sendLines(st, after, version); err != nil {
				return
			}
		}
		if view.State != state || time.Since(sent) >= time.Second {
			state, sent = view.State, time.Now()
			if st.send(map[string]any{"run": view}) != nil {
				return
			}
		}
	}
}

// sendLines sends some of the lines that a stream has not had yet.
func (r *run) sendLines(st stream, after, version int) (next, nextVersion int, more bool, err error) {
	r.mu.Lock()
	if r.log.version != version {
		version = r.log.version
		r.mu.Unlock()
		return 0, version, true, st.send(map[string]any{"restart": true, "version": version})
	}
	lines, next, err := r.log.read(after, 1000)
	more = next < len(r.log.starts)
	r.mu.Unlock()
	if err != nil || len(lines) == 0 {
		return next, version, more, err
	}
	messages := make([][]byte, len(lines))
	for i, l := range lines {
		if messages[i], err = json.Marshal(l); err != nil {
			return next, version, more, err
		}
	}
	return next, version, more, st.raw(messages...)
}
