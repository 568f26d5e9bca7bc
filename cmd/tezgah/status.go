package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"tezgah/model"
)

// statusLine shows progress on standard error: one line that is written over
// on a terminal, and a plain line now and then anywhere else.
type statusLine struct {
	w     io.Writer
	live  bool
	width int
	every time.Duration // between plain lines
	last  time.Time
	shown bool // a live line is on the screen
}

// newStatusLine writes to standard error. quiet silences it.
func newStatusLine(quiet bool) *statusLine {
	s := &statusLine{w: os.Stderr, every: 10 * time.Second}
	if quiet {
		s.w = io.Discard
		return s
	}
	fd := int(os.Stderr.Fd())
	if s.live = term.IsTerminal(fd); s.live {
		s.every = 100 * time.Millisecond
		if w, _, err := term.GetSize(fd); err == nil {
			s.width = w
		}
	}
	return s
}

// set shows a line, unless the last one is too recent.
func (s *statusLine) set(format string, args ...any) {
	if now := time.Now(); now.Sub(s.last) >= s.every {
		s.last = now
		s.show(fmt.Sprintf(format, args...))
	}
}

func (s *statusLine) show(line string) {
	if !s.live {
		fmt.Fprintln(s.w, line)
		return
	}
	if r := []rune(line); s.width > 1 && len(r) >= s.width {
		line = string(r[:s.width-1])
	}
	fmt.Fprint(s.w, "\r\x1b[K"+line)
	s.shown = true
}

// print writes a lasting line above the live one.
func (s *statusLine) print(format string, args ...any) {
	s.clear()
	fmt.Fprintln(s.w, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// clear removes the live line.
func (s *statusLine) clear() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}

// shortTime renders a duration to the second: "2m05s".
func shortTime(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// count renders a number with thousands separators: "1,234,567".
func count[T int | int64 | float64](n T) string {
	s := fmt.Sprintf("%.0f", float64(n))
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		s = "-" + s
	}
	return s
}

// formatBytes renders a size in binary units.
func formatBytes(n int64) string { return model.FormatBytes(n) }
