package kern

// tiling is the shape of the blocks a product is cut into.
//
// The micro-kernel keeps an mr×nr tile of C in registers. Its operands are packed: A in panels of mr
// rows and B in panels of nr columns, each stored k by k, so that the kernel reads both straight
// through. K is cut into blocks of about kc. For each, B is packed once by all threads; then tasks of
// mc rows by taskCols columns are handed out, and whoever takes one packs its rows of A privately.
type tiling struct {
	mr, nr   int
	rowStep  int // the micro-kernel exists for every multiple of rowStep up to mr
	kc       int // longest block of K
	mc       int // most rows of A packed at a time, a multiple of mr
	nc       int // most columns of B packed at a time, a multiple of nr
	taskCols int // columns of one task, a multiple of nr
}

// packGroup is how many panels of B one packing task fills.
const packGroup = 8

// gemmJob is the state of one large product, and the Task that computes it.
type gemmJob struct {
	matrices
	e       *Engine
	packing bool
	pc, kc  int // current block of K
	jc, nc  int // current block of columns
	mc      int
	colJobs int // tasks side by side in a block of columns
	serial  int // counts blocks, so that a worker knows what its packed A is from
}

// run computes the product block by block. The blocks of one element are added in the order of k.
func (j *gemmJob) run(x *matrices) {
	j.matrices = *x
	t, pool := j.e.tile, j.e.pool
	j.mc = t.rowsPerTask(x.m, x.n, pool.Threads())
	kc := evenSplit(x.k, t.kc, 4)
	for j.jc = 0; j.jc < x.n; j.jc += t.nc {
		j.nc = min(t.nc, x.n-j.jc)
		panels := (j.nc + t.nr - 1) / t.nr
		j.e.b = grow(j.e.b, panels*t.nr*kc)
		j.colJobs = (j.nc + t.taskCols - 1) / t.taskCols
		for j.pc = 0; j.pc < x.k; j.pc += kc {
			j.kc = min(kc, x.k-j.pc)
			j.serial++
			j.packing = true
			pool.RunTask((panels+packGroup-1)/packGroup, j)
			j.packing = false
			pool.RunTask((x.m+j.mc-1)/j.mc*j.colJobs, j)
		}
	}
	j.matrices = matrices{} // do not keep the caller's memory alive
}

// rowsPerTask chooses mc so that every thread gets several tasks, whose sizes differ little. It
// changes which thread computes an element and never how.
func (t *tiling) rowsPerTask(m, n, threads int) int {
	blocks := (m + t.mc - 1) / t.mc
	if threads > 1 {
		blocks = max(blocks, min(4*threads, (m+t.mr-1)/t.mr))
		blocks = (blocks + threads - 1) / threads * threads
	}
	return roundUp((m+blocks-1)/blocks, t.mr)
}

// evenSplit returns a block length of at most limit, a multiple of step, that cuts k evenly.
func evenSplit(k, limit, step int) int {
	parts := (k + limit - 1) / limit
	return roundUp((k+parts-1)/parts, step)
}

func roundUp(n, step int) int { return (n + step - 1) / step * step }

// Do packs a group of panels of B, or computes a block of C.
func (j *gemmJob) Do(worker, i int) {
	if j.packing {
		j.packB(i)
		return
	}
	j.block(&j.e.ws[worker], i/j.colJobs, i%j.colJobs)
}

func (j *gemmJob) packB(group int) {
	nr := j.e.tile.nr
	lo := group * packGroup * nr
	cols := min(packGroup*nr, j.nc-lo)
	j.e.Kernels.packB(j.e.b[lo*j.kc:], &j.matrices, j.jc+lo, cols, j.pc, j.kc)
}

// block computes rows [row·mc, …) and columns [col·taskCols, …) of the current block of C.
func (j *gemmJob) block(ws *Workspace, row, col int) {
	t := j.e.tile
	i0 := row * j.mc
	rows := min(j.mc, j.m-i0)
	if ws.serial != j.serial || ws.row != row {
		ws.a = grow(ws.a, roundUp(rows, t.mr)*j.kc)
		j.e.Kernels.packA(ws.a, &j.matrices, i0, rows, j.pc, j.kc)
		ws.serial, ws.row = j.serial, row
	}
	lo := col * t.taskCols
	hi := min(lo+t.taskCols, j.nc)
	accumulate := j.accumulate || j.pc > 0
	for i := 0; i < rows; i += t.mr {
		mr := min(t.mr, rows-i)
		pa := ws.a[i*j.kc:]
		for n := lo; n < hi; n += t.nr {
			nr := min(t.nr, hi-n)
			c := j.c[(i0+i)*j.ldc+j.jc+n:]
			j.e.Kernels.tileTo(ws, mr, nr, j.kc, pa, 1, t.panelRows(mr), j.e.b[n*j.kc:], t.nr, c, j.ldc, accumulate)
		}
	}
}

// panelRows is the width that a panel of A with so many rows is stored with.
func (t *tiling) panelRows(rows int) int { return roundUp(rows, t.rowStep) }

// tileTo computes one tile of C, of full size or cut off at an edge. An edge tile is computed whole
// into scratch, where the operands must be padded with zeros, and the part that exists is copied.
func (k Kernels) tileTo(ws *Workspace, mr, nr, kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	t := k.tiling()
	rows := t.panelRows(mr)
	if rows == mr && nr == t.nr {
		k.micro(rows, kc, a, rsa, csa, b, ldb, c, ldc, accumulate)
		return
	}
	k.micro(rows, kc, a, rsa, csa, b, ldb, ws.tile[:], t.nr, false)
	for i := 0; i < mr; i++ {
		put(c[i*ldc:][:nr], ws.tile[i*t.nr:], accumulate)
	}
}

// put writes or adds the first values of src to dst.
func put(dst, src []float32, accumulate bool) {
	if !accumulate {
		copy(dst, src)
		return
	}
	for i := range dst {
		dst[i] += src[i]
	}
}
