package runlog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// FileName is the log's name in a run folder.
const FileName = "log.jsonl"

// Log appends records to a log file. Its methods may be called from several
// goroutines at once. The file must have one writer: a run folder is locked.
type Log struct {
	mu   sync.Mutex
	f    *os.File
	size int64 // of the file, always at the end of a line
	last int64 // step of the newest record
	tee  []io.Writer
}

// Create begins the log of a new run. A log that already has content is an
// error: it belongs to another run.
func Create(path string) (*Log, error) {
	l, err := open(path)
	if err != nil {
		return nil, err
	}
	if l.size > 0 {
		l.f.Close()
		return nil, fmt.Errorf("run log %s already exists; resume that run, or choose another folder", path)
	}
	return l, nil
}

// Open opens the log of a run that goes on after resumeStep steps. It removes
// the records of later steps, which will be taken again, and whatever a kill
// left half written at the end, so that the log shows one run without breaks.
// Because records are in the order of their steps, all of that is the file's
// tail and goes in a single truncation. A file that is no run log is refused
// and left as it is; one that does not exist is created.
func Open(path string, resumeStep int64) (*Log, error) {
	l, err := open(path)
	if err != nil {
		return nil, err
	}
	end, last, err := scan(l.f, resumeStep)
	if err != nil {
		l.f.Close()
		return nil, fmt.Errorf("run log %s: %w", path, err)
	}
	if end < l.size {
		// By name: on Windows a handle opened for appending cannot truncate.
		if err = os.Truncate(path, end); err == nil {
			err = l.f.Sync()
		}
		if err != nil {
			l.f.Close()
			return nil, fmt.Errorf("run log %s: %w", path, err)
		}
	}
	l.size, l.last = end, last
	return l, nil
}

func open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("run log %s: it is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log{f: f, size: st.Size()}, nil
}

// scan finds where the log ends for a run that resumes: after the last
// readable line before the first record of a step later than resumeStep. It
// also returns that line's step.
func scan(r io.Reader, resumeStep int64) (end, last int64, err error) {
	b := bufio.NewReaderSize(r, 1<<16)
	var at int64
	for n := 1; ; n++ {
		line, err := readLine(b)
		switch {
		case errors.Is(err, io.EOF):
			return end, last, nil
		case err != nil:
			return 0, 0, fmt.Errorf("line %d: %w; it is no run log, or a damaged one: move it away", n, err)
		}
		at += int64(len(line)) + 1
		rec, err := parse(line)
		switch {
		case err != nil && n == 1:
			return 0, 0, fmt.Errorf("its first line is no record (%w): it is no run log, or a damaged one: move it away", err)
		case err != nil:
			continue // kept if a readable line follows
		case rec.at() > resumeStep:
			return end, last, nil
		}
		end, last = at, rec.at()
	}
}

// Tee also writes every line to w from now on. An error of w does not harm the
// log; it is returned by the call that wrote the line.
func (l *Log) Tee(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tee = append(l.tee, w)
}

// Step appends the record of a step.
func (l *Log) Step(s Step) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("run log: step %d: %w", s.Step, err)
	}
	return l.append(b, s.Step)
}

// Event appends an event. step is the number of steps done, message one line
// for people (may be empty), data anything that JSON can hold (nil for none).
func (l *Log) Event(kind Kind, step int64, message string, data any) error {
	if kind == "" || kind == typeStep {
		return fmt.Errorf("run log: event of kind %q, want a name other than %q", kind, typeStep)
	}
	e := Event{Type: kind, Step: step, Message: message}
	e.Time = stamp(e.Time)
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("run log: data of event %q: %w", kind, err)
		}
		e.Data = raw
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("run log: event %q: %w", kind, err)
	}
	return l.append(b, step)
}

// append writes one line with one write call. When the disk is full, the part
// that was written is taken back, so that a later line does not join it.
func (l *Log) append(line []byte, step int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line = append(line, '\n')
	switch {
	case step < l.last || step < 0:
		return fmt.Errorf("run log %s: record of step %d after one of step %d", l.f.Name(), step, l.last)
	case len(line) > maxLineBytes:
		return fmt.Errorf("run log %s: record of step %d: %w", l.f.Name(), step, errLineTooLong)
	}
	if n, err := l.f.Write(line); err != nil {
		if n > 0 {
			err = errors.Join(err, os.Truncate(l.f.Name(), l.size))
		}
		return fmt.Errorf("run log %s: %w", l.f.Name(), err)
	}
	l.size += int64(len(line))
	l.last = step
	for _, w := range l.tee {
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("run log: copy of a line: %w", err)
		}
	}
	return nil
}

// Path is the log's file.
func (l *Log) Path() string { return l.f.Name() }

// Sync flushes the log to the disk. Call it after a checkpoint is saved, so
// that a log is never behind the checkpoints.
func (l *Log) Sync() error { return l.f.Sync() }

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }
