package optest

import (
	"fmt"
	"math"

	"tezgah/op"
)

// lossSetup is one cross-entropy case: logits (rows, v) made by fill.
type lossSetup struct {
	name         string
	rows, v      int
	alpha, beta  float32
	grad         bool
	ignoreSecond bool
	fill         func(e *env, n int) []float32
}

func lossCases() []Case {
	normal := func(std float64) func(e *env, n int) []float32 {
		return func(e *env, n int) []float32 { return e.normal(std, n) }
	}
	var setups []lossSetup
	for _, z := range [][2]int{{1, 1}, {3, 2}, {5, 7}, {4, 256}, {3, 257}, {2, 1000}, {7, 4099}} {
		setups = append(setups,
			lossSetup{"plain", z[0], z[1], 0, 0, true, false, normal(2)},
			lossSetup{"no gradient", z[0], z[1], 0.1, 1e-3, false, true, normal(2)},
			lossSetup{"smoothing, z-loss, ignore", z[0], z[1], 0.1, 1e-2, true, true, normal(2)})
	}
	setups = append(setups,
		lossSetup{"large V", 2, 65537, 0.1, 1e-4, true, false, normal(3)},
		lossSetup{"large V of whole vectors", 3, 14004, 0.1, 1e-4, true, true, normal(3)},
		lossSetup{"many rows", 300, 12, 0.1, 1e-3, true, true, normal(2)},
		lossSetup{"tiny", 3, 50, 0, 0, true, false, normal(1e-12)},
		lossSetup{"all equal", 3, 100, 0.1, 1e-3, true, false, func(_ *env, n int) []float32 { return constant(n, 7.5) }},
		lossSetup{"all -1e4", 3, 100, 0.1, 1e-6, true, false, func(_ *env, n int) []float32 { return constant(n, -1e4) }},
		lossSetup{"extreme", 5, 33, 0.1, 1e-6, true, true, extremeLogits},
		lossSetup{"one far above", 2, 300, 0, 0, true, false, func(e *env, n int) []float32 {
			v := e.normal(1, n)
			v[17] = 1e4
			return v
		}})
	var cs []Case
	for _, z := range setups {
		cs = append(cs, Case{Name: fmt.Sprintf("loss/%s R%d V%d grad=%t", z.name, z.rows, z.v, z.grad), Op: "cross_entropy",
			body: func(e *env) { lossCase(e, z) }})
	}
	return cs
}

func constant(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

// extremeLogits are ±1e4 and 0.
func extremeLogits(e *env, n int) []float32 {
	v := make([]float32, n)
	for i, x := range e.intn(3, n) {
		v[i] = float32(x-1) * 1e4
	}
	return v
}

func lossCase(e *env, z lossSetup) {
	const ignore, gradScale = -100, 0.125
	ids := e.intn(z.v, z.rows)
	if z.ignoreSecond && z.rows > 1 {
		ids[1] = ignore
	}
	logits, targets := e.acc("logits", z.fill(e, z.rows*z.v), z.rows, z.v), e.ids("targets", ids, z.rows)
	loss := e.out("loss", z.rows)
	e.run(func(s side) {
		s.CrossEntropy(op.CrossEntropy{Logits: s.t(logits), Targets: s.t(targets), Loss: s.t(loss), LabelSmoothing: z.alpha,
			ZLoss: z.beta, GradScale: gradScale, Ignore: ignore, Grad: z.grad})
	})
	if e.res.Err != nil {
		return
	}
	rows := make([]lossErr, z.rows)
	for r := range rows {
		if ids[r] != ignore {
			rows[r] = lossBounds(logits.before()[r*z.v:(r+1)*z.v], int(ids[r]), float64(z.alpha), float64(z.beta))
		}
	}
	e.compare(loss, func(r int) float64 { return rows[r].loss })
	if !z.grad {
		e.unchanged(logits)
		return
	}
	e.compare(logits, func(i int) float64 {
		if ids[i/z.v] == ignore {
			return 0
		}
		return gradScale * rows[i/z.v].grad[i%z.v]
	})
}

type lossErr struct {
	loss float64
	grad []float64 // before GradScale
}

// lossBounds follows the formulas in op.CrossEntropy term by term.
func lossBounds(l []float64, target int, alpha, beta float64) lossErr {
	v := len(l)
	top, sum, mean := math.Inf(-1), 0.0, 0.0
	for _, x := range l {
		top = math.Max(top, x)
		mean += abs(x) / float64(v)
	}
	for _, x := range l {
		sum += math.Exp(x - top)
	}
	relSum := sumErr(v)
	for _, x := range l {
		relSum += math.Exp(x-top) / sum * (expErr(x-top) + unit*abs(x-top))
	}
	lse := top + math.Log(sum)
	errLSE := relSum + logErr(sum) + 2*unit*(abs(lse)+abs(top))
	out := lossErr{grad: make([]float64, v)}
	out.loss = errLSE*(1+2*beta*abs(lse)) + 4*unit*(abs(lse)+abs(l[target])+beta*lse*lse) + alpha*mean*(sumErr(v)+4*unit)
	for i, x := range l {
		p := math.Exp(x - lse)
		relP := expErr(x-lse) + errLSE + unit*abs(x-lse) + 4*unit
		out.grad[i] = p*(relP*(1+2*beta*abs(lse))+2*beta*errLSE+8*unit*beta*abs(lse)) + 4*unit*alpha/float64(v) + 2*tiny
		if i == target {
			out.grad[i] += 4 * unit
		}
	}
	return out
}
