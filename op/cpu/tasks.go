package cpu

// ranger does a part of one op: elements, rows or pieces [lo, hi), on the
// thread whose scratch is b.workers[w].
type ranger interface {
	do(b *Backend, w, lo, hi int)
}

// tasks holds one instance of every op's ranger, so that handing one to the
// pool allocates nothing, and the range that is being worked on.
type tasks struct {
	b        *Backend
	current  ranger
	n, block int

	zero       zeroTask
	copy       copyTask
	add        addTask
	scale      scaleTask
	toHalf     toHalfTask
	fromHalf   fromHalfTask
	sum        sumTask
	fewRows    fewRowsTask
	embed      embedTask
	embedBack  embedBackTask
	norm       normTask
	normBack   normBackTask
	columns    columnsTask
	rope       ropeTask
	transpose  transposeTask
	attn       attnTask
	attnBack   attnBackTask
	attnReduce attnReduceTask
	attnDecode attnDecodeTask
	glu        gluTask
	gluBack    gluBackTask
	loss       lossTask
	normSq     normSqTask
	adamw      adamwTask
	adamw8     adamw8Task
}

// elementBlock is how many elements one piece of an elementwise op has: 64 KiB
// of each operand, some ten microseconds from memory. It is a multiple of every
// vector length and of op.MomentBlock.
const elementBlock = 1 << 14

// each calls x.do for the blocks of [0, n), on all threads. block must follow
// from shapes alone. A single block runs on the caller's thread at once.
func (b *Backend) each(n, block int, x ranger) {
	t := &b.tasks
	t.current, t.n, t.block = x, n, block
	b.pool.RunTask((n+block-1)/block, t)
	t.current = nil
}

// Do is kern.Task.
func (t *tasks) Do(w, i int) {
	t.current.do(t.b, w, i*t.block, min(t.n, (i+1)*t.block))
}

// rowBlock is how many rows of c elements make a piece of about elementBlock.
func rowBlock(c int) int { return max(1, elementBlock/max(1, c)) }
