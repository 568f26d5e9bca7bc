package engine

import (
	"fmt"
	"io"
	"strings"
)

// Request is one request of docs/api.md, however it came in.
type Request struct {
	Method    string
	Path      string            // decoded, such as /api/texts/sample
	Query     map[string]string // the last value of each key
	Body      io.Reader         // nil for none
	BodyBytes int64             // −1: not known
}

// ResponseWriter takes an answer. Start comes first and once, then any number
// of Write and Flush. An error of Write or Flush means that nobody listens any
// more. The methods are called from one goroutine at a time.
type ResponseWriter interface {
	Start(status int, header map[string]string)
	io.Writer
	Flush() error
}

// NewRequest makes a Request from a request target, which is a path with an
// optional query, both percent-encoded.
func NewRequest(method, target string, body io.Reader, bodyBytes int64) (Request, error) {
	path, query, _ := strings.Cut(target, "?")
	r := Request{Method: method, Query: map[string]string{}, Body: body, BodyBytes: bodyBytes}
	var err error
	if r.Path, err = unescape(path, false); err != nil {
		return r, err
	}
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		if k, err = unescape(k, true); err != nil {
			return r, err
		}
		if r.Query[k], err = unescape(v, true); err != nil {
			return r, err
		}
	}
	return r, nil
}

// unescape undoes percent-encoding, and "+" for a space in a query. (net/url
// would do it too, and add to the page's download.)
func unescape(s string, query bool) (string, error) {
	if !strings.ContainsAny(s, "%+") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '%':
			if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
				return "", fmt.Errorf("bad percent-encoding in %q", s)
			}
			b.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
			i += 2
		case s[i] == '+' && query:
			b.WriteByte(' ')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
