package kern

// tiling is the shape of the blocks a product is cut into.
//
// The micro-kernel keeps an mr×nr tile of C in registers. B is packed in panels of nr columns, stored
// k by k, so that the kernel reads it straight through. K is cut into blocks of about kc. For each,
// B is packed once by all threads; then tasks of mc rows by taskCols columns are handed out. Rows of
// A are read in place; in the form TN, where a row of A is a column in memory, and at bad strides,
// whoever takes a task packs its rows privately.
type tiling struct {
	mr, nr   int
	rowStep  int // the micro-kernel exists for every multiple of rowStep up to mr
	kc       int // longest block of K
	mc       int // about how many rows of A make a task
	nc       int // most columns of B packed at a time, a multiple of nr
	taskCols int // columns of one task, a multiple of nr
}

// packGroup is the most panels of B that one packing task fills.
const packGroup = 8

// gemmStep is one block of B: columns [jc, jc+nc) and k in [pc, pc+kc).
type gemmStep struct {
	jc, nc, pc, kc int
	packed         []float32
	group          int // panels to a packing task
	packTasks      int
}

// gemmJob is the state of one large product, and the Task that computes it.
type gemmJob struct {
	matrices
	e         *Engine
	gemmStep           // what is being multiplied
	following gemmStep // what is packed meanwhile
	rowBlocks int      // blocks of rows, of about mc
	colBlocks int      // tasks side by side in a block of columns
	compute   int      // rowBlocks·colBlocks
	inPlace   bool     // A is read where it is
	serial    int      // counts steps, so that a worker knows what its packed A is from
}

// run computes the product step by step; the steps of one element come in the order of k. Each packs
// the next one's B with the tasks that come last, which fills the time in which threads would wait
// for each other.
func (j *gemmJob) run(x *matrices) {
	j.matrices = *x
	t, pool := j.e.tile, j.e.pool
	j.inPlace = x.form != TN && x.lda%badStride != 0
	j.rowBlocks = t.rowBlocks(x.m, pool.Threads())
	kc := evenSplit(x.k, t.kc, 16)
	kSteps := (x.k + kc - 1) / kc
	steps := (x.n + t.nc - 1) / t.nc * kSteps
	j.colBlocks, j.compute = 0, 0
	for s := -1; s < steps; s++ {
		j.gemmStep = j.following
		j.following = gemmStep{}
		if s+1 < steps {
			j.following = j.step((s+1)/kSteps, (s+1)%kSteps, kc)
			buf := &j.e.b[(s+1)%2]
			*buf = grow(*buf, j.following.panels(t.nr)*panelStride(t.nr, kc))
			j.following.packed = *buf
		}
		if s >= 0 {
			j.colBlocks = (j.nc + t.taskCols - 1) / t.taskCols
			j.compute = j.rowBlocks * j.colBlocks
			j.serial++
		}
		pool.RunTask(j.compute+j.following.packTasks, j)
	}
	j.matrices, j.gemmStep = matrices{}, gemmStep{} // do not keep the caller's memory alive
}

// badStride: rows of A so many elements apart (16 KiB) fall on so few lines of the second-level cache
// that a block of them does not fit into it, and A is packed instead of read in place.
const badStride = 4096

// step describes block (col, depth) of B.
func (j *gemmJob) step(col, depth, kc int) gemmStep {
	t := j.e.tile
	s := gemmStep{jc: col * t.nc, pc: depth * kc}
	s.nc, s.kc = min(t.nc, j.n-s.jc), min(kc, j.k-s.pc)
	panels, threads := s.panels(t.nr), j.e.pool.Threads()
	s.group = max(1, min(packGroup, panels/(2*threads)))
	s.packTasks = (panels + s.group - 1) / s.group
	return s
}

func (s *gemmStep) panels(nr int) int { return (s.nc + nr - 1) / nr }

// rowBlocks chooses how many blocks the rows are cut into: about mc rows each, and several for every
// thread. It changes which thread computes an element and never how.
func (t *tiling) rowBlocks(m, threads int) int {
	blocks := (m + t.mc - 1) / t.mc
	if threads > 1 {
		blocks = max(blocks, 4*threads)
		blocks = roundUp(blocks, threads)
	}
	return min(blocks, (m+t.mr-1)/t.mr)
}

// rowRange returns rows [lo, hi) of one block; blocks differ by at most one tile.
func (j *gemmJob) rowRange(block int) (lo, hi int) {
	mr := j.e.tile.mr
	tiles := (j.m + mr - 1) / mr
	return block * tiles / j.rowBlocks * mr, min(j.m, (block+1)*tiles/j.rowBlocks*mr)
}

// evenSplit returns a block length of at most limit, a multiple of step, that cuts k evenly.
func evenSplit(k, limit, step int) int {
	parts := (k + limit - 1) / limit
	return roundUp((k+parts-1)/parts, step)
}

func roundUp(n, step int) int { return (n + step - 1) / step * step }

// Do computes a block of C, or packs a group of panels of the next B.
func (j *gemmJob) Do(worker, i int) {
	if i < j.compute {
		j.block(&j.e.ws[worker], i/j.colBlocks, i%j.colBlocks)
		return
	}
	s, nr := &j.following, j.e.tile.nr
	first := (i - j.compute) * s.group
	lo := first * nr
	cols := min(s.group*nr, s.nc-lo)
	j.e.Kernels.packB(s.packed[first*panelStride(nr, s.kc):], &j.matrices, s.jc+lo, cols, s.pc, s.kc)
}

// block computes one block of rows and columns [col·taskCols, …) of the current block of C, one panel
// of B after the other. While it works on one, it has the next fetched into the second-level cache,
// a part with every tile.
func (j *gemmJob) block(ws *Workspace, row, col int) {
	t := j.e.tile
	i0, end := j.rowRange(row)
	rows := end - i0
	j.prepareA(ws, row, i0, rows)
	stride := panelStride(t.nr, j.kc)
	accumulate := j.accumulate || j.pc > 0
	lo := col * t.taskCols
	hi := min(lo+t.taskCols, j.nc)
	for n := lo; n < hi; n += t.nr {
		nr := min(t.nr, hi-n)
		panel := j.packed[n/t.nr*stride:]
		for i := 0; i < rows; i += t.mr {
			mr := min(t.mr, rows-i)
			a, rsa, csa := j.tileA(ws, i0, i, mr)
			next := &panel[min(stride+i/t.mr*(j.kc/4*16), len(panel)-1)]
			c := j.c[(i0+i)*j.ldc+j.jc+n:]
			j.e.Kernels.tileTo(ws, mr, nr, j.kc, a, rsa, csa, panel, t.nr, c, j.ldc, accumulate, next)
		}
	}
}

// prepareA packs what tileA will take from the workspace, if that is not there yet: all rows, or when
// A is read in place the last few if no micro-kernel has exactly so many.
func (j *gemmJob) prepareA(ws *Workspace, row, i0, rows int) {
	t := j.e.tile
	if ws.serial == j.serial && ws.row == row {
		return
	}
	ws.serial, ws.row = j.serial, row
	if !j.inPlace {
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

// tileA returns rows [i0+i, i0+i+mr) of A and its strides. Reading rows where they are costs the
// micro-kernel nothing, and packing them did.
func (j *gemmJob) tileA(ws *Workspace, i0, i, mr int) (a []float32, rsa, csa int) {
	t := j.e.tile
	width := t.panelRows(mr)
	switch {
	case !j.inPlace:
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
