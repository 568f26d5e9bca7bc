package kern

func (k Kernels) gemvNN(m, n, kk int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int) {
	if k.level == Portable {
		gemvNNPortable(m, n, kk, x, ldx, w, ldw, y, ldy)
		return
	}
	table := &gemvNNAVX512
	if k.level == AVX2 {
		table = &gemvNNAVX2
	}
	depth := kk
	if m > 2 {
		depth = gemvDepth
	}
	for k0 := 0; k0 < kk; k0 += depth {
		table[m-1](n, min(depth, kk-k0), &x[k0], ldx, &w[k0*ldw], ldw, &y[0], ldy)
	}
}

// gemvDepth is how many rows of w are taken at a time where several rows of x leave few registers for
// columns: the narrow strips of one row then follow each other soon, while its page is at hand.
const gemvDepth = 32

// gemvNNFunc adds x (m, k)·w (k, n) to y, for the m that its place in a table says.
type gemvNNFunc func(n, k int, x *float32, ldx int, w *float32, ldw int, y *float32, ldy int)

var (
	gemvNNAVX512 = [gemvRows]gemvNNFunc{
		gemvNN1AVX512, gemvNN2AVX512, gemvNN3AVX512, gemvNN4AVX512,
		gemvNN5AVX512, gemvNN6AVX512, gemvNN7AVX512, gemvNN8AVX512,
	}
	gemvNNAVX2 = [gemvRows]gemvNNFunc{
		gemvNN1AVX2, gemvNN2AVX2, gemvNN3AVX2, gemvNN4AVX2,
		gemvNN5AVX2, gemvNN6AVX2, gemvNN7AVX2, gemvNN8AVX2,
	}
)

// gemvNT takes four rows of w at a time and as many rows of x as there is assembly for.
func (k Kernels) gemvNT(m, n, kk int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int, accumulate bool) {
	if k.level == Portable {
		gemvNTPortable(m, n, kk, x, ldx, w, ldw, y, ldy, accumulate)
		return
	}
	for j := 0; j < n; {
		rows, step := 4, ldw
		if n-j < 4 { // one row of w, read four times
			rows, step = 1, 0
		}
		for i := 0; i < m; {
			var out [16]float32 // (rows of x, 4)
			got := k.dots(m-i, kk, &x[i*ldx], ldx, &w[j*ldw], step, &out)
			for r := range got {
				put(y[(i+r)*ldy+j:][:rows], out[4*r:], accumulate)
			}
			i += got
		}
		j += rows
	}
}

// dots fills out for up to m rows of x and returns how many it took.
func (k Kernels) dots(m, kk int, x *float32, ldx int, w *float32, ldw int, out *[16]float32) int {
	switch {
	case k.level == AVX512 && m >= 4:
		gemvNT4AVX512(kk, x, ldx, w, ldw, &out[0])
		return 4
	case k.level == AVX512 && m >= 2:
		gemvNT2AVX512(kk, x, ldx, w, ldw, &out[0])
		return 2
	case k.level == AVX512:
		gemvNT1AVX512(kk, x, ldx, w, ldw, &out[0])
	case m >= 2:
		gemvNT2AVX2(kk, x, ldx, w, ldw, &out[0])
		return 2
	default:
		gemvNT1AVX2(kk, x, ldx, w, ldw, &out[0])
	}
	return 1
}
