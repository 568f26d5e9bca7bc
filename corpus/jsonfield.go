package corpus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// This file takes the text out of one line of jsonl. It parses by itself because encoding/json replaces bytes that are
// not UTF-8, which a corpus keeps, and because it is the second most expensive step of a build after encoding.

// maxDepth bounds how deep arrays and objects may nest.
const maxDepth = 1000

// jsonText returns the text of a jsonl line. The fields are looked for in this order:
//
//	column, if one is given
//	"text"
//	"messages": [{"role": R, "content": C}, …]   → "R: C" for each, with an empty line between them. C may be a list of
//	                                               parts {"type":"text","text":S}, whose texts are put together.
//	"prompt" and "completion"                    → prompt, a newline unless one side has white space there, completion
//
// A null is an empty text. The result may overlap line, which is changed.
func jsonText(line []byte, column string) ([]byte, error) {
	p := &jsonParser{b: line}
	if p.space(); p.peek() != '{' {
		return nil, fmt.Errorf("not a JSON object: the line begins with %s", p.shown())
	}
	want := []string{"text", "messages", "prompt", "completion"}
	if column != "" {
		want = []string{column}
	}
	found := make([]span, len(want))
	names, err := p.fields(want, found)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.b) {
		return nil, p.errorf("text after the object")
	}
	switch {
	case found[0].ok():
		return p.text(want[0], found[0])
	case column != "":
		return nil, fmt.Errorf("no field %q; it has %s", column, names)
	case found[1].ok():
		return p.messages(found[1])
	case found[2].ok() && found[3].ok():
		return p.promptCompletion(found[2], found[3])
	}
	return nil, fmt.Errorf("no field text, messages, or prompt with completion; it has %s: "+
		"name the field with --column", names)
}

// span is a value in the line: b[start:end].
type span struct{ start, end int }

func (s span) ok() bool { return s.end > 0 }

type jsonParser struct {
	b     []byte
	at    int
	depth int
}

func (p *jsonParser) peek() byte {
	if p.at < len(p.b) {
		return p.b[p.at]
	}
	return 0
}

func (p *jsonParser) space() {
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *jsonParser) errorf(format string, args ...any) error {
	return fmt.Errorf("broken JSON at byte %d: %s", p.at+1, fmt.Sprintf(format, args...))
}

// shown is the next byte for an error message.
func (p *jsonParser) shown() string {
	if p.at >= len(p.b) {
		return "its end"
	}
	return strconv.QuoteToASCII(string(p.b[p.at : p.at+1]))
}

func (p *jsonParser) expect(c byte) error {
	if p.at >= len(p.b) || p.b[p.at] != c {
		return p.errorf("%s, want %q", p.shown(), c)
	}
	p.at++
	return nil
}

// fields reads the object at p.at and notes where the values of the wanted fields are; of two with one name the last
// counts. names lists some of the field names, for messages.
func (p *jsonParser) fields(want []string, found []span) (names string, err error) {
	var list []byte
	err = p.members('}', func() error {
		start := p.at
		if err := p.skipString(); err != nil {
			return err
		}
		key := p.b[start+1 : p.at-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = unescape(append([]byte(nil), key...))
		}
		if p.space(); p.peek() != ':' {
			return p.errorf("%s, want ':'", p.shown())
		}
		p.at++
		p.space()
		value := p.at
		if err := p.skipValue(); err != nil {
			return err
		}
		for i, name := range want {
			if string(key) == name {
				found[i] = span{value, p.at}
			}
		}
		if len(list) < 200 {
			list = append(append(list, ' '), key...)
		}
		return nil
	})
	if len(list) == 0 {
		return "no fields", err
	}
	return string(bytes.ToValidUTF8(list[1:], []byte("?"))), err
}

// members reads an object or array up to its closing bracket and calls member at the start of each.
func (p *jsonParser) members(closing byte, member func() error) error {
	if p.depth++; p.depth > maxDepth {
		return p.errorf("nested deeper than %d", maxDepth)
	}
	p.at++ // the opening bracket
	if p.space(); p.peek() == closing {
		p.at++
		p.depth--
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		p.space()
		switch p.peek() {
		case ',':
			p.at++
			p.space()
		case closing:
			p.at++
			p.depth--
			return nil
		default:
			return p.errorf("%s, want ',' or %q", p.shown(), closing)
		}
	}
}

// skipValue moves past one value and checks its syntax.
func (p *jsonParser) skipValue() error {
	switch c := p.peek(); {
	case c == '"':
		return p.skipString()
	case c == '{':
		_, err := p.fields(nil, nil)
		return err
	case c == '[':
		return p.members(']', p.skipValue)
	case c == '-' || '0' <= c && c <= '9':
		return p.skipNumber()
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(p.b[p.at:], []byte(word)) {
			p.at += len(word)
			return nil
		}
	}
	return p.errorf("%s, want a value", p.shown())
}

func (p *jsonParser) skipNumber() error {
	digits := func() bool {
		start := p.at
		for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
			p.at++
		}
		return p.at > start
	}
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if !digits() {
		return p.errorf("%s in a number", p.shown())
	}
	if p.peek() == '.' {
		if p.at++; !digits() {
			return p.errorf("%s in a number", p.shown())
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if !digits() {
			return p.errorf("%s in a number", p.shown())
		}
	}
	return nil
}

