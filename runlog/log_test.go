package runlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)

func step(n int64) Step {
	val := 2.25
	s := Step{Step: n, Loss: 2.5, LR: 3e-4, GradNorm: 1.5, Clip: 0.5, Tokens: n * 1024, TokPerSec: 5e4, Time: noon}
	if n%3 == 0 {
		s.ValLoss = &val
	}
	return s
}

// collect reads a log; errors are returned as text.
func collect(path string) (recs []Record, errs []string) {
	for r, err := range Read(path) {
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		recs = append(recs, r)
	}
	return recs, errs
}

// steps lists "TYPE STEP" of every record.
func steps(t *testing.T, path string) string {
	t.Helper()
	recs, errs := collect(path)
	if errs != nil {
		t.Errorf("reading gave %q", errs)
	}
	var names []string
	for _, r := range recs {
		if r.Step != nil {
			names = append(names, fmt.Sprint(r.Step.Step))
			continue
		}
		names = append(names, fmt.Sprintf("%s@%d", r.Event.Type, r.Event.Step))
	}
	return strings.Join(names, " ")
}

// TestLines pins the text of the lines: other programs read them.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var tee bytes.Buffer
	l.Tee(&tee)
	s := step(3)
	s.LR, s.GradNorm, s.TokPerSec = math.Inf(1), math.NaN(), math.Inf(-1)
	for _, err := range []error{l.Step(step(1)), l.Step(s), l.Event(KindSave, 3, "saved <x>", map[string]int{"bytes": 7}), l.Sync(), l.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	want := []string{
		`{"type":"step","step":1,"loss":2.5,"lr":0.0003,"grad_norm":1.5,"clip":0.5,"tokens":1024,"tok_per_s":50000,"nonfinite":0,"time":"2026-03-01T12:00:00.005Z"}` + "\n",
		`{"type":"step","step":3,"loss":2.5,"val_loss":2.25,"lr":"+Inf","grad_norm":"NaN","clip":0.5,"tokens":3072,"tok_per_s":"-Inf","nonfinite":0,"time":"2026-03-01T12:00:00.005Z"}` + "\n",
	}
	for i, w := range want {
		if lines[i] != w {
			t.Errorf("line %d is\n%swant\n%s", i+1, lines[i], w)
		}
	}
	if !bytes.Equal(tee.Bytes(), b) {
		t.Error("Tee got other lines than the file")
	}
	recs, errs := collect(path)
	if len(recs) != 3 || errs != nil {
		t.Fatalf("%d records, errors %q", len(recs), errs)
	}
	if !reflect.DeepEqual(*recs[0].Step, step(1)) {
		t.Errorf("read %+v, want %+v", *recs[0].Step, step(1))
	}
	got := recs[1].Step
	if *got.ValLoss != 2.25 || !math.IsInf(got.LR, 1) || !math.IsNaN(got.GradNorm) || !math.IsInf(got.TokPerSec, -1) {
		t.Errorf("read %+v, want %+v", got, s)
	}
	if e := recs[2].Event; e.Type != KindSave || e.Message != "saved <x>" || string(e.Data) != `{"bytes":7}` || recs[2].Line != 3 || time.Since(e.Time) > time.Hour {
		t.Errorf("read %+v in line %d", e, recs[2].Line)
	}
}

func TestStartHoldsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	in := Start{Version: "v1", Device: "CPU", Seed: math.MaxUint64, Config: map[string]any{"lr": 0.5}, Args: []string{"train"}}
	if err := l.Event(KindStart, 0, "", in); err != nil {
		t.Fatal(err)
	}
	l.Close()
	recs, _ := collect(path)
	var out Start
	if err := json.Unmarshal(recs[0].Event.Data, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, %v; want %+v", out, err, in)
	}
}

// TestResume writes a run that is killed and resumed at several places.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	check(t, l.Event(KindStart, 0, "", nil))
	for n := int64(1); n <= 5; n++ {
		check(t, l.Step(step(n)))
		if n == 3 {
			check(t, l.Event(KindSave, n, "", nil))
		}
	}
	l.Close()
	appendTo(t, path, `{"type":"step","step":6,"lo`) // the kill

	// Readers of the living file do not see the torn line.
	if got, want := steps(t, path), "start@0 1 2 3 save@3 4 5"; got != want {
		t.Errorf("log has %s, want %s", got, want)
	}
	for _, c := range []struct {
		resume int64
		want   string
	}{
		{9, "start@0 1 2 3 save@3 4 5 resume@9"},
		{3, "start@0 1 2 3 save@3 resume@3"},
		{3, "start@0 1 2 3 save@3 resume@3 resume@3"},
		{0, "start@0 resume@0"},
	} {
		l, err := Open(path, c.resume)
		if err != nil {
			t.Fatal(err)
		}
		check(t, l.Event(KindResume, c.resume, "", nil))
		l.Close()
		if got := steps(t, path); got != c.want {
			t.Errorf("resumed at %d: log has %s, want %s", c.resume, got, c.want)
		}
	}
}

