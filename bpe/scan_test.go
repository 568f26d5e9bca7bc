package bpe

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// regexOf compiles a pattern for regexp2. Case folding there is that of .NET, which does not fold ſ to s as Oniguruma
// does; possessive quantifiers, which it lacks, become the greedy ones that they are equal to here.
func regexOf(t testing.TB, regex string) *regexp2.Regexp {
	t.Helper()
	regex = strings.NewReplacer("]?+", "]?", "]++", "]+", "(?i:'s|", "(?i:'[sſ]|", "(?i:[sdmt]|", "(?i:[sſdmt]|").Replace(regex)
	re, err := regexp2.Compile(regex, regexp2.None)
	if err != nil {
		t.Fatalf("%s: %v", regex, err)
	}
	return re
}

// stand replaces every code point by one that plays the same part in all patterns and belongs to the same class in
// every version of Unicode, because the engine's tables are of another version than those in class_table.go.
func stand(text string) (stood string, starts []int) {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if !strings.ContainsRune("sStTrReEvVmMlLdDſ' \r\n", r) {
			r = [...]rune{classOther: '.', classLetter: 'a', classNumber: '1', classSpace: '\t'}[classes[r]]
		}
		b.WriteRune(r)
		starts = append(starts, i)
		i += n
	}
	return b.String(), append(starts, len(text))
}

// regexWords splits text with a regular expression and fails on a gap.
func regexWords(t testing.TB, re *regexp2.Regexp, text string) []string {
	t.Helper()
	stood, starts := stand(text)
	var out []string
	at := 0 // in code points, as the engine counts
	m, err := re.FindStringMatch(stood)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		if m.Index != at {
			t.Fatalf("the expression leaves a gap at code point %d of %q", at, text)
		}
		at = m.Index + m.Length
		out = append(out, text[starts[m.Index]:starts[at]])
	}
	if err != nil || at != len(starts)-1 {
		t.Fatalf("the expression stops at code point %d of %q: %v", at, text, err)
	}
	return out
}

// allRegexes returns every known expression with the rules that stand for it.
func allRegexes() map[string]rules {
	all := make(map[string]rules)
	for _, c := range canonical {
		all[c.regex] = c.rules
	}
	for regex, r := range variants {
		all[regex] = r
	}
	return all
}

func TestScanAgainstRegex(t *testing.T) {
	for regex, r := range allRegexes() {
		re := regexOf(t, regex)
		rng := rand.New(rand.NewPCG(3, uint64(len(regex))))
		for i := range 600 {
			text := randomText(rng, 1+i%40)
			got, want := words(r, text), regexWords(t, re, text)
			if !slices.Equal(got, want) {
				t.Fatalf("pattern %s\ntext %q\n got %q\nwant %q", regex, text, got, want)
			}
		}
	}
}

// TestScanDigits compares GPT2Digits with its definition: split at numbers, then GPT-2's expression on each part.
func TestScanDigits(t *testing.T) {
	re := regexOf(t, gpt2Regex)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range 600 {
		text := randomText(rng, 1+i%40)
		var want []string
		for part := text; part != ""; {
			at := strings.IndexFunc(part, func(r rune) bool { return classes[r] == classNumber })
			if at < 0 {
				at = len(part)
			}
			want = append(want, regexWords(t, re, part[:at])...)
			part = part[at:]
			if part != "" {
				_, n := utf8.DecodeRuneInString(part)
				want, part = append(want, part[:n]), part[n:]
			}
		}
		if got := words(gpt2DigitsRules, text); !slices.Equal(got, want) {
			t.Fatalf("text %q\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestScanCases(t *testing.T) {
	for _, c := range []struct {
		pattern Pattern
		text    string
		want    string // words joined by |
	}{
		{Turkish, "Ankara'da 2024'te İstanbul'un", "Ankara|'da| |202|4|'te| İstanbul|'un"},
		{Llama3, "Ankara'da it's IT'S 'ſo", "Ankara|'d|a| it|'s| IT|'S| '|ſo"},
		{Llama3, "a'ſo", "a|'ſ|o"},
		{GPT2, "Ankara'da IT'S 12345  x", "Ankara|'d|a| IT|'|S| 12345| | x"},
		{Qwen2, "x12\n\n  y", "x|1|2|\n\n| | y"},
		{Llama3, "x \n \n\t y.\r\n", "x| \n \n|\t| y|.\r\n"},
		{GPT2, "x\n\n", "x|\n\n"},
		{GPT2, "x\n\ny", "x|\n|\n|y"},
		{Llama3, "\xff\xfea \xff", "\xff\xfe|a| \xff"},
	} {
		if got := strings.Join(words(canonical[c.pattern].rules, c.text), "|"); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.pattern, c.text, got, c.want)
		}
	}
}

// TestPieces cuts random texts wherever safeCut allows and expects the same pre-tokens as without a cut.
func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	cuts := 0
	for range 2000 {
		var b strings.Builder
		for range 30 {
			b.WriteString([]string{"a", "b", " ", "\n", "'s", ".", "1", "\u0301", "ı"}[rng.IntN(9)])
		}
		text := b.String()
		for _, p := range Patterns() {
			r, _ := rulesByName(p)
			var got []string
			pieces([]byte(text), 1+rng.IntN(8), func(part []byte) {
				cuts++
				got = append(got, words(r, string(part))...)
			})
			if want := words(r, text); !slices.Equal(got, want) {
				t.Fatalf("%s %q: got %q, want %q", p, text, got, want)
			}
			if whole := string(nfc([]byte(text))); whole != joinNFC(text) {
				t.Fatalf("form C of the parts of %q differs", text)
			}
		}
	}
	if cuts < 10000 {
		t.Errorf("only %d parts; the test cuts too little", cuts)
	}
}

func joinNFC(text string) string {
	var b strings.Builder
	pieces([]byte(text), 3, func(part []byte) { b.Write(nfc(part)) })
	return b.String()
}

func FuzzScan(f *testing.F) {
	f.Add("it's 123 \n x")
	f.Add("\xff \u0301'ſ")
	type pair struct {
		r  rules
		re *regexp2.Regexp
	}
	var all []pair
	for regex, r := range allRegexes() {
		all = append(all, pair{r, regexOf(f, regex)})
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 {
			return
		}
		for _, p := range all {
			if got, want := words(p.r, text), regexWords(t, p.re, text); !slices.Equal(got, want) {
				t.Fatalf("%v: got %q, want %q", p.r, got, want)
			}
		}
	})
}
