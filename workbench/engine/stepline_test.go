package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"tezgah/runlog"
)

// same compares two steps, NaN equal to NaN.
func same(a, b runlog.Step) bool {
	eq := func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }
	if (a.ValLoss == nil) != (b.ValLoss == nil) || a.ValLoss != nil && !eq(*a.ValLoss, *b.ValLoss) {
		return false
	}
	return a.Step == b.Step && eq(a.LossScale, b.LossScale) && a.Tokens == b.Tokens && a.NonFinite == b.NonFinite && eq(a.Loss, b.Loss) && eq(a.LR, b.LR) &&
		eq(a.GradNorm, b.GradNorm) && eq(a.Clip, b.Clip) && eq(a.TokPerSec, b.TokPerSec) && a.Time.Equal(b.Time)
}

// TestParseStep: what runlog writes is read, to the bit.
func TestParseStep(t *testing.T) {
	val := 2.5
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
	for _, s := range []runlog.Step{
		{Step: 1, Loss: 3.1416, LR: 3e-4, GradNorm: 0.81, Clip: 1, Tokens: 9830400, TokPerSec: 51234.5, Time: at},
		{Step: math.MaxInt64, Loss: math.NaN(), ValLoss: &val, LR: 1e-300, GradNorm: math.Inf(1), Clip: math.Inf(-1), NonFinite: 7, LossScale: 65536, Time: at},
		{Time: at.Add(123456789)},
	} {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		s.Time = s.Time.Truncate(time.Millisecond) // as the log does
		got, ok := parseStep(b)
		if !ok || !same(got, s) {
			t.Errorf("%s became %+v, %v", b, got, ok)
		}
	}
	for _, bad := range []string{
		"", "{}", `{"type":"step"`, `{"type":"step",}`, `{"type":"step","loss":}`, `{"type":"step","loss":0x1p3}`, `{"type":"step","loss":inf}`,
		`{"type":"step","step":1.5}`, `{"type":"step","loss":1}x`, `{"type":"step","x":{"y":1}}`, `{"type":"step","x":"\u0041"}`, `{"type":"eval","step":1}`,
		`{"type":"step","time":"yesterday"}`, `{"type":"step" ,"step":1}`,
	} {
		if s, ok := parseStep([]byte(bad)); ok {
			t.Errorf("%s was read as %+v", bad, s)
		}
	}
	var sum summary
	if kind := sum.take([]byte(`{"type":"step","step":4,"new":"field","other":[1],"time":"2026-03-01T12:00:00Z"}`)); kind != "step" || sum.step != 4 {
		t.Errorf("a line with unknown members: %q, %+v", kind, sum)
	}
}

// FuzzParseStep: whatever is taken, encoding/json reads in the same way.
func FuzzParseStep(f *testing.F) {
	f.Add([]byte(`{"type":"step","step":1200,"loss":3.1416,"val_loss":3.2,"lr":0.0003,"grad_norm":0.81,"clip":1,"tokens":9830400,"tok_per_s":51234,"nonfinite":0,"time":"2026-03-01T12:00:00.005Z"}`))
	f.Add([]byte(`{"type":"step","loss":"NaN","x":1e5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := parseStep(b)
		if !ok {
			return
		}
		var want runlog.Step
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q was taken, but: %v", b, err)
		}
		if !same(got, want) {
			t.Fatalf("%q: %+v, want %+v", b, got, want)
		}
	})
}

func BenchmarkSummary(b *testing.B) {
	line := []byte(`{"type":"step","step":1200,"loss":3.1416,"lr":0.0003,"grad_norm":0.81,"clip":1,"tokens":9830400,"tok_per_s":51234,"nonfinite":0,"time":"2026-03-01T12:00:00.005Z"}`)
	b.Run("fast", func(b *testing.B) {
		var s summary
		for b.Loop() {
			s.take(line)
		}
	})
	b.Run("json", func(b *testing.B) {
		var s runlog.Step
		for b.Loop() {
			if err := json.Unmarshal(line, &s); err != nil {
				b.Fatal(fmt.Errorf("%s: %w", line, err))
			}
		}
	})
}
