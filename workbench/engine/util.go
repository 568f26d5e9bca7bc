package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// now is the time as the interface writes it: UTC, to the millisecond.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// number is a float64 that JSON can hold: NaN and infinities are null.
type number float64

// MarshalJSON writes the number.
func (x number) MarshalJSON() ([]byte, error) {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// boolQuery reads a query parameter that is 0 or 1; missing is false.
func boolQuery(r Request, name string) (bool, error) {
	switch r.Query[name] {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, badField(name, "%s is %q, want 0 or 1", name, r.Query[name])
}

// intQuery reads a query parameter that is a number of at least 0; missing is
// def.
func intQuery(r Request, name string, def int) (int, error) {
	q, ok := r.Query[name]
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(q)
	if err != nil || n < 0 {
		return 0, badField(name, "%s is %q, want 0 or more", name, q)
	}
	return n, nil
}

// fileHeader are the headers of a download.
func fileHeader(contentType, name string, size int64) map[string]string {
	h := map[string]string{
		"Content-Type": contentType, "Cache-Control": "no-store",
		"Content-Disposition": "attachment; filename=\"" + asciiName(name) + "\"; filename*=UTF-8''" + percent(name),
	}
	if size >= 0 {
		h["Content-Length"] = strconv.FormatInt(size, 10)
	}
	return h
}

// asciiName is a file name for programs that do not read filename*.
func asciiName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, name)
}

// percent writes every byte but ASCII letters and digits as RFC 5987 has it.
func percent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// breather calls Options.Yield, at most so often that it costs nothing.
type breather struct {
	mu   sync.Mutex
	last time.Time
}

// breathe is how long work goes on between two calls of Options.Yield.
const breathe = 30 * time.Millisecond

// yield lets a page with one thread do other things during long work.
func (s *Service) yield(ctx context.Context) {
	if s.opt.Yield == nil {
		return
	}
	s.breather.mu.Lock()
	due := time.Since(s.breather.last) >= breathe
	s.breather.mu.Unlock()
	if due {
		s.opt.Yield(ctx)
		s.breather.mu.Lock()
		s.breather.last = time.Now()
		s.breather.mu.Unlock()
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// trimExt is the last component of a path without its ending.
func trimExt(path, ext string) string { return strings.TrimSuffix(filepath.Base(path), ext) }

// copyN copies at most n bytes (negative: all) and looks at the context in
// between. More than n bytes are an error.
func copyN(ctx context.Context, w io.Writer, r io.Reader, n int64, yield func(context.Context)) (copied int64, err error) {
	buf := make([]byte, 1<<18)
	for {
		if err := ctx.Err(); err != nil {
			return copied, err
		}
		yield(ctx)
		k, err := r.Read(buf)
		if copied += int64(k); n >= 0 && copied > n {
			return copied, fmt.Errorf("the file is longer than the %d bytes that it should have", n)
		}
		if _, err := w.Write(buf[:k]); err != nil {
			return copied, err
		}
		if err == io.EOF {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
	}
}
