package bpe

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
)

// Tokenizer is a byte-level BPE vocabulary. It does not change after it is made, and all of its methods may be called
// from several goroutines at once.
type Tokenizer struct {
	rules        rules
	nfc          bool
	ignoreMerges bool

	merges   [][2]int32 // by rank: the ids joined; (−1, −1) for one that bytes never reach
	mergedID []int32    // by rank: the id of the result
	ranks    rankTable
	byteID   [256]int32
	byteRank *[256][256]uint32 // rank of the merge of two bytes

	// ascending says that the merges which make the two parts of a merge come before it. It is so in every trained
	// vocabulary; an edited file may differ.
	ascending bool
	wordID    map[string]int32 // bytes → id, for ignoreMerges only

	tokens   [][]byte // by id: the bytes it stands for; nil for an unused id
	tokenLen []uint32 // by id: len(tokens[id])
	special  map[int32]addedToken
	byText   map[string]int32 // content of an added token → id
	added    addedMatcher
	bos, eod int32

	json []byte
	hash [32]byte

	mu   sync.Mutex
	idle []*encoder // scratch memory of finished calls, at most one per processor
}

// definition is what a Tokenizer is made of: Train fills one from what it learned and Parse from a file.
type definition struct {
	rules        rules
	nfc          bool
	ignoreMerges bool
	vocab        map[string]int32 // tokens in the byte alphabet → id
	merges       [][2]string      // in order of rank, in the byte alphabet
	added        []addedToken
	bos          string // content of the token that the post-processor puts first; "" for none
}

// endOfDocumentNames are the contents that are taken for the end-of-document token, in order of preference: Tezgah's and
// GPT-2's, Llama 3's, SentencePiece's, and two further common ones.
var endOfDocumentNames = []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>"}

// newTokenizer checks a definition and builds the tables. json is kept as the tokenizer's file.
func newTokenizer(d *definition, json []byte) (*Tokenizer, error) {
	t := &Tokenizer{rules: d.rules, nfc: d.nfc, ignoreMerges: d.ignoreMerges, json: json, hash: sha256.Sum256(json)}
	if err := t.setTokens(d); err != nil {
		return nil, err
	}
	if err := t.setMerges(d); err != nil {
		return nil, err
	}
	if err := t.setAdded(d); err != nil {
		return nil, err
	}
	if d.ignoreMerges {
		t.wordID = make(map[string]int32, len(d.vocab))
		for text, id := range d.vocab {
			if token, ok := fromAlphabet(text); ok {
				t.wordID[string(token)] = id
			}
		}
	}
	t.bos = t.lookUpAdded(d.bos)
	t.eod = -1
	for _, name := range endOfDocumentNames {
		if id := t.lookUpAdded(name); id >= 0 {
			t.eod = id
			break
		}
	}
	return t, nil
}

// setTokens fills tokens, tokenLen and byteID from the vocabulary.
func (t *Tokenizer) setTokens(d *definition) error {
	size, entries := int32(0), len(d.vocab)+len(d.added)
	for text, id := range d.vocab {
		if id < 0 {
			return fmt.Errorf("bpe: model.vocab: token %q has the negative id %d", clip(text, 40), id)
		}
		size = max(size, id+1)
	}
	for _, a := range d.added {
		if a.id < 0 {
			return fmt.Errorf("bpe: added_tokens: token %q has the negative id %d", clip(a.content, 40), a.id)
		}
		size = max(size, a.id+1)
	}
	if size < 0 || int(size) > 2*entries+1<<16 {
		return fmt.Errorf("bpe: ids reach %d but there are only %d tokens; the file is damaged", uint32(size)-1, entries)
	}
	t.tokens = make([][]byte, size)
	for text, id := range d.vocab {
		if t.tokens[id] != nil {
			return fmt.Errorf("bpe: model.vocab: id %d is given to two tokens, one of them %q", id, clip(text, 40))
		}
		token, ok := fromAlphabet(text)
		if !ok {
			token = []byte(text)
		}
		t.tokens[id] = token
	}
	for b, c := range byteChar {
		id, ok := d.vocab[string(c)]
		if !ok {
			return fmt.Errorf("bpe: model.vocab lacks %q, the token of byte %d; only byte-level vocabularies with all "+
				"256 single bytes are supported", string(c), b)
		}
		t.byteID[b] = id
	}
	return nil
}

