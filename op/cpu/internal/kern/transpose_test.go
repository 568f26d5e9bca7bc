package kern

import "testing"

// TestTranspose holds every element, and everything around the result, for sizes on both sides of
// the vector lengths.
func TestTranspose(t *testing.T) {
	for _, l := range Available() {
		k, err := For(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range [][2]int{{1, 1}, {3, 5}, {4, 16}, {5, 17}, {64, 64}, {63, 48}, {7, 100}, {16, 8}} {
			rows, cols := size[0], size[1]
			lds, ldd := cols+3, rows+5
			src, dst := make([]float32, rows*lds), make([]float32, cols*ldd)
			for i := range src {
				src[i] = float32(i + 1)
			}
			for i := range dst {
				dst[i] = -1
			}
			k.Transpose(dst, ldd, src, lds, rows, cols)
			for i, v := range dst {
				want := float32(-1)
				if c, r := i/ldd, i%ldd; r < rows {
					want = src[r*lds+c]
				}
				if v != want {
					t.Fatalf("%v (%d, %d): element %d is %v, want %v", l, rows, cols, i, v, want)
				}
			}
		}
	}
}
