// Package re matches the small part of regular expressions that this project
// uses, with the names of package regexp and, for those, its results.
//
// It exists for the page: regexp and the Unicode tables behind it would be a
// twentieth of what a visitor downloads. It knows literals, ".", sets, \d \w \s \b
// and escaped signs, groups with and without (?:…) a number, alternatives, * + ?
// {n} {n,} {n,m}, lazy forms, ^ and $, (?m) at the beginning and (?s:…). Expressions
// are ASCII, sets take single bytes, and searching may take long for expressions
// that can match one text in many ways: they are the program's own, never a
// user's.
//
// parse.go turns an expression into instructions, this file runs them.
package re

import "strings"

// Regexp is a compiled expression. It may be used by several goroutines.
type Regexp struct {
	prog   []inst
	groups int // the whole match included
	first  set // bytes that a match can begin with
	empty  bool
}

// inst is one instruction.
type inst struct {
	op   opcode
	x, y int // where to go on: x first, then y
	set  set // of opSet
}

type opcode uint8

const (
	opMatch     opcode = iota
	opSet              // one byte of set
	opSplit            // x, or else y
	opSave             // note the position in slot y
	opTextStart        // ^
	opTextEnd          // $
	opLineStart        // ^ with (?m)
	opLineEnd          // $ with (?m)
	opBoundary         // \b
)

// set is a set of bytes.
type set [8]uint32

func (s *set) add(lo, hi byte) {
	for c := int(lo); c <= int(hi); c++ {
		s[c/32] |= 1 << (c % 32)
	}
}

func (s *set) has(c byte) bool { return s[c/32]&(1<<(c%32)) != 0 }

func (s *set) union(t *set) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s *set) negate() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// thread is a way that was not taken yet, or with pc < 0 a slot to put back.
type thread struct{ pc, pos int }

// matchAt returns the slots of the match that begins at pos: begin and end of
// every group, −1 for one that took no part; nil if there is none.
func (r *Regexp) matchAt(text string, pos int) []int {
	slots := make([]int, 2*r.groups)
	for i := range slots {
		slots[i] = -1
	}
	stack := []thread{{0, pos}}
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if t.pc < 0 {
			slots[-t.pc-1] = t.pos
			continue
		}
		for pc, pos := t.pc, t.pos; pc >= 0; {
			in := &r.prog[pc]
			pc = in.x
			switch in.op {
			case opMatch:
				return slots
			case opSplit:
				stack = append(stack, thread{in.y, pos})
			case opSave:
				stack = append(stack, thread{-in.y - 1, slots[in.y]})
				slots[in.y] = pos
			case opSet:
				if pos >= len(text) || !in.set.has(text[pos]) {
					pc = -1
				}
				pos++
			default:
				if !holds(in.op, text, pos) {
					pc = -1
				}
			}
		}
	}
	return nil
}

// holds tells whether a condition on a position is met.
func holds(op opcode, text string, pos int) bool {
	before := pos > 0 && isWord(text[pos-1])
	after := pos < len(text) && isWord(text[pos])
	switch op {
	case opTextStart:
		return pos == 0
	case opTextEnd:
		return pos == len(text)
	case opLineStart:
		return pos == 0 || text[pos-1] == '\n'
	case opLineEnd:
		return pos == len(text) || text[pos] == '\n'
	}
	return before != after
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// find returns the slots of the leftmost match from pos on, nil if there is
// none.
func (r *Regexp) find(text string, pos int) []int {
	for ; pos <= len(text); pos++ {
		if !r.empty && (pos == len(text) || !r.first.has(text[pos])) {
			continue
		}
		if m := r.matchAt(text, pos); m != nil {
			return m
		}
	}
	return nil
}

// each calls f with the slots of all matches that do not overlap. As in regexp,
// an empty match right behind a match does not count.
func (r *Regexp) each(text string, f func(slots []int)) {
	for pos, last := 0, -1; pos <= len(text); {
		m := r.find(text, pos)
		if m == nil {
			return
		}
		if m[1] > m[0] || m[0] != last {
			f(m)
		}
		last = m[1]
		pos = m[1]
		if m[1] == m[0] {
			pos++
		}
	}
}

// MatchString reports whether the text contains a match.
func (r *Regexp) MatchString(text string) bool { return r.find(text, 0) != nil }

// FindStringSubmatch returns the leftmost match and its groups, nil for none.
func (r *Regexp) FindStringSubmatch(text string) []string {
	m := r.find(text, 0)
	if m == nil {
		return nil
	}
	return groups(text, m)
}

// FindAllStringSubmatch returns all matches and their groups; n must be −1.
func (r *Regexp) FindAllStringSubmatch(text string, n int) [][]string {
	if n >= 0 {
		panic("re: FindAllStringSubmatch finds all, want n = -1")
	}
	var all [][]string
	r.each(text, func(m []int) { all = append(all, groups(text, m)) })
	return all
}

func groups(text string, slots []int) []string {
	out := make([]string, len(slots)/2)
	for i := range out {
		if lo := slots[2*i]; lo >= 0 {
			out[i] = text[lo:slots[2*i+1]]
		}
	}
	return out
}

// ReplaceAllString replaces all matches. In the replacement ${1} is the first
// group, and so on to ${9}; other dollar signs are not allowed.
func (r *Regexp) ReplaceAllString(text, with string) string {
	var b strings.Builder
	last := 0
	r.each(text, func(m []int) {
		b.WriteString(text[last:m[0]])
		last = m[1]
		expand(&b, with, groups(text, m))
	})
	b.WriteString(text[last:])
	return b.String()
}

func expand(b *strings.Builder, with string, groups []string) {
	for {
		before, after, ok := strings.Cut(with, "$")
		b.WriteString(before)
		if !ok {
			return
		}
		if len(after) < 3 || after[0] != '{' || after[2] != '}' || after[1] < '0' || int(after[1]-'0') >= len(groups) {
			panic("re: bad replacement $" + after + ", want ${1} and so on")
		}
		b.WriteString(groups[after[1]-'0'])
		with = after[3:]
	}
}

// QuoteMeta escapes everything in a text that an expression reads as a sign.
func QuoteMeta(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.IndexByte(`\.+*?()|[]{}^$`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// FindStringSubmatchIndex returns where the leftmost match and its groups begin
// and end, −1 for groups that took no part; nil for no match.
func (r *Regexp) FindStringSubmatchIndex(text string) []int { return r.find(text, 0) }
