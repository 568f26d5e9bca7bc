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
	return cs
}

func ropeCase(e *env, b, t, h, d, pos int, inverse bool) {
	p := pos + t + 3
	angles := ref.RoPETable(p, d, 10000)
	x, table := e.acc("x", e.normal(1, b*t*h*d), b, t, h, d), e.in("table", angles, p, d)
	e.run(func(s side) { s.RoPE(op.RoPE{X: s.t(x), Table: s.t(table), Pos0: pos, Inverse: inverse}) })
	v := x.before()
	e.compare(x, func(i int) float64 { // two products and a sum
		pair := i + d/2
		if i%d >= d/2 {
			pair = i - d/2
		}
		row := angles[(pos+i/d/h%t)*d:]
		c, s := float64(row[i%(d/2)]), float64(row[d/2+i%(d/2)])
		return 3*unit*(abs(v[i]*c)+abs(v[pair]*s)) + tiny
	})
}
