package re

import (
	"fmt"
	"strings"
)

// MustCompile compiles an expression. It panics when the expression is wrong or
// needs more than this package knows.
func MustCompile(expr string) *Regexp {
	p := &parser{expr: expr, rest: expr}
	if after, ok := strings.CutPrefix(p.rest, "(?m)"); ok {
		p.rest, p.lines = after, true
	}
	whole := numbered(p.alternatives(), 0)
	if p.rest != "" {
		p.fail("unexpected )")
	}
	r := &Regexp{groups: p.groups + 1}
	end := r.emit(inst{op: opMatch})
	start := whole(r, end)
	r.turn(start)
	if r.endless() {
		p.fail("what is repeated without bound can be empty")
	}
	r.firstBytes(0, make([]bool, len(r.prog)))
	return r
}

// endless tells whether matching could come back to an instruction without
// having taken a byte.
func (r *Regexp) endless() bool {
	const onTheWay, done = 1, 2
	state := make([]uint8, len(r.prog))
	var walk func(pc int) bool
	walk = func(pc int) bool {
		in := &r.prog[pc]
		if in.op == opSet || in.op == opMatch || state[pc] == done {
			return false
		}
		if state[pc] == onTheWay {
			return true
		}
		state[pc] = onTheWay
		if walk(in.x) || in.op == opSplit && walk(in.y) {
			return true
		}
		state[pc] = done
		return false
	}
	for pc := range r.prog {
		if walk(pc) {
			return true
		}
	}
	return false
}

// turn moves the instruction where matching starts to the front.
func (r *Regexp) turn(start int) {
	swap := func(at int) int {
		switch at {
		case 0:
			return start
		case start:
			return 0
		}
		return at
	}
	r.prog[0], r.prog[start] = r.prog[start], r.prog[0]
	for i := range r.prog {
		in := &r.prog[i]
		in.x = swap(in.x)
		if in.op == opSplit {
			in.y = swap(in.y)
		}
	}
}

// firstBytes finds what a match can begin with from pc on; a condition may be
// followed by anything that comes after it.
func (r *Regexp) firstBytes(pc int, seen []bool) {
	if seen[pc] {
		return
	}
	seen[pc] = true
	switch in := &r.prog[pc]; in.op {
	case opMatch:
		r.empty = true
	case opSet:
		r.first.union(&in.set)
	case opSplit:
		r.firstBytes(in.x, seen)
		r.firstBytes(in.y, seen)
	default:
		r.firstBytes(in.x, seen)
	}
}

func (r *Regexp) emit(in inst) int {
	r.prog = append(r.prog, in)
	return len(r.prog) - 1
}

// node writes the instructions of a part of an expression that goes on at next,
// and returns where the part begins.
type node func(r *Regexp, next int) int

// parser reads an expression from the left.
type parser struct {
	expr, rest string
	groups     int  // numbered so far
	lines      bool // (?m)
	dotAll     bool // inside (?s:…)
}

func (p *parser) fail(what string) {
	panic(fmt.Sprintf("re: %s at %q of %q", what, p.rest, p.expr))
}

// take cuts a prefix off.
func (p *parser) take(prefix string) bool {
	after, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = after
	return ok
}

// next cuts one byte off.
func (p *parser) next() byte {
	if p.rest == "" {
		p.fail("unexpected end")
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	if c >= 0x80 {
		p.fail("only ASCII is known")
	}
	return c
}

func (p *parser) alternatives() node {
	n := p.sequence()
	for p.take("|") {
		first, second := n, p.sequence()
		n = func(r *Regexp, next int) int {
			x, y := first(r, next), second(r, next)
			return r.emit(inst{op: opSplit, x: x, y: y})
		}
	}
	return n
}

func (p *parser) sequence() node {
	var parts []node
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		parts = append(parts, p.repeated(p.atom()))
	}
	return func(r *Regexp, next int) int {
		for i := len(parts) - 1; i >= 0; i-- {
			next = parts[i](r, next)
		}
		return next
	}
}

// repeated reads the repetition behind an atom.
func (p *parser) repeated(n node) node {
	lo, hi := 1, 1
	switch {
	case p.take("*"):
		lo, hi = 0, -1
	case p.take("+"):
		hi = -1
	case p.take("?"):
		lo = 0
	case p.take("{"):
		lo = p.number()
		hi = lo
		if p.take(",") {
			hi = -1
			if !strings.HasPrefix(p.rest, "}") {
				hi = p.number()
			}
		}
		if !p.take("}") {
			p.fail("a repetition without }")
		}
	default:
		return n
	}
	return repeat(n, lo, hi, p.take("?"))
}