// skipString moves past a string and checks its escapes. Bytes that are not UTF-8 are let through.
func (p *jsonParser) skipString() error {
	if err := p.expect('"'); err != nil {
		return err
	}
	for p.at < len(p.b) {
		if p.at+8 <= len(p.b) {
			n := plainBytes(binary.LittleEndian.Uint64(p.b[p.at:]))
			if p.at += n; n == 8 {
				continue
			}
		}
		switch c := p.b[p.at]; {
		case c == '"':
			p.at++
			return nil
		case c < 0x20:
			return p.errorf("control character 0x%02x in a string", c)
		case c != '\\':
			p.at++
		default:
			if err := p.skipEscape(); err != nil {
				return err
			}
		}
	}
	return p.errorf("a string does not end")
}

// plainBytes counts the bytes, out of eight in memory order, before the first that is a quotation mark, a backslash or a
// control character. ("Determine if a word has a byte less than n", Bit Twiddling Hacks, Anderson 2005: the lowest byte
// that is marked is right, those above it need not be.)
func plainBytes(x uint64) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^ones*'"', x^ones*'\\'
	marked := ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops
	return bits.TrailingZeros64(marked) / 8
}

func (p *jsonParser) skipEscape() error {
	if p.at+1 >= len(p.b) {
		return p.errorf("a string does not end")
	}
	switch p.b[p.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.at += 2
		return nil
	case 'u':
		if _, ok := hex4(p.b[p.at+2:]); ok {
			p.at += 6
			return nil
		}
	}
	return p.errorf("bad escape in a string")
}

// text returns the string at s.
func (p *jsonParser) text(field string, s span) ([]byte, error) {
	switch v := p.b[s.start:s.end]; {
	case v[0] == '"':
		return unescape(v[1 : len(v)-1]), nil
	case v[0] == 'n':
		return nil, nil
	default:
		return nil, fmt.Errorf("field %q is %s, want a string", field, jsonKind(v[0]))
	}
}

func jsonKind(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	case '"':
		return "a string"
	}
	return "a number"
}

// messages flattens a conversation.
func (p *jsonParser) messages(s span) ([]byte, error) {
	var out []byte
	err := p.each("messages", s, func(q *jsonParser) error {
		found := make([]span, 2)
		if _, err := q.fields([]string{"role", "content"}, found); err != nil {
			return err
		}
		if !found[0].ok() || !found[1].ok() {
			return errors.New("a message lacks role or content")
		}
		role, err := q.text("role", found[0])
		if err != nil {
			return err
		}
		if len(out) > 0 {
			out = append(out, "\n\n"...)
		}
		out = append(append(out, role...), ": "...)
		if q.b[found[1].start] == '[' {
			return q.parts(found[1], &out)
		}
		content, err := q.text("content", found[1])
		out = append(out, content...)
		return err
	})
	return out, err
}

// parts appends the texts of a message whose content is a list.
func (p *jsonParser) parts(s span, out *[]byte) error {
	return p.each("content", s, func(q *jsonParser) error {
		found := make([]span, 1)
		if _, err := q.fields([]string{"text"}, found); err != nil {
			return err
		}
		if !found[0].ok() {
			return errors.New("a part of a message has no text (images and tool calls are not read)")
		}
		text, err := q.text("text", found[0])
		*out = append(*out, text...)
		return err
	})
}

// each calls f with a parser at every object of the list at s.
func (p *jsonParser) each(field string, s span, f func(q *jsonParser) error) error {
	if c := p.b[s.start]; c != '[' {
		return fmt.Errorf("field %q is %s, want a list", field, jsonKind(c))
	}
	q := &jsonParser{b: p.b[:s.end], at: s.start}
	return q.members(']', func() error {
		if c := q.peek(); c != '{' {
			return fmt.Errorf("field %q holds %s, want objects", field, jsonKind(c))
		}
		return f(q)
	})
}

func (p *jsonParser) promptCompletion(prompt, completion span) ([]byte, error) {
	a, err := p.text("prompt", prompt)
	if err != nil {
		return nil, err
	}
	b, err := p.text("completion", completion)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), a...)
	if len(a) > 0 && len(b) > 0 && !isSpaceByte(a[len(a)-1]) && !isSpaceByte(b[0]) {
		out = append(out, '\n')
	}
	return append(out, b...), nil
}

func isSpaceByte(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// unescape resolves the escapes of a checked string in place: what is written is never longer than what was read. Half
// of a surrogate pair becomes U+FFFD, as in encoding/json.
func unescape(s []byte) []byte {
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	out := s[:i]
	for i < len(s) {
		if s[i] != '\\' {
			n := bytes.IndexByte(s[i:], '\\')
			if n < 0 {
				n = len(s) - i
			}
			out = append(out, s[i:i+n]...)
			i += n
			continue
		}
		if s[i+1] != 'u' {
			out = append(out, escaped(s[i+1]))
			i += 2
			continue
		}
		r, _ := hex4(s[i+2:])
		i += 6
		if utf16.IsSurrogate(r) {
			pair := rune(utf8.RuneError)
			if i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
				low, _ := hex4(s[i+2:])
				pair = utf16.DecodeRune(r, low)
			}
			if r = pair; r != utf8.RuneError {
				i += 6
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

func escaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
