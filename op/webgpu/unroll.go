package webgpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Arrays that a shader indexes with a loop variable end in slow memory on
// drivers that do not unroll the loop. Kernels mark such loops:
//
//	for (var i = 0u; i < DQ; i++) { // unroll
//	  …
//	}
//
// and unroll writes them out, the variable replaced by 0u, 1u, …. The marked
// loop is valid WGSL as it stands. Its bound is a constant of the source, it has
// no break or continue of its own, and its closing brace stands alone at the
// loop's indentation.

var loopHead = regexp.MustCompile(`^(\s*)for \(var (\w+) = 0u; (\w+) < ([^;]+); (\w+)\+\+\) \{ // unroll$`)

// maxUnrolled bounds the lines of an unrolled kernel, against slips.
const maxUnrolled = 200_000

// unroll writes out the marked loops of a source.
func unroll(source string) (string, error) {
	if !strings.Contains(source, "// unroll") {
		return source, nil
	}
	u := unroller{consts: constants(source)}
	lines := strings.Split(source, "\n")
	if err := u.block(lines); err != nil {
		return "", err
	}
	return strings.Join(u.out, "\n"), nil
}

type unroller struct {
	consts map[string]string // name to expression
	out    []string
}

// block appends lines to the output, loops written out.
func (u *unroller) block(lines []string) error {
	for n := 0; n < len(lines); n++ {
		m := loopHead.FindStringSubmatch(lines[n])
		if m == nil {
			u.out = append(u.out, lines[n])
			continue
		}
		indent, name := m[1], m[2]
		if m[3] != name || m[5] != name {
			return fmt.Errorf("unroll: %q counts several variables", strings.TrimSpace(lines[n]))
		}
		count, err := u.eval(m[4], 0)
		if err != nil {
			return fmt.Errorf("unroll: %q: %w", strings.TrimSpace(lines[n]), err)
		}
		end := n + 1
		for end < len(lines) && lines[end] != indent+"}" {
			end++
		}
		if end == len(lines) {
			return fmt.Errorf("unroll: %q is not closed at its indentation", strings.TrimSpace(lines[n]))
		}
		if err := u.repeat(lines[n+1:end], indent, name, count); err != nil {
			return err
		}
		n = end
	}
	return nil
}

// repeat appends a loop's body count times, each in a scope of its own.
func (u *unroller) repeat(body []string, indent, name string, count int) error {
	variable := regexp.MustCompile(`\b` + name + `\b`)
	for i := range count {
		u.out = append(u.out, indent+"{")
		turn := make([]string, len(body))
		for k, line := range body {
			turn[k] = variable.ReplaceAllString(line, strconv.Itoa(i)+"u")
		}
		if err := u.block(turn); err != nil {
			return err
		}
		u.out = append(u.out, indent+"}")
		if len(u.out) > maxUnrolled {
			return fmt.Errorf("unroll: more than %d lines", maxUnrolled)
		}
	}
	return nil
}

var constLine = regexp.MustCompile(`(?m)^\s*const\s+(\w+)\s*(?::\s*u32\s*)?=\s*([^;\n]+);`)

// constants lists a source's u32 constants as text.
func constants(source string) map[string]string {
	all := map[string]string{}
	for _, m := range constLine.FindAllStringSubmatch(source, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// eval computes a constant expression of literals, names and + − * / from left
// to right by precedence.
func (u *unroller) eval(expr string, depth int) (int, error) {
	if depth > 20 {
		return 0, fmt.Errorf("%q refers to itself", expr)
	}
	p := exprParser{u: u, depth: depth, rest: strings.TrimSpace(expr)}
	v, err := p.sum()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("cannot read %q of %q", p.rest, expr)
	}
	return v, err
}

type exprParser struct {
	u     *unroller
	depth int
	rest  string
}

// take removes one of the characters from the front.
func (p *exprParser) take(chars string) byte {
	p.rest = strings.TrimSpace(p.rest)
	if p.rest == "" || !strings.Contains(chars, p.rest[:1]) {
		return 0
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c
}

func (p *exprParser) sum() (int, error) {
	v, err := p.product()
	for err == nil {
		c, w := p.take("+-"), 0
		if c == 0 {
			return v, nil
		}
		if w, err = p.product(); c == '+' {
			v += w
		} else {
			v -= w
		}
	}
	return v, err
}

func (p *exprParser) product() (int, error) {
	v, err := p.atom()
	for err == nil {
		c, w := p.take("*/"), 0
		if c == 0 {
			return v, nil
		}
		w, err = p.atom()
		switch {
		case err != nil:
		case c == '*':
			v *= w
		case w == 0:
			err = fmt.Errorf("division by zero")
		default:
			v /= w
		}
	}
	return v, err
}

var token = regexp.MustCompile(`^(\d+)u?|^[A-Za-z_]\w*`)

func (p *exprParser) atom() (int, error) {
	if p.take("(") != 0 {
		v, err := p.sum()
		if err == nil && p.take(")") == 0 {
			err = fmt.Errorf("a parenthesis is not closed")
		}
		return v, err
	}
	p.rest = strings.TrimSpace(p.rest)
	m := token.FindStringSubmatch(p.rest)
	if m == nil {
		return 0, fmt.Errorf("cannot read %q", p.rest)
	}
	p.rest = p.rest[len(m[0]):]
	if m[1] != "" {
		return strconv.Atoi(m[1])
	}
	expr, ok := p.u.consts[m[0]]
	if !ok {
		return 0, fmt.Errorf("%s is not a constant", m[0])
	}
	return p.u.eval(expr, p.depth+1)
}
