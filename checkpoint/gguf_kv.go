package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Value types of GGUF that are written here.
const (
	ggufU32    = 4
	ggufI32    = 5
	ggufFloat  = 6
	ggufBool   = 7
	ggufString = 8
	ggufArray  = 9
)

// Token types of tokenizer.ggml.token_type.
const (
	tokenNormal  = 1
	tokenControl = 3
	tokenUser    = 4 // added, but not special
	tokenUnused  = 5
)

func appendGGUFString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// key begins a pair.
func (g *gguf) key(name string, typ uint32) {
	g.nKV++
	g.kv = appendGGUFString(g.kv, name)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, typ)
}

func (g *gguf) u32(name string, v uint32) {
	g.key(name, ggufU32)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, v)
}

func (g *gguf) f32(name string, v float32) {
	g.key(name, ggufFloat)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, math.Float32bits(v))
}

func (g *gguf) flag(name string, v bool) {
	g.key(name, ggufBool)
	b := byte(0)
	if v {
		b = 1
	}
	g.kv = append(g.kv, b)
}

func (g *gguf) str(name, v string) {
	g.key(name, ggufString)
	g.kv = appendGGUFString(g.kv, v)
}

func (g *gguf) array(name string, elem uint32, n int) {
	g.key(name, ggufArray)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, elem)
	g.kv = binary.LittleEndian.AppendUint64(g.kv, uint64(n))
}

func (g *gguf) strs(name string, vs []string) {
	g.array(name, ggufString, len(vs))
	for _, v := range vs {
		g.kv = appendGGUFString(g.kv, v)
	}
}

func (g *gguf) i32s(name string, vs []int32) {
	g.array(name, ggufI32, len(vs))
	for _, v := range vs {
		g.kv = binary.LittleEndian.AppendUint32(g.kv, uint32(v))
	}
}

// addTokenizer writes the vocabulary. Ids that the model has beyond it become
// unused tokens.
func (g *gguf) addTokenizer(raw []byte, c LlamaConfig, o GGUFOptions) error {
	if len(raw) == 0 {
		return fmt.Errorf("the model holds no vocabulary, a GGUF file needs one")
	}
	v, err := parseVocabulary(raw)
	if err != nil {
		return err
	}
	if len(v.tokens) > c.VocabSize {
		return fmt.Errorf("the vocabulary has %d tokens, the model %d", len(v.tokens), c.VocabSize)
	}
	pre, err := g.pattern(v, o)
	if err != nil {
		return err
	}
	ids, err := v.roles(&o.Special, o.Chat)
	if err != nil {
		return err
	}
	tokens := append([]string(nil), v.tokens...)
	types := make([]int32, c.VocabSize)
	for id := range types {
		switch {
		case id >= len(v.tokens):
			tokens = append(tokens, fmt.Sprintf("[PAD%d]", id))
			types[id] = tokenUnused
		case v.special[id]:
			types[id] = tokenControl
		case v.added[id]:
			types[id] = tokenUser
		default:
			types[id] = tokenNormal
		}
	}
	g.str("tokenizer.ggml.model", "gpt2")
	g.str("tokenizer.ggml.pre", pre)
	g.strs("tokenizer.ggml.tokens", tokens)
	g.i32s("tokenizer.ggml.token_type", types)
	g.strs("tokenizer.ggml.merges", v.merges)
	for _, r := range []struct {
		role string
		id   int32
	}{{"bos", ids.bos}, {"eos", ids.eos}, {"padding", ids.pad}, {"eot", ids.turn}} {
		if r.id >= 0 {
			g.u32("tokenizer.ggml."+r.role+"_token_id", uint32(r.id))
		}
	}
	g.flag("tokenizer.ggml.add_bos_token", false)
	if o.Chat != nil {
		g.str("tokenizer.chat_template", o.Chat.Jinja)
	}
	return nil
}

// pattern finds the name under which llama.cpp cuts text as our tokenizer
// does, and notes where it would not.
func (g *gguf) pattern(v *vocabulary, o GGUFOptions) (string, error) {
	pre, ok := ggufPatterns[o.Pattern]
	if !ok && !o.Force {
		return "", fmt.Errorf("llama.cpp does not know the pre-token pattern %q: it would cut text differently and the model would write worse; train with the pattern gpt2 or llama3, or use --force to write it as llama3", o.Pattern)
	}
	if !ok {
		pre = ggufPatterns["llama3"]
		g.notes = append(g.notes, fmt.Sprintf("pattern %q is written as %s: llama.cpp will cut some text differently", o.Pattern, pre))
	}
	if v.normalizer != "" && !o.Force {
		return "", fmt.Errorf("the vocabulary normalizes text (%s), which llama.cpp does not do; train without it, or use --force", v.normalizer)
	}
	if v.normalizer != "" {
		g.notes = append(g.notes, fmt.Sprintf("llama.cpp does not normalize text as %s", v.normalizer))
	}
	if pre == ggufPatterns["llama3"] {
		if n, first := v.unreachable(); n > 0 {
			g.notes = append(g.notes, fmt.Sprintf("llama.cpp takes a word that is a token as it is; by merges %d tokens would be cut further, first %q", n, first))
		}
	}
	return pre, nil
}

// unreachable counts the tokens whose own text the merges would not make into
// that one token, and returns the first.
func (v *vocabulary) unreachable() (n int, first string) {
	rank := make(map[string]int, len(v.merges))
	for i, m := range v.merges {
		rank[m] = i
	}
	for id, t := range v.tokens {
		if v.added[id] || mergesTo(t, rank) {
			continue
		}
		if n++; n == 1 {
			first = t
		}
	}
	return n, first
}

// mergesTo reports whether merging the characters of word, lowest rank first
// and leftmost first, ends in one piece.
func mergesTo(word string, rank map[string]int) bool {
	pieces := strings.Split(word, "")
	for len(pieces) > 1 {
		best, at := len(rank), -1
		for i := range len(pieces) - 1 {
			if r, ok := rank[pieces[i]+" "+pieces[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return false
		}
		pieces[at] += pieces[at+1]
		pieces = append(pieces[:at+1], pieces[at+2:]...)
	}
	return true
}
