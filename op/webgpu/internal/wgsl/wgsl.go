// Package wgsl assembles compute kernels from WGSL files. It knows text alone:
// no GPU, no tensors.
//
// # Files
//
// A file is its own preamble, then kernels, each after a marker line:
//
//	// --- KERNEL: rmsnorm_forward ---
//
// 00_shared.wgsl has no kernel: it is the preamble of all. The source of a
// kernel is the enable lines it needs, the shared preamble, its file's
// preamble, and its own text. The files have no enable lines: a kernel that
// says f16 or calls a subgroup function gets them, if the device has these.
//
// # Variants
//
// A constant is a line of its own and valid WGSL:
//
//	const TILE_M: u32 = 64u;
//
// A launcher may ask for another value with Define{"TILE_M", "128u"}; the name
// must be declared somewhere in the kernel's source. SUBGROUP_SIZE, where it
// is declared, takes the device's value by itself.
//
// Text that WGSL's own if cannot leave out (bindings, types, calls of subgroup
// functions) stands between comment lines; blocks may nest:
//
//	// #if SUBGROUPS        or  // #if !SUBGROUPS
//	…
//	// #else
//	…
//	// #endif
//
// A condition is F16, SUBGROUPS, or the name of a declared
// `const NAME: bool = false;`. Lines that are left out become empty, so that
// line numbers do not depend on the variant.
package wgsl

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// SharedFile is the preamble of every kernel.
const SharedFile = "00_shared.wgsl"

// ErrUnsupported is wrapped by the error for a kernel that uses a feature the
// device lacks.
var ErrUnsupported = errors.New("the device lacks a feature of the kernel")

// Features are what kernels may use.
type Features struct {
	F16, Subgroups bool
	SubgroupSize   int // value for const SUBGROUP_SIZE; 0 leaves the default
}

// Define gives a declared constant another value, for instance {"TILE", "8u"}.
type Define struct{ Name, Value string }

// Folder holds the kernels of a folder of WGSL files.
type Folder struct {
	shared  string
	kernels map[string]kernel
}

// kernel is a kernel's text and where it comes from.
type kernel struct {
	file, preamble, text string
}

var marker = regexp.MustCompile(`^\s*// --- KERNEL: (\w+) ---\s*$`)

// Load reads every *.wgsl file in the root of a folder. Errors name the file:
// no shared preamble, a marker in it, a file without a kernel, two kernels of
// one name, an enable line, a marker-like line that is not one.
func Load(fsys fs.FS) (*Folder, error) {
	names, err := fs.Glob(fsys, "*.wgsl")
	if err != nil {
		return nil, fmt.Errorf("wgsl: %w", err)
	}
	sort.Strings(names)
	l := &Folder{kernels: map[string]kernel{}}
	found := false
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("wgsl: %w", err)
		}
		if path.Base(name) == SharedFile {
			found = true
			l.shared, err = readShared(name, string(data))
		} else {
			err = l.add(name, string(data))
		}
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, fmt.Errorf("wgsl: there is no %s among %d files", SharedFile, len(names))
	}
	return l, nil
}

// readShared checks the shared preamble.
func readShared(name, text string) (string, error) {
	parts, err := split(name, text)
	if err != nil {
		return "", err
	}
	if len(parts) > 1 {
		return "", fmt.Errorf("wgsl: %s:%d: the shared preamble has the marker of kernel %s; kernels go into other files", name, parts[1].line, parts[1].kernel)
	}
	return text, nil
}

// add takes the kernels of a file.
func (l *Folder) add(name, text string) error {
	parts, err := split(name, text)
	if err != nil {
		return err
	}
	if len(parts) == 1 {
		return fmt.Errorf("wgsl: %s has no marker line `// --- KERNEL: name ---`", name)
	}
	for _, p := range parts[1:] {
		if other, ok := l.kernels[p.kernel]; ok {
			return fmt.Errorf("wgsl: %s:%d: kernel %s is already in %s", name, p.line, p.kernel, other.file)
		}
		l.kernels[p.kernel] = kernel{name, parts[0].text, p.text}
	}
	return nil
}

// part is a stretch of a file: the preamble (kernel "") or one kernel.
type part struct {
	kernel, text string
	line         int // of the marker
}

// split cuts a file at its marker lines.
func split(name, text string) ([]part, error) {
	parts := []part{{line: 1}}
	for n, line := range strings.Split(text, "\n") {
		if m := marker.FindStringSubmatch(line); m != nil {
			parts = append(parts, part{kernel: m[1], line: n + 1})
			continue
		}
		if strings.Contains(line, "KERNEL:") && strings.HasPrefix(strings.TrimSpace(line), "//") {
			return nil, fmt.Errorf("wgsl: %s:%d: %q is not a marker line `// --- KERNEL: name ---`", name, n+1, strings.TrimSpace(line))
		}
		if strings.HasPrefix(strings.TrimSpace(line), "enable ") {
			return nil, fmt.Errorf("wgsl: %s:%d: enable lines are added where a kernel needs them; remove this one", name, n+1)
		}
		parts[len(parts)-1].text += line + "\n"
	}
	return parts, nil
}

