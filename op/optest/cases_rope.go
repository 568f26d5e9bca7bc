package optest

import (
	"fmt"

	"tezgah/op"
	"tezgah/op/ref"
)

func ropeCases() []Case {
	var cs []Case
	for _, z := range []struct{ b, t, h, d, pos int }{{1, 1, 1, 2, 0}, {2, 5, 3, 6, 4}, {1, 33, 4, 64, 0}, {2, 9, 2, 128, 17},
		{3, 7, 5, 48, 1}, {1, 1, 8, 80, 1000}, {2, 17, 3, 96, 3}, {1, 65, 1, 32, 5}, {1, 4, 2, 16, 0}} {
		for _, inverse := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rope/B%d T%d H%d D%d pos %d inverse=%t", z.b, z.t, z.h, z.d, z.pos, inverse),
				Op: op.RoPE{Inverse: inverse}.Label(), body: func(e *env) { ropeCase(e, z.b, z.t, z.h, z.d, z.pos, inverse) }})
		}
	}
	for _, z := range []struct{ b, t, h, kvh, d, pos int }{{1, 1, 1, 1, 2, 0}, {2, 5, 3, 1, 6, 4}, {2, 17, 6, 3, 16, 2}, {1, 33, 4, 4, 64, 0},
		{3, 7, 12, 4, 48, 1}, {2, 9, 5, 2, 8, 17}, {1, 1, 8, 1, 80, 1000}} {
		for _, inverse := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rope/B%d T%d H%d KVH%d D%d pos %d inverse=%t", z.b, z.t, z.h, z.kvh, z.d, z.pos, inverse),
				Op: op.RoPE{Inverse: inverse}.Label(), body: func(e *env) { ropePairCase(e, z.b, z.t, z.h, z.kvh, z.d, z.pos, inverse) }})
		}
	}
	return cs
}

func ropeCase(e *env, b, t, h, d, pos int, inverse bool) {
	p := pos + t + 3
	angles := ref.RoPETable(p, d, 10000)
	x, table := e.acc("x", e.normal(1, b*t*h*d), b, t, h, d), e.in("table", angles, p, d)
	e.run(func(s side) { s.RoPE(op.RoPE{X: s.t(x), Table: s.t(table), Pos0: pos, Inverse: inverse}) })
	e.compare(x, ropeBound(x.before(), angles, t, h, d, pos))
}

// ropePairCase rotates two tensors in place with one call.
func ropePairCase(e *env, b, t, h, kvh, d, pos int, inverse bool) {
	p := pos + t + 3
	angles := ref.RoPETable(p, d, 10000)
	x, x2 := e.acc("x", e.normal(1, b*t*h*d), b, t, h, d), e.acc("x2", e.normal(1, b*t*kvh*d), b, t, kvh, d)
	table := e.in("table", angles, p, d)
	e.run(func(s side) {
		s.RoPE(op.RoPE{X: s.t(x), X2: s.t(x2), Table: s.t(table), Pos0: pos, Inverse: inverse})
	})
	e.compare(x, ropeBound(x.before(), angles, t, h, d, pos))
	e.compare(x2, ropeBound(x2.before(), angles, t, kvh, d, pos))
}

// ropeBound is the error of v (·, t, h, d), rotated: of two products and a sum.
func ropeBound(v []float64, angles []float32, t, h, d, pos int) func(i int) float64 {
	return func(i int) float64 {
		pair := i + d/2
		if i%d >= d/2 {
			pair = i - d/2
		}
		row := angles[(pos+i/d/h%t)*d:]
		c, s := float64(row[i%(d/2)]), float64(row[d/2+i%(d/2)])
		return 3*unit*(abs(v[i]*c)+abs(v[pair]*s)) + tiny
	}
}
