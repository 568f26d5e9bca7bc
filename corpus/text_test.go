package corpus

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readPieces returns the documents of a text, with a NUL where a document was cut into pieces.
func readPieces(t *testing.T, r io.Reader, split bool, piece int) []string {
	t.Helper()
	tr := newTextReader(r, split, piece)
	defer tr.close()
	var docs []string
	for {
		text, _, first, last, err := tr.next()
		if err == io.EOF {
			return docs
		}
		if err != nil {
			t.Fatal(err)
		}
		if first {
			docs = append(docs, "")
		}
		docs[len(docs)-1] += string(text)
		if !last {
			docs[len(docs)-1] += "\x00"
		}
	}
}

func TestSplit(t *testing.T) {
	const sep = endOfText
	for text, want := range map[string][]string{
		"":                                   {""},
		"one":                                {"one"},
		"one" + sep + "two":                  {"one", "two"},
		"one\n" + sep + "\ntwo\n":            {"one", "two\n"},
		"one\r\n" + sep + "\r\ntwo":          {"one", "two"},
		"one\n\n" + sep + "\n\ntwo":          {"one\n", "\ntwo"},
		"one" + sep:                          {"one"},
		"one" + sep + "\n":                   {"one"},
		sep + sep + "x":                      {"", "", "x"},
		"<|endoftext|" + sep + "<|endoftext": {"<|endoftext|", "<|endoftext"},
	} {
		for _, piece := range []int{1 << 10, 64} {
			got := readPieces(t, iotest.OneByteReader(strings.NewReader(text)), true, piece)
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("%q in pieces of %d: got %q, want %q", text, piece, got, want)
			}
		}
	}
	if got := readPieces(t, strings.NewReader("a"+sep+"b"), false, 64); len(got) != 1 || got[0] != "a"+sep+"b" {
		t.Errorf("without Split: got %q", got)
	}
}

// TestPiecesDependOnTextAlone: the same cuts however the bytes arrive, nothing lost, and every cut in a place where no
// pre-token pattern joins the two sides.
func TestPiecesDependOnTextAlone(t *testing.T) {
	for _, split := range []bool{false, true} {
		text := prose(1, 20_000) + endOfText + prose(2, 3_000) + "\n" + endOfText + "\n" + prose(3, 9_000)
		want := readPieces(t, strings.NewReader(text), split, 512)
		for _, r := range []io.Reader{iotest.OneByteReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text)),
			iotest.DataErrReader(strings.NewReader(text))} {
			got := readPieces(t, r, split, 512)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("split %v: pieces depend on how the text arrives", split)
			}
		}
		cuts := 0
		for _, doc := range want {
			parts := strings.Split(doc, "\x00")
			for i := range len(parts) - 1 {
				a, b := parts[i], parts[i+1]
				cuts++
				if len(a) > 512 {
					t.Fatalf("piece of %d bytes, want at most 512", len(a))
				}
				space := b[0] == ' ' && isLetter(a[len(a)-1]) && isLetter(b[1])
				line := a[len(a)-1] == '\n' && isPrintable(a[len(a)-2]) && isPrintable(b[0])
				if !space && !line {
					t.Fatalf("cut between %q and %q", a[len(a)-3:], b[:3])
				}
			}
		}
		if cuts < 50 {
			t.Fatalf("only %d cuts: the test tests nothing", cuts)
		}
	}
}

func TestTextWithoutPlacesToCut(t *testing.T) {
	text := strings.Repeat("ş", 100_000)
	got := readPieces(t, strings.NewReader(text), false, 1024) // no cut, so no NUL
	if len(got) != 1 || got[0] != text {
		t.Fatalf("got %d documents", len(got))
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.go", "a/b/c.go", true}, {"*.go", "c.gox", false}, {"a/*.go", "a/c.go", true}, {"a/*.go", "a/b/c.go", false},
		{"a/**/*.go", "a/c.go", true}, {"a/**/*.go", "a/b/d/c.go", true}, {"**/x.md", "x.md", true}, {"/x.md", "a/x.md", false},
		{"/x.md", "x.md", true}, {"a/**", "a/b/c", true}, {"[ab].txt", "q/b.txt", true}, {"?.txt", "ab.txt", false},
	} {
		f, err := newFilter([]string{c.pattern}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.match(c.path); got != c.want {
			t.Errorf("%q on %q: %v, want %v", c.pattern, c.path, got, c.want)
		}
	}
	for _, bad := range []string{"", "[", "a/[x"} {
		if _, err := newFilter(nil, []string{bad}); err == nil {
			t.Errorf("pattern %q was accepted", bad)
		}
	}
}
