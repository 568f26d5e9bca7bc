package re

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// expressions are those of the project, and others with every sign.
var expressions = []string{
	`^step-(\d{9,18})\.llm$`,
	`^(\.val)?(-\d{5,})?(\.bin|\.manifest\.json)(\.docs)?(\.partial|\.journal|\.lock|\.tmp|\.journal\.tmp)?$`,
	`//[^\n]*|(?s:/\*.*?\*/)`,
	`@compute\b[^{;]*?\bfn\s+([A-Za-z_]\w*)`,
	`@group\(\s*(\d+)u?\s*\)\s*@binding\(\s*(\d+)u?\s*\)\s*var\s*<\s*(\w+)\s*(?:,\s*(\w+)\s*)?>\s*([A-Za-z_]\w*)`,
	`^\s*// --- KERNEL: (\w+) ---\s*$`,
	`\bf16\b|\b(?:vec[234]|mat[234]x[234])h\b|\b\d+(?:\.\d*)?h\b`,
	`\bsubgroup[A-Z]\w*\s*\(|@builtin\(\s*subgroup_`,
	`(?m)^(\s*const\s+TILE\s*(?::\s*\w+\s*)?=\s*)([^;\n]+);`,
	`^\s*//\s*#(\w+)\s*(!?)\s*(\w*)\s*$`,
	`^(\s*)for \(var (\w+) = 0u; (\w+) < ([^;]+); (\w+)\+\+\) \{ // unroll$`,
	`(?m)^\s*const\s+(\w+)\s*(?::\s*u32\s*)?=\s*([^;\n]+);`,
	`^(\d+)u?|^[A-Za-z_]\w*`,
	`(?:^|[ :])([a-z][a-z0-9_-]*) (?:is|are) `,
	`a|ab|abc`, `(a|ab)(c|bcd)?`, `a{2}b{1,3}?c{0,}`, `x*`, `(x)?y??`, `[^a-c\]-]+$`, `^$`, `\$\{[\w.]+\}`, `(?m)$`, `\b`, `.\.`, `(a+)(b+)?|b`,
}

// words are what texts for them are made of.
var words = []string{
	"step-", "000000123", "12345678901234567890", ".llm", ".val", "-00001", ".bin", ".manifest.json", ".partial", ".journal", ".tmp", "//", "/*", "*/", "\n", " ", "\t",
	"@compute", "@group(", "0", "1u", ")", "@binding(", "var<storage, read_write>", "var <uniform>", "fn ", "main", "(", "{", "}", ";", "// --- KERNEL: ", " ---",
	"f16", "vec4h", "mat2x3h", "1.5h", "subgroupAdd", "@builtin( subgroup_size", "const ", "TILE", ": u32", " = ", "64", "// #if !f16", "for (var i = 0u; i < N; i++) { // unroll",
	"is ", "are ", "lr", ":", "a", "b", "c", "ab", "abc", "bcd", "x", "y", "]", "-", "${", "}", ".", "ş", "日本", "_",
}

func text(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(14) {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}

// pair is an expression compiled by both packages.
type pair struct {
	expr string
	got  *Regexp
	want *regexp.Regexp
}

func compile(expr string) pair { return pair{expr, MustCompile(expr), regexp.MustCompile(expr)} }

// compare holds an expression's results on a text to those of package regexp.
func (p pair) compare(t *testing.T, text string) {
	t.Helper()
	expr, got, want := p.expr, p.got, p.want
	if g, w := got.MatchString(text), want.MatchString(text); g != w {
		t.Errorf("%s matches %q: got %v, want %v", expr, text, g, w)
	}
	if !isASCII(text) && byBytes(want) {
		return
	}
	if g, w := got.FindStringSubmatch(text), want.FindStringSubmatch(text); !reflect.DeepEqual(g, w) {
		t.Errorf("%s in %q: got %q, want %q", expr, text, g, w)
	}
	if g, w := got.FindStringSubmatchIndex(text), want.FindStringSubmatchIndex(text); !reflect.DeepEqual(g, w) {
		t.Errorf("%s in %q: got places %v, want %v", expr, text, g, w)
	}
	if g, w := got.FindAllStringSubmatch(text, -1), want.FindAllStringSubmatch(text, -1); !reflect.DeepEqual(g, w) {
		t.Errorf("all of %s in %q: got %q, want %q", expr, text, g, w)
	}
	if g, w := got.ReplaceAllString(text, "<${0}>"), want.ReplaceAllString(text, "<${0}>"); g != w {
		t.Errorf("%s replaced in %q: got %q, want %q", expr, text, g, w)
	}
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(c rune) bool { return c > 127 }) < 0 }

// byBytes tells of expressions that can match nothing or one byte of a
// character, where this package steps by bytes and regexp by characters.
func byBytes(r *regexp.Regexp) bool {
	return r.MatchString("") || r.String() == `.\.` || r.String() == `\b` || strings.Contains(r.String(), "[^a-c")
}

func TestSameAsRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for _, expr := range expressions {
		p := compile(expr)
		for range 200 {
			p.compare(t, text(r))
		}
		for _, s := range []string{"", "\n", "a\nb", "step-123456789.llm", ".val-00001.bin.partial", "  const TILE : u32 = 4u;\nconst  X=1;"} {
			p.compare(t, s)
		}
	}
}

// TestKernels compares on the texts that the expressions are for.
func TestKernels(t *testing.T) {
	files, err := filepath.Glob("../../op/webgpu/kernels/*.wgsl")
	if err != nil || len(files) == 0 {
		t.Skip("no kernels beside this package: ", err)
	}
	var pairs []pair
	for _, expr := range expressions[2:13] {
		pairs = append(pairs, compile(expr))
	}
	for i, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p := pairs[i%len(pairs)]
		p.compare(t, string(b))
		for line := range strings.Lines(string(b)) {
			for _, p := range pairs {
				p.compare(t, strings.TrimSuffix(line, "\n"))
			}
		}
	}
}

func TestQuoteMeta(t *testing.T) {
	for _, s := range []string{`a.b*c+d?e(f)g|h[i]j{k}l^m$n\o`, "", "plain_1"} {
		if QuoteMeta(s) != regexp.QuoteMeta(s) {
			t.Errorf("%q: got %q, want %q", s, QuoteMeta(s), regexp.QuoteMeta(s))
		}
	}
}

func TestRefused(t *testing.T) {
	for _, expr := range []string{`(`, `)`, `a)`, `[a`, `[b-a]`, `*`, `a**`, `a{`, `a{1`, `\`, `\q`, `(?P<x>a)`, `(a*)*`, `(?:|a)+`, `ş`, `\pL`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was compiled", expr)
				}
			}()
			MustCompile(expr)
		}()
	}
}
