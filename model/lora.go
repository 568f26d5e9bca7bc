package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tezgah/op"
)

// LoRA asks for low-rank adaptation (Hu et al., "LoRA: Low-Rank Adaptation of
// Large Language Models", 2021): the model's weights are frozen, and beside each
// target matrix W (in, out) two small ones are trained, A (in, r) and B (r, out):
//
//	Y = X·W + α/r·(X·A)·B
//
// The zero value means none. Two values of equal meaning are equal after
// WithDefaults.
type LoRA struct {
	Rank    int     `json:"rank"`    // r; 0 means no adaptation
	Alpha   float64 `json:"alpha"`   // α; 0 means 2·Rank
	Targets string  `json:"targets"` // names of loraTargets joined by commas, or "all", "attn", "ffn"; "" means "all"
}

// loraTargets names the matrices that can have an adapter, in the order of the
// parameter table, and the groups they are in.
var loraTargets = []struct{ name, matrix, group string }{
	{"q", "wq", "attn"}, {"k", "wk", "attn"}, {"v", "wv", "attn"}, {"o", "wo", "attn"},
	{"gate", "w_gate", "ffn"}, {"up", "w_up", "ffn"}, {"down", "w_down", "ffn"},
}

// Endings of an adapter's parameter names: layers.0.wq.lora_a.
const (
	loraA = ".lora_a" // (in, r)
	loraB = ".lora_b" // (r, out)
)

// Ok reports whether adaptation is asked for.
func (l LoRA) Ok() bool { return l != LoRA{} }

// WithDefaults fills in what is zero and writes the targets in one way: without
// groups, spaces and repetitions, in the order q, k, v, o, gate, up, down.
// Unknown targets stay for Validate to name.
func (l LoRA) WithDefaults() LoRA {
	if !l.Ok() {
		return l
	}
	if l.Alpha == 0 {
		l.Alpha = 2 * float64(l.Rank)
	}
	var known, unknown []string
	asked := l.words()
	for _, t := range loraTargets {
		if len(asked) == 0 || slices.ContainsFunc(asked, func(w string) bool { return w == t.name || w == t.group || w == "all" }) {
			known = append(known, t.name)
		}
	}
	for _, w := range asked {
		if !slices.Contains(loraWords(), w) {
			unknown = append(unknown, w)
		}
	}
	l.Targets = strings.Join(append(known, unknown...), ",")
	return l
}

// words are the targets as given.
func (l LoRA) words() []string {
	return strings.FieldsFunc(l.Targets, func(r rune) bool { return r == ',' || r == ' ' })
}

// loraWords lists every word that Targets may hold.
func loraWords() []string {
	words := []string{"all", "attn", "ffn"}
	for _, t := range loraTargets {
		words = append(words, t.name)
	}
	return words
}

// Validate says whether a model of configuration c can have the adapter.
func (l LoRA) Validate(c Config) error {
	if !l.Ok() {
		return nil
	}
	c, l = c.WithDefaults(), l.WithDefaults()
	if l.Rank < 1 || l.Rank > c.DModel {
		return fmt.Errorf("lora: rank is %d, want 1 to d_model %d (8 or 16 is usual)", l.Rank, c.DModel)
	}
	if !(l.Alpha > 0) || math.IsInf(l.Alpha, 0) {
		return fmt.Errorf("lora: alpha is %v, want a finite number above 0, or 0 for twice the rank", l.Alpha)
	}
	for _, w := range l.words() {
		if !slices.Contains(loraWords(), w) {
			msg := fmt.Sprintf("lora: unknown target %q: want some of %s", w, strings.Join(loraWords(), ", "))
			if near := nearest(w, loraWords()); near != "" {
				msg += fmt.Sprintf("; did you mean %q?", near)
			}
			return fmt.Errorf("%s", msg)
		}
	}
	return nil
}

// ParseLoRA reads what a command line says: "r=16,alpha=32,targets=q,v". Each
// part may be absent but the rank, and "" means no adaptation. String writes it
// back.
func ParseLoRA(s string) (LoRA, error) {
	var l LoRA
	if s == "" {
		return l, nil
	}
	bad := func(part, want string) (LoRA, error) {
		return LoRA{}, fmt.Errorf("lora: got %q in %q, want %s, such as r=16,alpha=32,targets=q,v", part, s, want)
	}
	var targets []string
	key := ""
	for _, part := range strings.Split(s, ",") {
		k, value, assigned := strings.Cut(part, "=")
		if assigned {
			key = strings.TrimSpace(k)
		} else if value = part; key != "targets" {
			return bad(part, "name=value")
		}
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "r", "rank":
			l.Rank, err = strconv.Atoi(value)
		case "alpha":
			l.Alpha, err = strconv.ParseFloat(value, 64)
		case "targets":
			targets = append(targets, value)
		default:
			return bad(part, "r, alpha or targets")
		}
		if err != nil {
			return bad(part, "a number")
		}
	}
	if l.Rank < 1 {
		return LoRA{}, fmt.Errorf("lora: the rank is missing or below 1 in %q, want such as r=16,alpha=32,targets=q,v", s)
	}
	l.Targets = strings.Join(targets, ",")
	return l.WithDefaults(), nil
}

