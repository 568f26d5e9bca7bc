package runlog

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tezgah/runlog/tbtest"
)

// TestTensorBoard writes a run and its resumption and decodes both files.
func TestTensorBoard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tb")
	first, err := OpenTensorBoard(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	check(t, first.Step(step(1)))
	check(t, first.Step(step(3)))
	check(t, first.Scalar("bits_per_byte", 1<<40, 1.5, time.Time{}))
	check(t, first.Close())
	second, err := OpenTensorBoard(dir, 2) // within the same second
	if err != nil {
		t.Fatal(err)
	}
	check(t, second.Scalar("ğ", 3, math.NaN(), noon))
	check(t, second.Close())

	files := tbtest.Files(t, dir)
	if len(files) != 2 {
		t.Fatalf("files %q", files)
	}
	a := tbtest.Read(t, files[0])
	if len(a) != 5 || a[0].Version != "brain.Event:2" || a[0].Step != 0 || a[0].Wall < 1.7e9 || !a[1].Start || a[1].Step != 1 {
		t.Fatalf("first file: %+v", a)
	}
	want := map[string]float32{"loss/train": 2.5, "lr": 3e-4, "grad/norm": 1.5, "grad/clip": 0.5, "grad/nonfinite": 0, "tokens": 1024, "tok_per_s": 5e4}
	if a[2].Step != 1 || fmt.Sprint(a[2].Values) != fmt.Sprint(want) || math.Abs(a[2].Wall-float64(noon.UnixMilli())/1e3) > 1e-6 {
		t.Errorf("first step: %+v, want %v", a[2], want)
	}
	if a[3].Values["loss/val"] != 2.25 || a[4].Step != 1<<40 || a[4].Values["bits_per_byte"] != 1.5 {
		t.Errorf("later events: %+v", a[3:])
	}
	b := tbtest.Read(t, files[1])
	if len(b) != 3 || b[0].Version != "brain.Event:2" || !b[1].Start || b[1].Step != 3 {
		t.Fatalf("second file: %+v", b)
	}
	if x := b[2].Values["ğ"]; x == x || b[2].Step != 3 {
		t.Errorf("last event: %+v", b[2])
	}
}

// TestEventFileOrder: every new file sorts behind the ones that are there,
// also many in one second and after a clock that was ahead.
func TestEventFileOrder(t *testing.T) {
	dir := t.TempDir()
	ahead := filepath.Join(dir, fmt.Sprintf("%s%010d.elsewhere", eventPrefix, time.Now().Unix()+9))
	check(t, os.WriteFile(ahead, nil, 0o666))
	check(t, os.WriteFile(filepath.Join(dir, eventPrefix+"x.y"), nil, 0o666)) // not ours
	newest := ahead
	for i := range 12 {
		tb, err := OpenTensorBoard(dir, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		if tb.f.Name() <= newest {
			t.Fatalf("file %s does not sort behind %s", tb.f.Name(), newest)
		}
		newest = tb.f.Name()
		check(t, tb.Close())
	}
}

// TestRestarts: steps that are taken again after one, two and three restarts
// show once, with their last values.
func TestRestarts(t *testing.T) {
	dir := t.TempDir()
	for i, part := range []struct{ resume, to int64 }{{0, 7}, {5, 6}, {5, 9}, {0, 3}, {2, 10}} {
		tb, err := OpenTensorBoard(dir, part.resume)
		if err != nil {
			t.Fatal(err)
		}
		for s := part.resume + 1; s <= part.to; s++ {
			check(t, tb.Scalar("x", s, float64(100*i)+float64(s), time.Time{}))
		}
		check(t, tb.Close())
	}
	var want []tbtest.Point
	for s := int64(1); s <= 10; s++ {
		part := 300
		if s > 2 {
			part = 400
		}
		want = append(want, tbtest.Point{Step: s, Value: float32(int64(part) + s)})
	}
	if got := tbtest.Scalars(t, dir)["x"]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReplay writes the events of a log that has none, past a damaged line.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	check(t, l.Step(step(1)))
	check(t, l.Event(KindEval, 1, "", nil))
	check(t, l.append([]byte("damaged"), 1))
	check(t, l.Step(step(2)))
	check(t, l.Close())
	if HasTensorBoard(dir) {
		t.Error("a folder without event files has some")
	}
	tb, err := OpenTensorBoard(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tb.Replay(path))
	check(t, tb.Close())
	if got := tbtest.Scalars(t, dir)["loss/train"]; len(got) != 2 || got[1].Step != 2 || got[1].Value != 2.5 {
		t.Errorf("replayed %v", got)
	}
	if !HasTensorBoard(dir) {
		t.Error("event files are not found")
	}
	if err := tb.Replay(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing log was replayed")
	}
}

// TestMaskedSum: the CRC-32C of "123456789" is e3069283 (its check value in
// the catalogues of CRCs); rotated right by 15 bits 2507c60d; plus a282ead8.
func TestMaskedSum(t *testing.T) {
	if got, want := maskedSum([]byte("123456789")), uint32(0xc78ab0e5); got != want {
		t.Errorf("masked sum %08x, want %08x", got, want)
	}
}
