package kern

// tiling is the shape of the blocks a product is cut into.
//
// The micro-kernel keeps an mr×nr tile of C in registers. B is packed in panels of nr columns, stored
// k by k, so that the kernel reads it straight through. K is cut into blocks of about kc. For each,
// B is packed once by all threads; then tasks of mc rows by taskCols columns are handed out. Rows of
// A are read in place; in the form TN, where a row of A is a column in memory, whoever takes a task
// packs its rows privately.
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
	kc := evenSplit(x.k, t.kc, 16)
	for j.jc = 0; j.jc < x.n; j.jc += t.nc {
		j.nc = min(t.nc, x.n-j.jc)
		panels := (j.nc + t.nr - 1) / t.nr
		j.e.b = grow(j.e.b, panels*panelStride(t.nr, kc))
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
	j.e.Kernels.packB(j.e.b[lo/nr*panelStride(nr, j.kc):], &j.matrices, j.jc+lo, cols, j.pc, j.kc)
}

// block computes rows [row·mc, …) and columns [col·taskCols, …) of the current block of C, one panel
// of B after the other. While it works on one, it has the next fetched into the second-level cache,
// a part with every tile.
func (j *gemmJob) block(ws *Workspace, row, col int) {
	t := j.e.tile
	i0 := row * j.mc
	rows := min(j.mc, j.m-i0)
	j.prepareA(ws, row, i0, rows)
	stride := panelStride(t.nr, j.kc)
	accumulate := j.accumulate || j.pc > 0
	lo := col * t.taskCols
	hi := min(lo+t.taskCols, j.nc)
	for n := lo; n < hi; n += t.nr {
		nr := min(t.nr, hi-n)
		panel := j.e.b[n/t.nr*stride:]
		for i := 0; i < rows; i += t.mr {
			mr := min(t.mr, rows-i)
			a, rsa, csa := j.tileA(ws, i0, i, mr)
			next := &panel[min(stride+i/t.mr*(j.kc/4*16), len(panel)-1)]
			c := j.c[(i0+i)*j.ldc+j.jc+n:]
			j.e.Kernels.tileTo(ws, mr, nr, j.kc, a, rsa, csa, panel, t.nr, c, j.ldc, accumulate, next)
		}
	}
}

// prepareA packs what tileA will take from the workspace, if that is not there yet: all rows when A
// is stored transposed, and otherwise the last few when no micro-kernel has exactly so many.
func (j *gemmJob) prepareA(ws *Workspace, row, i0, rows int) {
	t := j.e.tile
	if ws.serial == j.serial && ws.row == row {
		return
	}
	ws.serial, ws.row = j.serial, row
	if j.form == TN {
		ws.a = grow(ws.a, (rows+t.mr-1)/t.mr*panelStride(t.mr, j.kc))
		j.e.Kernels.packA(ws.a, &j.matrices, i0, rows, j.pc, j.kc)
		return
	}
	rest := rows % t.mr
	if width := t.panelRows(rest); width != rest {
		ws.a = grow(ws.a, width*j.kc)
		a, rsa, csa := j.aAt(i0+rows-rest, j.pc)
		packEdge(ws.a, width, a, rsa, csa, rest, j.kc)
	}
}

// tileA returns rows [i0+i, i0+i+mr) of A and its strides. Rows that lie one after the other in
// memory are read where they are: that costs the micro-kernel nothing, and packing them did.
func (j *gemmJob) tileA(ws *Workspace, i0, i, mr int) (a []float32, rsa, csa int) {
	t := j.e.tile
	width := t.panelRows(mr)
	switch {
	case j.form == TN:
		return ws.a[i/t.mr*panelStride(t.mr, j.kc):], 1, width
	case width != mr:
		return ws.a, 1, width
	}
	return j.aAt(i0+i, j.pc)
}

// panelStride is the distance between packed panels of some width: their size and one cache line
// more, because the panels' sizes are multiples of a cache way and filling several side by side
// would compete for the same few lines.
func panelStride(width, kc int) int { return width*kc + cacheLine/4 }

// panelRows is the width that a panel of A with so many rows is stored with.
func (t *tiling) panelRows(rows int) int { return roundUp(rows, t.rowStep) }

// tileTo computes one tile of C, of full size or cut off at an edge. An edge tile is computed whole
// into scratch, where the operands must be padded with zeros, and the part that exists is copied.
func (k Kernels) tileTo(ws *Workspace, mr, nr, kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool, next *float32) {
	t := k.tiling()
	rows := t.panelRows(mr)
	if rows == mr && nr == t.nr {
		k.micro(rows, kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
		return
	}
	k.micro(rows, kc, a, rsa, csa, b, ldb, ws.tile[:], t.nr, false, next)
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