// repeat writes n lo times, then as often as hi allows; −1 is without bound.
func repeat(n node, lo, hi int, lazy bool) node {
	split := func(r *Regexp, again, next int) inst {
		if lazy {
			again, next = next, again
		}
		return inst{op: opSplit, x: again, y: next}
	}
	return func(r *Regexp, next int) int {
		at := next
		if hi < 0 {
			loop := r.emit(inst{op: opSplit})
			r.prog[loop] = split(r, n(r, loop), next)
			at = loop
		}
		for i := lo; i < hi; i++ {
			at = r.emit(split(r, n(r, at), next))
		}
		for range lo {
			at = n(r, at)
		}
		return at
	}
}

func (p *parser) number() int {
	n, digits := 0, 0
	for ; p.rest != "" && '0' <= p.rest[0] && p.rest[0] <= '9' && digits < 4; digits++ {
		n = 10*n + int(p.next()-'0')
	}
	if digits == 0 {
		p.fail("a number is missing")
	}
	return n
}

// numbered notes where a group begins and ends.
func numbered(n node, slot int) node {
	return func(r *Regexp, next int) int {
		end := r.emit(inst{op: opSave, x: next, y: slot + 1})
		return r.emit(inst{op: opSave, x: n(r, end), y: slot})
	}
}

func condition(op opcode) node {
	return func(r *Regexp, next int) int { return r.emit(inst{op: op, x: next}) }
}

func oneOf(s set) node {
	return func(r *Regexp, next int) int { return r.emit(inst{op: opSet, x: next, set: s}) }
}

func (p *parser) atom() node {
	var s set
	switch c := p.next(); c {
	case '(':
		return p.parenthesis()
	case '^':
		if p.lines {
			return condition(opLineStart)
		}
		return condition(opTextStart)
	case '$':
		if p.lines {
			return condition(opLineEnd)
		}
		return condition(opTextEnd)
	case '.':
		s.add('\n', '\n')
		if p.dotAll {
			s = set{}
		}
		s.negate()
	case '[':
		s = p.set()
	case '\\':
		if p.take("b") {
			return condition(opBoundary)
		}
		s = p.escaped()
	case '*', '+', '?', '{':
		p.fail("nothing to repeat")
	default:
		s.add(c, c)
	}
	return oneOf(s)
}

// parenthesis reads a group behind its "(".
func (p *parser) parenthesis() node {
	slot := -1
	dotAll := p.dotAll
	switch {
	case p.take("?:"):
	case p.take("?s:"):
		p.dotAll = true
	case strings.HasPrefix(p.rest, "?"):
		p.fail("unknown kind of group")
	default:
		p.groups++
		slot = 2 * p.groups
	}
	n := p.alternatives()
	p.dotAll = dotAll
	if !p.take(")") {
		p.fail("a group without )")
	}
	if slot < 0 {
		return n
	}
	return numbered(n, slot)
}

// escaped reads what follows a backslash.
func (p *parser) escaped() (s set) {
	switch c := p.next(); c {
	case 'd':
		s.add('0', '9')
	case 's':
		for _, c := range []byte("\t\n\f\r ") {
			s.add(c, c)
		}
	case 'w':
		s.add('0', '9')
		s.add('A', 'Z')
		s.add('a', 'z')
		s.add('_', '_')
	case 'n':
		s.add('\n', '\n')
	case 't':
		s.add('\t', '\t')
	default:
		if isWord(c) {
			p.fail("unknown escape \\" + string(c))
		}
		s.add(c, c)
	}
	return s
}

// set reads a set behind its "[".
func (p *parser) set() (s set) {
	negated := p.take("^")
	for first := true; first || !p.take("]"); first = false {
		c := p.next()
		if c == '\\' {
			e := p.escaped()
			s.union(&e)
			continue
		}
		hi := c
		if len(p.rest) > 1 && p.rest[0] == '-' && p.rest[1] != ']' {
			p.next()
			hi = p.next()
		}
		if hi < c {
			p.fail("a range that goes down")
		}
		s.add(c, hi)
	}
	if negated {
		s.negate()
	}
	return s
}