// Kernels lists the kernels in order of name.
func (l *Folder) Kernels() []string {
	names := make([]string, 0, len(l.kernels))
	for name := range l.kernels {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// File is the file that a kernel is in, "" if there is no such kernel.
func (l *Folder) File(name string) string { return l.kernels[name].file }

// Source assembles a kernel for a device. Errors: an unknown kernel, a name to
// define that is not declared, a faulty #if, and ErrUnsupported.
func (l *Folder) Source(name string, f Features, defines ...Define) (string, error) {
	k, ok := l.kernels[name]
	if !ok {
		return "", fmt.Errorf("wgsl: there is no kernel %q", name)
	}
	where := fmt.Sprintf("wgsl: kernel %s (%s)", name, k.file)
	text := l.shared + "\n" + k.preamble + k.text
	if f.SubgroupSize > 0 && declared(text, "SUBGROUP_SIZE") {
		defines = append([]Define{{"SUBGROUP_SIZE", strconv.Itoa(f.SubgroupSize) + "u"}}, defines...)
	}
	for _, d := range defines {
		changed, err := define(text, d)
		if err != nil {
			return "", fmt.Errorf("%s: %w", where, err)
		}
		text = changed
	}
	text, err := conditions(text, f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	enables, err := enables(text, f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", where, err)
	}
	return enables + text, nil
}

var (
	comment      = regexp.MustCompile(`//[^\n]*`)
	usesF16      = regexp.MustCompile(`\bf16\b|\b(?:vec[234]|mat[234]x[234])h\b|\b\d+(?:\.\d*)?h\b`)
	usesSubgroup = regexp.MustCompile(`\bsubgroup[A-Z]\w*\s*\(|@builtin\(\s*subgroup_`)
)

// enables gives the enable lines that a text needs.
func enables(text string, f Features) (string, error) {
	code, lines := comment.ReplaceAllString(text, ""), ""
	for _, need := range []struct {
		name string
		uses bool
		have bool
	}{
		{"f16", usesF16.MatchString(code), f.F16},
		{"subgroups", usesSubgroup.MatchString(code), f.Subgroups},
	} {
		if need.uses && !need.have {
			return "", fmt.Errorf("it uses %s: %w", need.name, ErrUnsupported)
		}
		if need.uses {
			lines += "enable " + need.name + ";\n"
		}
	}
	return lines, nil
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// declaration matches the line that declares a constant; the groups are what
// is before the value, and the value.
func declaration(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(\s*const\s+` + regexp.QuoteMeta(name) + `\s*(?::\s*\w+\s*)?=\s*)([^;\n]+);`)
}

func declared(text, name string) bool { return declaration(name).MatchString(text) }

// define changes the value of a declared constant.
func define(text string, d Define) (string, error) {
	if !identifier.MatchString(d.Name) {
		return "", fmt.Errorf("cannot define %q: it is not a name", d.Name)
	}
	at := declaration(d.Name).FindStringSubmatchIndex(text)
	if at == nil {
		return "", fmt.Errorf("cannot define %s: there is no line `const %s = …;`", d.Name, d.Name)
	}
	if strings.ContainsAny(d.Value, ";\n") || strings.TrimSpace(d.Value) == "" {
		return "", fmt.Errorf("cannot define %s as %q", d.Name, d.Value)
	}
	return text[:at[4]] + d.Value + text[at[5]:], nil
}

var condition = regexp.MustCompile(`^\s*//\s*#(\w+)\s*(!?)\s*(\w*)\s*$`)

// conditions empties the lines that #if, #else and #endif leave out.
func conditions(text string, f Features) (string, error) {
	type block struct{ outer, holds, inElse bool }
	var open []block
	keep := true
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		m := condition.FindStringSubmatch(line)
		if m == nil {
			if !keep {
				lines[n] = ""
			}
			continue
		}
		lines[n] = ""
		switch m[1] {
		case "if":
			holds, err := holds(text, m[3], f)
			if err != nil {
				return "", fmt.Errorf("line %d: %w", n+1, err)
			}
			open = append(open, block{outer: keep, holds: holds != (m[2] == "!")})
			keep = keep && open[len(open)-1].holds
		case "else", "endif":
			if len(open) == 0 || m[3] != "" {
				return "", fmt.Errorf("line %d: %s without an #if, or with a name", n+1, strings.TrimSpace(line))
			}
			b := &open[len(open)-1]
			if m[1] == "endif" {
				keep = b.outer
				open = open[:len(open)-1]
				break
			}
			if b.inElse {
				return "", fmt.Errorf("line %d: a second #else", n+1)
			}
			b.inElse = true
			keep = b.outer && !b.holds
		default:
			return "", fmt.Errorf("line %d: unknown #%s; want #if, #else or #endif", n+1, m[1])
		}
	}
	if len(open) > 0 {
		return "", fmt.Errorf("%d #if without #endif", len(open))
	}
	return strings.Join(lines, "\n"), nil
}

// holds evaluates the name of an #if.
func holds(text, name string, f Features) (bool, error) {
	switch name {
	case "F16":
		return f.F16, nil
	case "SUBGROUPS":
		return f.Subgroups, nil
	}
	if m := declaration(name).FindStringSubmatch(text); m != nil {
		switch strings.TrimSpace(m[2]) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, fmt.Errorf("#if %s: want F16, SUBGROUPS, or a constant declared as true or false", name)
}