// TestTornTails cuts a log at every byte: opening it keeps exactly the whole
// lines, and what is appended then is readable.
func TestTornTails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 3; n++ {
		check(t, l.Step(step(n)))
	}
	l.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		// After a power cut the tail may also be zeros, or garbage with a newline.
		for _, tail := range []string{"", "\x00\x00\x00", "garbage\n\x00\n"} {
			lines := bytes.Count(whole[:n], []byte("\n"))
			if tail != "" && (lines == 0 || n%7 != 0) {
				continue // no record at all is for TestOpenRefuses; not every n, for speed
			}
			if err := os.WriteFile(path, append(bytes.Clone(whole[:n]), tail...), 0o666); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path, 99)
			if err != nil {
				t.Fatalf("cut at %d, tail %q: %v", n, tail, err)
			}
			check(t, l.Step(step(7)))
			l.Close()
			got, _ := os.ReadFile(path)
			if want := bytes.LastIndexByte(whole[:n], '\n') + 1; !bytes.HasPrefix(got, whole[:want]) || bytes.Count(got, []byte("\n")) != lines+1 {
				t.Fatalf("cut at %d, tail %q: log is\n%s", n, tail, got)
			}
			if recs, errs := collect(path); len(recs) != lines+1 || errs != nil {
				t.Fatalf("cut at %d, tail %q: %d records, errors %q", n, tail, len(recs), errs)
			}
		}
	}
}

// TestOpenRefuses: a file that is no log, and an order that cannot be, change
// nothing.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text":   "To be, or not to be\nthat is the question\n",
		"corpus": `{"text":"a"}` + "\n" + `{"text":"b"}` + "\n",
		"long":   strings.Repeat("x", maxLineBytes+1) + "\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, 0); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: Open gave %v", name, err)
		}
		if _, err := Create(path); err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("%s: Create gave %v", name, err)
		}
		if b, _ := os.ReadFile(path); string(b) != content {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := Open(dir, 0); err == nil {
		t.Error("opening a folder succeeded")
	}
	l, err := Create(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check(t, l.Step(step(5)))
	for _, err := range []error{
		l.Step(step(4)), l.Event(KindSave, -1, "", nil), l.Event("", 5, "", nil), l.Event("step", 5, "", nil),
		l.Event(KindSave, 5, "", func() {}), l.Event(KindSample, 5, strings.Repeat("x", maxLineBytes), nil),
	} {
		if err == nil {
			t.Error("a bad record was accepted")
		}
	}
	if got := steps(t, filepath.Join(dir, FileName)); got != "5" {
		t.Errorf("log has %s", got)
	}
}

// TestBadLinesInside: a damaged line is reported with its number, and the ones
// after it are read; resuming keeps them.
func TestBadLinesInside(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	content := `{"type":"start","step":0}` + "\n" + "{bad\n\n" + `{"type":"future","step":1,"new":true}` + "\n" + `{"type":"step","step":"x"}` + "\n" +
		`{"type":"step"}` + "\n" + `null` + "\n" + `{"type":"step","step":2,"loss":"big"}` + "\n" + `{"step":1}` + "\n" + `{"type":"done","step":2}` + "\n"
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	recs, errs := collect(path)
	if len(recs) != 3 || len(errs) != 7 || recs[1].Event.Type != "future" || recs[2].Line != 10 {
		t.Errorf("%d records, errors %q", len(recs), errs)
	}
	if !strings.Contains(errs[0], path) || !strings.Contains(errs[0], "line 2") {
		t.Errorf("first error is %q", errs[0])
	}
	l, err := Open(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if b, _ := os.ReadFile(path); string(b) != content {
		t.Error("resuming changed the log")
	}
	for _, err := range Read(path + ".missing") {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("missing file: %v", err)
		}
	}
	for range Read(path) {
		break // an early end must be allowed
	}
}

// TestFailingTee: the log itself must not suffer.
func TestFailingTee(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Tee(failing{})
	if err := l.Step(step(1)); err == nil {
		t.Error("the error of the tee is lost")
	}
	l.Close()
	if got := steps(t, path); got != "1" {
		t.Errorf("log has %q", got)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestManyWriters: lines of several goroutines never mix.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := l.Event(KindSample, 1, strings.Repeat("text ", 200), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	l.Close()
	if recs, errs := collect(path); len(recs) != 200 || errs != nil {
		t.Errorf("%d records, errors %q", len(recs), errs)
	}
}

// FuzzDecode: no input panics, every record has its content, and a log of what
// could be read reads the same again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"step","step":1,"loss":"NaN","val_loss":null}` + "\n" + `{"type":"eval","step":1,"data":[1]}` + "\n{"))
	f.Add([]byte("\n\x00\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, again []Record
		var out bytes.Buffer
		for r, err := range Decode(bytes.NewReader(b)) {
			if err != nil {
				continue
			}
			if (r.Step == nil) == (r.Event == nil) || r.at() < 0 || r.Line < 1 {
				t.Fatalf("record %+v", r)
			}
			var v any = r.Event
			if r.Step != nil {
				v = r.Step
			}
			line, err := json.Marshal(v)
			if err != nil {
				return // a year beyond 9999 cannot be written
			}
			out.Write(append(line, '\n'))
			first = append(first, r)
		}
		for r, err := range Decode(&out) {
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, r)
		}
		if len(first) != len(again) {
			t.Fatalf("%d records, read again %d", len(first), len(again))
		}
		for i := range first {
			if first[i].at() != again[i].at() || (first[i].Step == nil) != (again[i].Step == nil) {
				t.Fatalf("record %d is %+v, read again %+v", i, first[i], again[i])
			}
		}
		if _, _, err := scan(bytes.NewReader(b), 5); err != nil && !strings.Contains(err.Error(), "move it away") {
			t.Fatal(err)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
