package runlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TensorBoard writes scalars as a TensorBoard event file: a sequence of
// records (length, checksum, bytes, checksum), each an Event of
// tensorflow/core/util/event.proto. The few fields used are written by hand.
// Its methods may be called from several goroutines at once.
type TensorBoard struct {
	mu sync.Mutex
	f  *os.File
}

// OpenTensorBoard begins an event file in dir, which is made if need be, for a
// run that has resumeStep steps behind it, 0 for a new one. The file tells
// TensorBoard that the run starts at the step after: whatever the folder's
// older files hold of that step and later ones is not shown any more.
func OpenTensorBoard(dir string, resumeStep int64) (*TensorBoard, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	now := time.Now()
	f, err := createEventFile(dir, now)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	t := &TensorBoard{f: f}
	b := record(event(now, 0, fieldFileVersion, []byte("brain.Event:2")))
	// TensorBoard drops what is at the START's step or later.
	b = append(b, record(event(now, resumeStep+1, fieldSessionLog, []byte{1 << 3, sessionStart}))...)
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	return t, nil
}

// eventPrefix begins the name of every event file; TIME and HOST follow.
const eventPrefix = "events.out.tfevents."

// createEventFile makes events.out.tfevents.TIME.HOST. Readers take the files
// in the order of their names, so TIME, in seconds, is made later than that of
// every file which is there: also after a clock that went back, and for two
// files within a second.
func createEventFile(dir string, now time.Time) (*os.File, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	last, err := lastEventTime(dir)
	if err != nil {
		return nil, err
	}
	for at := max(now.Unix(), last+1); ; at++ {
		name := fmt.Sprintf("%s%010d.%s", eventPrefix, at, filepath.Base(host))
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// HasTensorBoard reports whether dir holds event files.
func HasTensorBoard(dir string) bool {
	last, err := lastEventTime(dir)
	return err == nil && last > 0
}

// lastEventTime is the largest TIME of the event files in dir; 0 without any.
func lastEventTime(dir string) (last int64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range files {
		rest, ok := strings.CutPrefix(e.Name(), eventPrefix)
		if !ok {
			continue
		}
		at, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.ParseInt(at, 10, 64); err == nil && len(at) <= 10 {
			last = max(last, n)
		}
	}
	return last, nil
}

// Replay writes the values of every step in a run log, for a run that was
// logged without event files until now. Lines that cannot be read are left out.
func (t *TensorBoard) Replay(logPath string) error {
	for rec, err := range Read(logPath) {
		if err != nil && rec.Line == 0 { // the file, not a line of it
			return err
		}
		if err != nil || rec.Step == nil {
			continue
		}
		if err := t.Step(*rec.Step); err != nil {
			return err
		}
	}
	return nil
}

// Scalar writes one value; at is its time, zero for now.
func (t *TensorBoard) Scalar(tag string, step int64, value float64, at time.Time) error {
	return t.write(step, at, summaryValue(nil, tag, value))
}

// Step writes the values of a step as one event, under the tags loss/train,
// loss/val (when it was measured), lr, grad/norm, grad/clip, grad/nonfinite,
// loss_scale (where there is one), tokens and tok_per_s.
func (t *TensorBoard) Step(s Step) error {
	b := summaryValue(nil, "loss/train", s.Loss)
	if s.ValLoss != nil {
		b = summaryValue(b, "loss/val", *s.ValLoss)
	}
	b = summaryValue(b, "lr", s.LR)
	b = summaryValue(b, "grad/norm", s.GradNorm)
	b = summaryValue(b, "grad/clip", s.Clip)
	b = summaryValue(b, "grad/nonfinite", float64(s.NonFinite))
	if s.LossScale > 0 {
		b = summaryValue(b, "loss_scale", s.LossScale)
	}
	b = summaryValue(b, "tokens", float64(s.Tokens))
	b = summaryValue(b, "tok_per_s", s.TokPerSec)
	return t.write(s.Step, s.Time, b)
}

func (t *TensorBoard) write(step int64, at time.Time, summary []byte) error {
	if at.IsZero() {
		at = time.Now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.f.Write(record(event(at, step, fieldSummary, summary))); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// Sync flushes the file to the disk. Call it before a checkpoint is saved, so
// that the events are never behind the checkpoints.
func (t *TensorBoard) Sync() error { return t.f.Sync() }

// Close closes the file.
func (t *TensorBoard) Close() error { return t.f.Close() }

// Fields of Event that carry the payload, and the payload of a restart
// (SessionLog: field 1, status, is START).
const (
	fieldFileVersion = 3
	fieldSummary     = 5
	fieldSessionLog  = 7
	sessionStart     = 1
)

// Protobuf wire types, the low three bits of a field's key.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// event encodes an Event: 1 wall_time double, 2 step int64, and one payload.
func event(at time.Time, step int64, field uint64, payload []byte) []byte {
	b := binary.AppendUvarint(nil, 1<<3|wireFixed64)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at.UnixNano())/1e9))
	if step != 0 {
		b = binary.AppendUvarint(b, 2<<3|wireVarint)
		b = binary.AppendUvarint(b, uint64(step))
	}
	return appendBytes(b, field, payload)
}

// summaryValue appends to b a Value of a Summary: field 1 holding 1 tag string
// and 2 simple_value float.
func summaryValue(b []byte, tag string, value float64) []byte {
	v := appendBytes(nil, 1, []byte(tag))
	v = binary.AppendUvarint(v, 2<<3|wireFixed32)
	v = binary.LittleEndian.AppendUint32(v, math.Float32bits(float32(value)))
	return appendBytes(b, 1, v)
}

func appendBytes(b []byte, field uint64, data []byte) []byte {
	b = binary.AppendUvarint(b, field<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

// record frames an event as a TFRecord.
func record(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedSum(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedSum(data))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedSum is the CRC-32C of b as TFRecords store it: rotated right by 15
// bits, plus a constant, because a checksum of data that holds checksums is
// weak.
func maskedSum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