// String writes what ParseLoRA reads.
func (l LoRA) String() string {
	if !l.Ok() {
		return ""
	}
	return fmt.Sprintf("r=%d,alpha=%v,targets=%s", l.Rank, l.Alpha, l.Targets)
}

// scale is α/r.
func (l LoRA) scale() float32 { return float32(l.Alpha / float64(l.Rank)) }

// Params lists the adapter's parameters: for each layer and target A and B.
func (l LoRA) Params(c Config) []ParamInfo {
	l = l.WithDefaults()
	if !l.Ok() {
		return nil
	}
	targets := l.words()
	var table []ParamInfo
	for _, p := range c.Params() {
		_, matrix, _ := strings.Cut(strings.TrimPrefix(p.Name, "layers."), ".")
		for _, t := range loraTargets {
			if t.matrix == matrix && slices.Contains(targets, t.name) {
				table = append(table,
					ParamInfo{Name: p.Name + loraA, Shape: []int{p.Shape[0], l.Rank}, Decay: true},
					ParamInfo{Name: p.Name + loraB, Shape: []int{l.Rank, p.Shape[1]}, Decay: true})
			}
		}
	}
	return table
}

// lowRank is the trained part of one matrix: y = x·w + u·b with u = α/r·x·a. A
// nil lowRank is a matrix without such a part; its methods then do nothing.
type lowRank struct {
	a, b   op.Tensor // (in, r), (r, out)
	sa, sb op.Tensor // the same times α/r
	da, db op.Tensor // gradients; absent where none are kept
	u      op.Tensor // (N, r); kept for db
}

// forward computes u and adds the low-rank part to y.
func (t *lowRank) forward(r *op.Runner, x, y op.Tensor) {
	t.project(r, x)
	t.expand(r, y)
}

// project computes u = α/r·x·a of as many rows as x has.
func (t *lowRank) project(r *op.Runner, x op.Tensor) {
	if t != nil {
		r.MatMul(op.MatMul{A: x, B: t.sa, C: rows(t.u, x.Dims[0])})
	}
}

// expand computes y += u·b.
func (t *lowRank) expand(r *op.Runner, y op.Tensor) {
	if t != nil {
		r.MatMul(op.MatMul{A: rows(t.u, y.Dims[0]), B: t.b, C: y, Acc: true})
	}
}

// grads writes the gradients of a and b, or adds to them with add. It leaves the
// gradient of x·a in du, (N, r), for input.
func (t *lowRank) grads(r *op.Runner, x, dy, du op.Tensor, add bool) {
	if t != nil {
		r.MatMul(op.MatMul{A: t.u, TransA: true, B: dy, C: t.db, Acc: add}) // db = uᵀ·dy
		r.MatMul(op.MatMul{A: dy, B: t.sb, TransB: true, C: du})            // du = dy·(α/r·b)ᵀ
		r.MatMul(op.MatMul{A: x, TransA: true, B: du, C: t.da, Acc: add})   // da = xᵀ·du
	}
}

// input adds the low-rank part to the gradient of x: dx += du·aᵀ.
func (t *lowRank) input(r *op.Runner, du, dx op.Tensor) {
	if t != nil {
		r.MatMul(op.MatMul{A: du, B: t.a, TransB: true, C: dx, Acc: true})
	}
}

// linearBackward undoes y = x·w + u·b: it writes or adds to the gradients of the
// low-rank part, and writes dx = dy·wᵀ + du·aᵀ, or adds it with acc. dx may be x's
// memory, or absent where nobody needs it.
func (g *Graph) linearBackward(w op.Tensor, low *lowRank, x, dy, dx op.Tensor, acc bool) {
	du := g.back.du
	low.grads(g.r, x, dy, du, g.adds)
	if dx.Ok() {
		g.r.MatMul(op.MatMul{A: dy, B: w, TransB: true, C: dx, Acc: acc})
		low.input(g.r, du, dx)
	}
}

// linearsBackward undoes several y = x·w + u·b of one x, each as linearBackward
// does. terms are the products dy·wᵀ, whose sum is dx, and low the low-rank parts; where
// there is none of these the sum is one operation.
func (g *Graph) linearsBackward(terms op.MatMulSum, x op.Tensor, low ...*lowRank) {
	dx := terms[0].C
	if dx.Ok() && !slices.ContainsFunc(low, func(t *lowRank) bool { return t != nil }) {
		g.r.MatMulSum(terms)
		return
	}
	for i, p := range terms {
		g.linearBackward(p.B, low[i], x, p.A, dx, i > 0)
	}
}

// blockLow are the low-rank parts of one layer's matrices, nil where there is
// none.
type blockLow struct{ q, k, v, o, gate, up, down *lowRank }

// attention reports whether any matrix of the attention has a trained part.
func (b blockLow) attention() bool { return b.q != nil || b.k != nil || b.v != nil || b.o != nil }

// gateUp computes the first half of the feed-forward block: fused where nothing
// has to be added between the products and the activation. group holds the two
// products.
func (b blockLow) gateUp(r *op.Runner, a op.GateUp, group []op.MatMul) {
	if b.gate == nil && b.up == nil {
		r.GateUp(a)
		return
	}
	r.MatMulGroup(group)
	b.gate.forward(r, a.X, a.Gate)
	b.up.forward(r, a.X, a.Up)
	r.GLU(op.GLU{Gate: a.Gate, Up: a.Up, Out: a.Out, Act: a.Act})
}
