package model

import "math"

// ropeTable returns the rotary table of n positions from first on, (n, D): the
// cosines of the position's D/2 angles, then their sines, with angle_i =
// position·RopeTheta^(−2i/D) (Su et al., "RoFormer", 2021). Angles are float64,
// so that far positions keep their precision.
func ropeTable(c Config, first, n int) []float32 {
	half := c.HeadDim / 2
	table := make([]float32, n*c.HeadDim)
	for i := range half {
		freq := math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim))
		for t := range n {
			sin, cos := math.Sincos(float64(first+t) * freq)
			table[t*c.HeadDim+i] = float32(cos)
			table[t*c.HeadDim+half+i] = float32(sin)
		}
	}
	return table
}

// attentionScale is D^−½, by which scores are multiplied.
func (c Config) attentionScale() float32 { return float32(1 / math.Sqrt(float64(c.HeadDim))) }
