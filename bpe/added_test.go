package bpe

import (
	"slices"
	"strings"
	"testing"
)

// TestAddedSplit follows Hugging Face's rules for added tokens in cases worked out by hand; the golden test "specials"
// compares them on random text.
func TestAddedSplit(t *testing.T) {
	tokens := []addedToken{
		{id: 1, content: "<a>"}, {id: 2, content: "<a><b>"}, {id: 3, content: "<l>", lstrip: true}, {id: 4, content: "<r>", rstrip: true},
		{id: 5, content: "W", singleWord: true}, {id: 6, content: "é", normalized: true},
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"x", "x"},
		{"x<a>y", "x|1|y"},
		{"<a><b><a>", "2|1"},
		{"<<a>", "<|1"},
		{"x \n<l> y", "x|3| y"},
		{"x <r> \t y", "x |4|y"},
		{"<r> <l>", "4|3"},
		{"W aW W. Wb éW", "5| aW |5|. Wb |6|W"},
		{"W", "5"},
		{"e\u0301<a>", "6|1"},
	} {
		m := newAddedMatcher(tokens, true)
		var parts []string
		m.split([]byte(c.text), normalizeNFC, func(part []byte, id int32) {
			if id >= 0 {
				parts = append(parts, string(rune('0'+id)))
			} else {
				parts = append(parts, string(part))
			}
		})
		if got := strings.Join(parts, "|"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEncodeWithSpecials(t *testing.T) {
	tok, err := Load("testdata/tokenizer_own_llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("bir<|endoftext|>iki")
	want := append(append(tok.Encode(nil, []byte("bir")), tok.EndOfDocument()), tok.Encode(nil, []byte("iki"))...)
	equalIDs(t, "with specials", tok.EncodeWithSpecials(nil, text), want)
	if slices.Contains(tok.Encode(nil, text), tok.EndOfDocument()) {
		t.Error("Encode made a special token of ordinary text")
	}
}
