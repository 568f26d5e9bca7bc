package tensor

import (
	"math"
	"testing"
)

// TestF16RoundTrip walks every float16: widening and rounding back must give
// the same bits, but for infinities (saturated) and NaN payloads.
func TestF16RoundTrip(t *testing.T) {
	for h := 0; h < 1<<16; h++ {
		f := FromF16(uint16(h))
		got := ToF16(f)
		want := uint16(h)
		switch {
		case math.IsInf(float64(f), 0):
			want = want&0x8000 | 0x7bff
		case f != f:
			want = want&0x8000 | 0x7e00
		}
		if got != want {
			t.Fatalf("ToF16(FromF16(%#04x) = %v) = %#04x, want %#04x", h, f, got, want)
		}
	}
}

// TestF16Nearest checks rounding against a search over the neighbours.
func TestF16Nearest(t *testing.T) {
	r := NewRNG(1, 2)
	for i := range 200000 {
		x := math.Float32frombits(uint32(r.Uint64(uint64(i))))
		if i%2 == 0 { // keep half the samples inside the float16 range
			x = float32((r.Float64(uint64(i))*2 - 1) * math.Exp2(float64(i%40)-26))
		}
		h := ToF16(x)
		if x != x {
			if FromF16(h) == FromF16(h) {
				t.Fatalf("NaN became %v", FromF16(h))
			}
			continue
		}
		got := float64(FromF16(h))
		if math.Abs(float64(x)) >= MaxF16 {
			if got != math.Copysign(MaxF16, float64(x)) {
				t.Fatalf("ToF16(%v) = %v, want saturation", x, got)
			}
			continue
		}
		best := math.Abs(got - float64(x))
		for _, n := range []uint16{h - 1, h + 1} {
			f := float64(FromF16(n))
			if math.IsInf(f, 0) || f != f || math.Signbit(f) != math.Signbit(got) {
				continue
			}
			d := math.Abs(f - float64(x))
			if d < best || d == best && h&1 == 1 {
				t.Fatalf("ToF16(%v) = %v, nearer or even is %v", x, got, f)
			}
		}
	}
}

func TestBF16(t *testing.T) {
	for h := 0; h < 1<<16; h++ {
		f := FromBF16(uint16(h))
		if f != f {
			if g := FromBF16(ToBF16(f)); g == g {
				t.Fatalf("NaN %#04x became %v", h, g)
			}
			continue
		}
		if got := ToBF16(f); got != uint16(h) {
			t.Fatalf("ToBF16(%v) = %#04x, want %#04x", f, got, h)
		}
	}
	// 1 + 2^-8 lies half way between two bfloat16 values: ties go to even.
	if got := FromBF16(ToBF16(1 + 1.0/256)); got != 1 {
		t.Errorf("tie rounds to %v, want 1", got)
	}
	if got := FromBF16(ToBF16(1 + 3.0/256)); got != 1+4.0/256 {
		t.Errorf("tie rounds to %v, want %v", got, 1+4.0/256)
	}
}

// TestPhiloxVectors compares with the known answers that Random123 publishes
// for philox4x32-10.
func TestPhiloxVectors(t *testing.T) {
	all := uint64(math.MaxUint64)
	cases := []struct {
		seed, stream, i uint64
		want            [4]uint32
	}{
		{0, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{all, all, all, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	}
	for _, c := range cases {
		if got := NewRNG(c.seed, c.stream).Block(c.i); got != c.want {
			t.Errorf("Block(%#x) under %#x/%#x = %#x, want %#x", c.i, c.seed, c.stream, got, c.want)
		}
	}
}

func TestNormalMoments(t *testing.T) {
	x := make([]float32, 1<<18)
	NewRNG(7, 3).Normal(x, 0, 2)
	var s1, s2, s4 float64
	for _, v := range x {
		s1 += float64(v)
		s2 += float64(v) * float64(v)
		s4 += math.Pow(float64(v), 4)
	}
	n := float64(len(x))
	// Standard errors: mean 2/√n = 0.0039, variance 4·√(2/n) = 0.011.
	if m := s1 / n; math.Abs(m) > 5*0.0039 {
		t.Errorf("mean %v", m)
	}
	if v := s2 / n; math.Abs(v-4) > 5*0.011 {
		t.Errorf("variance %v, want 4", v)
	}
	if k := s4 / n / 16; math.Abs(k-3) > 0.1 {
		t.Errorf("kurtosis %v, want 3", k)
	}
	// Any split gives the same numbers.
	y := make([]float32, 101)
	NewRNG(7, 3).Normal(y, 12345, 2)
	for j := range y {
		if y[j] != x[12345+j] {
			t.Fatalf("value %d differs when drawn alone", 12345+j)
		}
	}
}

func TestViewBytes(t *testing.T) {
	x := []float32{1, 2, 3}
	b := Bytes(x)
	if len(b) != 12 || b[3] != 0x3f || b[2] != 0x80 {
		t.Fatalf("Bytes = % x", b)
	}
	View[float32](b)[1] = 9
	if x[1] != 9 {
		t.Fatal("View does not share memory")
	}
	for _, d := range []DType{F32, F16, BF16, I8, I32, U16, Bool} {
		got, err := ParseDType(d.String())
		if err != nil || got != d {
			t.Errorf("ParseDType(%q) = %v, %v", d, got, err)
		}
	}
}
