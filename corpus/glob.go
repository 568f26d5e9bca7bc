package corpus

import (
	"fmt"
	"path"
	"strings"
)

// filter decides by name which files of a folder are read.
type filter struct{ include, exclude []glob }

// glob is one pattern. A pattern without a slash has one part and is matched with the base name.
type glob struct {
	parts    []string // between slashes; "**" matches any number of folders, none too
	baseOnly bool
}

func newFilter(include, exclude []string) (*filter, error) {
	f := &filter{}
	for _, set := range []struct {
		patterns []string
		to       *[]glob
	}{{include, &f.include}, {exclude, &f.exclude}} {
		for _, p := range set.patterns {
			g, err := parseGlob(p)
			if err != nil {
				return nil, err
			}
			*set.to = append(*set.to, g)
		}
	}
	return f, nil
}

func parseGlob(pattern string) (glob, error) {
	p := strings.Trim(strings.ReplaceAll(pattern, `\`, "/"), "/")
	if p == "" {
		return glob{}, fmt.Errorf("glob %q is empty: write a pattern such as *.txt or docs/**/*.md", pattern)
	}
	g := glob{parts: strings.Split(p, "/"), baseOnly: !strings.Contains(pattern, "/")}
	for _, part := range g.parts {
		if _, err := path.Match(part, ""); err != nil {
			return glob{}, fmt.Errorf("glob %q: %w (a [ needs its ])", pattern, err)
		}
	}
	return g, nil
}

// match tells whether the file at rel, slashes between its parts, is to be read.
func (f *filter) match(rel string) bool {
	if f.excludes(rel) {
		return false
	}
	for _, g := range f.include {
		if g.match(rel) {
			return true
		}
	}
	return len(f.include) == 0
}

func (f *filter) excludes(rel string) bool {
	for _, g := range f.exclude {
		if g.match(rel) {
			return true
		}
	}
	return false
}

func (g glob) match(rel string) bool {
	if g.baseOnly {
		ok, _ := path.Match(g.parts[0], path.Base(rel))
		return ok
	}
	return matchParts(g.parts, strings.Split(rel, "/"))
}

func matchParts(pattern, names []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for skip := 0; skip <= len(names); skip++ {
				if matchParts(pattern[1:], names[skip:]) {
					return true
				}
			}
			return false
		}
		if len(names) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], names[0]); !ok {
			return false
		}
		pattern, names = pattern[1:], names[1:]
	}
	return len(names) == 0
}