// setMerges resolves the merges to ids.
func (t *Tokenizer) setMerges(d *definition) error {
	t.merges = make([][2]int32, len(d.merges))
	t.mergedID = make([]int32, len(d.merges))
	for rank, m := range d.merges {
		left, okLeft := d.vocab[m[0]]
		right, okRight := d.vocab[m[1]]
		joined, okJoined := d.vocab[m[0]+m[1]]
		if !okLeft || !okRight || !okJoined {
			return fmt.Errorf("bpe: model.merges[%d] joins %q and %q, but model.vocab lacks one of them or their "+
				"concatenation", rank, clip(m[0], 40), clip(m[1], 40))
		}
		_, plainLeft := fromAlphabet(m[0])
		_, plainRight := fromAlphabet(m[1])
		if plainLeft && plainRight && m[0] != "" && m[1] != "" {
			t.merges[rank], t.mergedID[rank] = [2]int32{left, right}, joined
		} else {
			t.merges[rank], t.mergedID[rank] = [2]int32{-1, -1}, -1
		}
	}
	t.ranks = newRankTable(t.merges)
	t.ascending = mergesAscend(t.merges, t.mergedID, len(t.tokens))
	t.byteRank = new([256][256]uint32)
	for a := range t.byteRank {
		for b := range t.byteRank[a] {
			t.byteRank[a][b] = t.ranks.rank(t.byteID[a], t.byteID[b])
		}
	}
	t.tokenLen = make([]uint32, len(t.tokens))
	for id, token := range t.tokens {
		t.tokenLen[id] = uint32(len(token))
	}
	return nil
}

// mergesAscend reports whether the parts of every merge are single bytes or made by earlier merges only.
func mergesAscend(merges [][2]int32, merged []int32, ids int) bool {
	usedBy := make([]int, ids) // by id: 1 + the first rank that has it as a part
	for rank, m := range merges {
		for _, part := range m {
			if part >= 0 && usedBy[part] == 0 {
				usedBy[part] = 1 + rank
			}
		}
	}
	for rank, id := range merged {
		if id >= 0 && usedBy[id] > 0 && usedBy[id] <= 1+rank {
			return false
		}
	}
	return true
}

// setAdded enters the added tokens. One whose content is also in the vocabulary must have the same id there.
func (t *Tokenizer) setAdded(d *definition) error {
	t.special = make(map[int32]addedToken, len(d.added))
	t.byText = make(map[string]int32, len(d.added))
	for _, a := range d.added {
		if a.content == "" {
			continue
		}
		if id, ok := d.vocab[a.content]; ok && id != a.id {
			return fmt.Errorf("bpe: added token %q has id %d, but model.vocab gives it %d", clip(a.content, 40), a.id, id)
		} else if !ok && t.tokens[a.id] != nil {
			return fmt.Errorf("bpe: added token %q takes id %d, which another token has", clip(a.content, 40), a.id)
		}
		if _, twice := t.byText[a.content]; twice {
			return fmt.Errorf("bpe: added token %q is listed twice", clip(a.content, 40))
		}
		t.tokens[a.id] = []byte(a.content)
		t.special[a.id] = a
		t.byText[a.content] = a.id
	}
	t.added = newAddedMatcher(d.added, t.nfc)
	return nil
}

func (t *Tokenizer) lookUpAdded(content string) int32 {
	if id, ok := t.byText[content]; ok {
		return id
	}
	return -1
}

// Load reads the tokenizer.json at path.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bpe: load tokenizer: %w", err)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// JSON returns the tokenizer.json: the canonical form for a trained tokenizer, the bytes that Parse was given for an
// imported one. The caller must not change them.
func (t *Tokenizer) JSON() []byte { return t.json }

// Hash returns the SHA-256 of JSON. Two files of tokens fit together exactly when their tokenizers' hashes are equal.
func (t *Tokenizer) Hash() [32]byte { return t.hash }

// VocabSize returns the number of ids, special tokens included: every id is below it.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Pattern returns the name of the pre-token pattern.
func (t *Tokenizer) Pattern() string { return string(t.rules.name) }

// NFC reports whether text is brought to Unicode normalisation form C before it is encoded.
func (t *Tokenizer) NFC() bool { return t.nfc }

// EndOfDocument returns the id of <|endoftext|>, or of what an imported tokenizer has in its place; −1 when there is none.
func (t *Tokenizer) EndOfDocument() int32 { return t.eod }

// BOS returns the id of the token that the file's post-processor would put before every text; −1 when there is none.
// Encode does not add it.
func (t *Tokenizer) BOS() int32 { return t.bos }

// Token returns the bytes that id stands for, nil when id is out of range or unused. The caller must not change them.
func (t *Tokenizer) Token(id int32) []byte {
	if id < 0 || int(id) >= len(t.tokens) {
		return nil
	}
	return t.tokens[id]
}

// TokenText returns the token as tokenizer.json and GGUF write it: in the byte alphabet, added tokens as they are.
func (t *Tokenizer) TokenText(id int32) string {
	if a, ok := t.special[id]; ok {
		return a.content
	}
	return toAlphabet(t.Token(id))
}

// Merges returns the pairs of ids in order of rank. The caller must not change them. A pair is (−1, −1) where an
// imported file has a merge of characters outside the byte alphabet, which no text reaches.
func (t *Tokenizer) Merges() [][2]int32 { return t.merges }

// IsSpecial reports whether id is an added token marked special, such as <|endoftext|>.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.special[id].special }

// SpecialID returns the id of the added token with this content.
func (t *Tokenizer) SpecialID(content string) (int32, bool) {
	id, ok := t.byText[content]
	return id, ok
}
