package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"tezgah/checkpoint"
	"tezgah/train"
)

// TestGenerateEnds: generation stops at the end tokens that an imported file
// names, and at the end of a chat template's turn, unless --ignore-end is given.
func TestGenerateEnds(t *testing.T) {
	plain, named := chatModel(t)
	tok, _, err := train.ModelTokenizer(plain)
	if err != nil {
		t.Fatal(err)
	}
	start, _ := tok.SpecialID("<|im_start|>")
	end, _ := tok.SpecialID("<|im_end|>")
	imported := filepath.Join(t.TempDir(), "imported.llm")
	withHeader(t, plain, imported, func(h *checkpoint.Header) {
		h.Facts = json.RawMessage(`{"imported_from":"elsewhere","end_tokens":["<|im_start|>","<|unknown|>"]}`)
	})
	type result struct {
		Tokens []int32
		Reason string
	}
	// So hot a model draws every token alike, special ones too.
	generate := func(model string, more ...string) (res result) {
		t.Helper()
		args := []string{"generate", model, "--device", "cpu", "--prompt", "the loom", "--temperature", "1e6", "--top-p", "1", "--seed", "1", "--max-tokens", "4000", "--json"}
		if err := json.Unmarshal([]byte(must(t, append(args, more...)...)), &res); err != nil {
			t.Fatal(err)
		}
		return res
	}
	all := generate(plain, "--ignore-end")
	if len(all.Tokens) != 4000 || all.Reason != "length" {
		t.Fatalf("%d tokens, ended by %s", len(all.Tokens), all.Reason)
	}
	for _, c := range []struct {
		model string
		ends  []int32
	}{{plain, nil}, {named, []int32{end}}, {imported, []int32{start}}} {
		n := slices.IndexFunc(all.Tokens, func(id int32) bool { return id == tok.EndOfDocument() || slices.Contains(c.ends, id) })
		if n < 1 || c.ends != nil && !slices.Contains(c.ends, all.Tokens[n]) {
			t.Fatalf("none of %v was drawn first: the test shows nothing", c.ends)
		}
		if got := generate(c.model); got.Reason != "end" || !slices.Equal(got.Tokens, all.Tokens[:n]) {
			t.Errorf("%s: %d tokens, ended by %s; want %d up to %d", filepath.Base(c.model), len(got.Tokens), got.Reason, n, all.Tokens[n])
		}
		if got := generate(c.model, "--ignore-end"); !slices.Equal(got.Tokens, all.Tokens) {
			t.Errorf("%s: --ignore-end ended by %s after %d tokens", filepath.Base(c.model), got.Reason, len(got.Tokens))
		}
	}
}
