package optest

import (
	"fmt"

	"tezgah/op"
)

func embeddingCases() []Case {
	var cs []Case
	for _, z := range []struct{ n, v, c int }{{1, 1, 1}, {5, 3, 7}, {33, 40, 64}, {17, 257, 65}, {64, 100, 300}, {37, 11, 132}} {
		name := fmt.Sprintf("N%d V%d C%d", z.n, z.v, z.c)
		for _, half := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("embedding/%s f16=%t", name, half), Op: "embedding_forward", F16: half,
				body: func(e *env) { embeddingCase(e, z.n, z.v, z.c, half) }})
		}
		cs = append(cs, Case{Name: "embedding backward/" + name, Op: "embedding_backward",
			body: func(e *env) { embeddingBackwardCase(e, e.intn(z.v, z.n), z.v, z.c) }})
	}
	return append(cs, Case{Name: "embedding backward/one token 300 times", Op: "embedding_backward",
		body: func(e *env) { embeddingBackwardCase(e, make([]int32, 300), 3, 40) }},
		Case{Name: "embedding backward/N9000 V5 C8", Op: "embedding_backward",
			body: func(e *env) { embeddingBackwardCase(e, e.intn(5, 9000), 5, 8) }},
		Case{Name: "embedding backward/most of 3000 are one of 700", Op: "embedding_backward",
			body: func(e *env) { embeddingBackwardCase(e, skewedIDs(e, 3000, 700), 700, 132) }})
}

// skewedIDs are n ids below v, two thirds of them 7: as frequent words do, it
// fills what others share.
func skewedIDs(e *env, n, v int) []int32 {
	ids := e.intn(v, n)
	for i, dice := range e.intn(3, n) {
		if dice > 0 {
			ids[i] = 7
		}
	}
	return ids
}

func embeddingCase(e *env, n, v, c int, half bool) {
	tokens, w := e.ids("tokens", e.intn(v, n), n), e.weight("w", half, e.normal(1, v*c), v, c)
	out := e.out("out", n, c)
	e.run(func(s side) { s.Embedding(op.Embedding{Tokens: s.t(tokens), W: s.t(w), Out: s.t(out)}) })
	e.exact(out)
}

func embeddingBackwardCase(e *env, ids []int32, v, c int) {
	n := len(ids)
	tokens, dout := e.ids("tokens", ids, n), e.in("dout", e.normal(1, n*c), n, c)
	dw := e.acc("dw", e.normal(1, v*c), v, c)
	mag, terms := make([]float64, v*c), make([]int, v)
	for i, w := range dw.before() {
		mag[i] = abs(w)
	}
	for i, d := range dout.before() {
		mag[int(ids[i/c])*c+i%c] += abs(d)
	}
	for _, id := range ids {
		terms[id]++
	}
	e.run(func(s side) {
		s.EmbeddingBackward(op.EmbeddingBackward{Tokens: s.t(tokens), DOut: s.t(dout), DW: s.t(dw)})
	})
	e.compare(dw, func(i int) float64 {
		if terms[i/c] == 0 {
			return 0
		}
		return sumErr(terms[i/c]) * mag[i]
	})
}
