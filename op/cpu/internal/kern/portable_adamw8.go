package kern

import "math"

// adamw8Portable updates one block. m and v are room for the decoded moments.
func adamw8Portable(w, g []float32, m8 []int8, v8 []uint8, mScale, vScale *float32, h *adamwArgs, m, v *[BlockSize]float32) {
	ms, vs := *mScale, *vScale
	var maxM, maxV float32
	for i := range w {
		root := float32(v8[i]) * vs
		w[i], m[i], v[i] = h.update(w[i], g[i], float32(m8[i])*ms, root*root)
		v[i] = float32(math.Sqrt(float64(v[i])))
		if a := float32(math.Abs(float64(m[i]))); a > maxM {
			maxM = a
		}
		if v[i] > maxV {
			maxV = v[i]
		}
	}
	*mScale, *vScale = maxM/127, maxV/255
	im, iv := inverseScale(*mScale), inverseScale(*vScale)
	for i := range w {
		u := dither(w[i], m[i])
		m8[i] = int8(clampf(floorf(float32(m[i]*im)+u), -127, 127))
		c := clampf(floorf(float32(v[i]*iv)+u), 0, 255)
		if c < 1 && v[i] > 0 {
			c = 1
		}
		v8[i] = uint8(c)
	}
}

// inverseScale is 1/s, and 0 for the scale of an all-zero block or one so small that its inverse
// is not finite.
func inverseScale(s float32) float32 {
	if s < 1e-38 {
		return 0
	}
	return 1 / s
}

// dither hashes an element's weight and moment into a number in [0, 1).
func dither(w, m float32) float32 {
	h := (math.Float32bits(w) ^ math.Float32bits(m)*0x85ebca6b) * 0x9e3779b1
	h ^= h >> 15
	h *= 0x2c1b3c6d
	return float32(h>>8) * (1.0 / (1 << 24))
}

func floorf(x float32) float32 { return float32(math.Floor(float64(x))) }

// clampf puts x into [lo, hi], NaN to lo.
func clampf(x, lo, hi float32) float32 {
	if !(x > lo) {
		return lo
	}
	return min(x, hi)
}
