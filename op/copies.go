package op

import "math"

// CopyRate is how fast something that only moves memory is at one size: as a large
// copy, but started and drained for these bytes alone.
type CopyRate struct {
	Bytes       int64   // read and written, together
	BytesPerSec float64 // of them
}

// CopyBytes are the sizes that a Measurer takes for Peak.Copies, as far as they are
// smaller than the large copy, which comes last.
func CopyBytes() []int64 { return []int64{1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28} }

// CopyRate is the bytes per second that a copy moving this many bytes reaches:
// linear in the logarithm of the size between the sizes that were measured. Less
// takes no less time than the smallest of them, and more is no faster than the
// largest. Without measurements, or for no bytes, it is BytesPerSec.
func (p Peak) CopyRate(bytes float64) float64 {
	if len(p.Copies) == 0 || !(bytes > 0) {
		return p.BytesPerSec
	}
	below := p.Copies[0]
	if bytes <= float64(below.Bytes) {
		return below.BytesPerSec * bytes / float64(below.Bytes)
	}
	for _, c := range p.Copies[1:] {
		if bytes <= float64(c.Bytes) {
			part := math.Log(bytes/float64(below.Bytes)) / math.Log(float64(c.Bytes)/float64(below.Bytes))
			return below.BytesPerSec + part*(c.BytesPerSec-below.BytesPerSec)
		}
		below = c
	}
	return below.BytesPerSec
}
