package op

import (
	"math"
	"testing"
)

// TestCopyRate: measured sizes give what was measured, and what lies between and
// beyond them what the comment says.
func TestCopyRate(t *testing.T) {
	p := Peak{BytesPerSec: 900, Copies: []CopyRate{{1 << 10, 100}, {1 << 12, 300}, {1 << 13, 250}, {1 << 20, 950}}}
	for _, c := range []struct{ bytes, want float64 }{
		{1 << 10, 100}, {1 << 12, 300}, {1 << 13, 250}, {1 << 20, 950}, // as measured
		{1 << 11, 200},               // halfway between two powers of two
		{4096 * math.Sqrt2, 275},     // where the rate falls
		{8192 * math.Pow(2, 1), 350}, // a seventh of the way
		{8192 * math.Pow(2, 3.5), 600},
		{1 << 9, 50}, {1, 100. / 1024}, // as long as the smallest
		{1 << 40, 950}, // as the largest
		{0, 900}, {-1, 900}, {math.NaN(), 900},
	} {
		if got := p.CopyRate(c.bytes); !(math.Abs(got-c.want) <= 1e-9*c.want) {
			t.Errorf("%v bytes: %v, want %v", c.bytes, got, c.want)
		}
	}
	if got := (Peak{BytesPerSec: 7}).CopyRate(1 << 20); got != 7 {
		t.Errorf("without measurements %v, want the peak of 7", got)
	}
	if got := (Peak{Copies: []CopyRate{{1 << 10, 100}}}).CopyRate(1 << 11); got != 100 {
		t.Errorf("beyond a single measurement %v, want 100", got)
	}
}

// TestCopyBytes: sizes rise, so that the interpolation finds its neighbours, and
// are whole elements on both sides.
func TestCopyBytes(t *testing.T) {
	last := int64(0)
	for _, n := range CopyBytes() {
		if n <= last || n%(8*AlignElems) != 0 {
			t.Errorf("%d follows %d, want rising multiples of %d", n, last, 8*AlignElems)
		}
		last = n
	}
}
