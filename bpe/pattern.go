package bpe

import (
	"fmt"
	"strings"
)

// Pattern names a way to cut text into pre-tokens. No token ever crosses a pre-token's bounds.
type Pattern string

// The known patterns. GPT2 and Llama3 are also known to llama.cpp; Turkish is Llama3 without the English contractions,
// so that an apostrophe suffix such as "'da" stays whole; Qwen2 is Llama3 with single digits.
const (
	GPT2    Pattern = "gpt2"
	Llama3  Pattern = "llama3"
	Qwen2   Pattern = "qwen2"
	Turkish Pattern = "turkish"

	// GPT2Digits is GPT2 on the parts of the text between numbers, every number a pre-token of its own (StarCoder,
	// SmolLM). It is for imported tokenizers only.
	GPT2Digits Pattern = "gpt2-digits"
)

// Patterns lists the pattern names in the order in which help texts show them.
func Patterns() []string {
	return []string{string(Llama3), string(GPT2), string(Turkish), string(Qwen2)}
}

// contractions says which English contractions ('s 't 're 've 'm 'll 'd) are pre-tokens of their own.
type contractions uint8

const (
	contractNone  contractions = iota
	contractLower              // lower case only: '(?:[sdmt]|ll|ve|re)
	contractFold               // (?i:…): upper case, and U+017F ſ, which folds to s
	contractASCII              // '[sS] and so on, spelled out: upper case but not ſ
)

// rules is a pattern as the scanner runs it.
type rules struct {
	name         Pattern
	contractions contractions
	digits       int  // most numbers in one pre-token; 0 means any; 1 with gpt2 means GPT2Digits
	gpt2         bool // the GPT-2 grammar instead of the Llama 3 one
}

const (
	tailThree = `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tailOne   = `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	foldHead  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|`
	gpt2Regex = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

var gpt2DigitsRules = rules{GPT2Digits, contractLower, 1, true}

// canonical maps each pattern to its rules and to the regular expression that write.go exports for it.
var canonical = map[Pattern]struct {
	rules rules
	regex string
}{
	GPT2:    {rules{GPT2, contractLower, 0, true}, gpt2Regex},
	Llama3:  {rules{Llama3, contractFold, 3, false}, foldHead + tailThree},
	Qwen2:   {rules{Qwen2, contractFold, 1, false}, foldHead + tailOne},
	Turkish: {rules{Turkish, contractNone, 3, false}, tailThree},
}

// variants are other spellings found in published files. A possessive quantifier changes nothing where the class before
// it cannot give back a character that the rest would accept, and \s*[\r\n] equals \s*[\r\n]+ because \s* is greedy.
var variants = map[string]rules{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: canonical[GPT2].rules,

	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`: canonical[Llama3].rules,

	`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|` + tailThree: {Llama3, contractASCII, 3, false},
	`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|` + tailOne:   {Qwen2, contractASCII, 1, false},
	`'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|` + tailThree:     {Llama3, contractASCII, 3, false},
	`'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|` + tailOne:       {Qwen2, contractASCII, 1, false},
}

// rulesByName returns the rules of a pattern name.
func rulesByName(name string) (rules, error) {
	c, ok := canonical[Pattern(name)]
	if !ok {
		return rules{}, fmt.Errorf("bpe: pattern is %q, want one of %s", name, strings.Join(Patterns(), ", "))
	}
	return c.rules, nil
}

// rulesByRegex recognises a pattern by the exact text of its regular expression. An arbitrary expression would need a
// backtracking engine on the hot path, and cannot be promised to cut as the original does; it is refused.
func rulesByRegex(regex string) (rules, error) {
	for _, c := range canonical {
		if c.regex == regex {
			return c.rules, nil
		}
	}
	if r, ok := variants[regex]; ok {
		return r, nil
	}
	return rules{}, fmt.Errorf("bpe: pre_tokenizer has the unknown pattern %q; known are the expressions of GPT-2, "+
		"Llama 3 and Qwen 2 and Tezgah's own", clip(regex, 200))
}

// clip shortens s for an error message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
