package engine

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Limits of a name. File systems hold 255 bytes, extension included.
const (
	maxNameLetters = 64
	maxNameBytes   = 200
)

// reservedNames are devices on Windows, whatever extension follows.
var reservedNames = []string{"con", "prn", "aux", "nul"}

// checkName refuses what is no name of docs/api.md. A name that passes is one
// component of a path on every system.
func checkName(field, name string) error {
	const want = "want 1 to 64 letters, digits, -, _ and ., not beginning or ending with a dot"
	switch {
	case name == "":
		return badField(field, "%s is empty, %s", field, want)
	case !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxNameLetters || len(name) > maxNameBytes:
		return badField(field, "%s %.80q is too long or no UTF-8, %s", field, name, want)
	case name[0] == '.' || name[len(name)-1] == '.':
		return badField(field, "%s is %q, %s", field, name, want)
	}
	for _, c := range name {
		if !nameRune(c) {
			return badField(field, "%s %q has the character %q, %s", field, name, c, want)
		}
	}
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	isPort := len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") && stem[3] >= '0' && stem[3] <= '9'
	if isPort || slices.Contains(reservedNames, stem) {
		return badField(field, "%s %q is a device on Windows, choose another", field, name)
	}
	return nil
}

func nameRune(c rune) bool {
	return c == '-' || c == '_' || c == '.' || unicode.IsLetter(c) || unicode.IsMark(c) || unicode.IsDigit(c)
}

// cleanFileName makes the name of a person's file one that may stand after a
// number: the last component, other characters as _, at most 80 bytes of its
// end, where the extension is.
func cleanFileName(label string) string {
	if i := strings.LastIndexAny(label, `/\`); i >= 0 {
		label = label[i+1:]
	}
	clean := strings.Map(func(c rune) rune {
		if c == utf8.RuneError || !nameRune(c) {
			return '_'
		}
		return c
	}, label)
	for len(clean) > 80 {
		_, n := utf8.DecodeRuneInString(clean)
		clean = clean[n:]
	}
	clean = strings.TrimRight(clean, ".")
	if clean == "" {
		clean = "text.txt"
	}
	return clean
}

// cleanLabel is what a person sees of a file's name: one line of at most 200
// letters.
func cleanLabel(label string) string {
	label = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(label, "\uFFFD"))
	if r := []rune(label); len(r) > 200 {
		label = string(r[:200])
	}
	return label
}

// claims keep two requests from using and changing the same thing at once: a
// key such as "data/wiki" is either shared by users or held by one changer.
// Nobody waits; who comes too late is told who was first. Keys that differ in
// case alone are one, as they are on the disks of some systems.
type claims struct {
	mu     sync.Mutex
	holder map[string]string   // exclusive
	users  map[string][]string // shared
}

// exclusive takes key for holder, which says what goes on, such as "the run x
// is training". release may be called more than once.
func (c *claims) exclusive(key, holder string) (release func(), err error) {
	key = strings.ToLower(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.holder[key]; ok {
		return nil, fail("busy", "%s is in use: %s", key, h)
	}
	if u := c.users[key]; len(u) > 0 {
		return nil, fail("busy", "%s is in use: %s", key, u[0])
	}
	if c.holder == nil {
		c.holder = map[string]string{}
	}
	c.holder[key] = holder
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.holder, key)
	}), nil
}

// share takes keys for one more user.
func (c *claims) share(user string, keys ...string) (release func(), err error) {
	keys = slices.Clone(keys)
	for i, k := range keys {
		keys[i] = strings.ToLower(k)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		if h, ok := c.holder[k]; ok {
			return nil, fail("busy", "%s is in use: %s", k, h)
		}
	}
	if c.users == nil {
		c.users = map[string][]string{}
	}
	for _, k := range keys {
		c.users[k] = append(c.users[k], user)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range keys {
			u := c.users[k]
			if i := slices.Index(u, user); i >= 0 {
				c.users[k] = slices.Delete(u, i, i+1)
			}
		}
	}), nil
}
