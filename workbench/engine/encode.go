package engine

import (
	"bytes"
	"fmt"

	"tezgah/bpe"
)

// maxEncode is the longest text that is shown as tokens.
const maxEncode = 256 << 10

// shownToken is one coloured piece of the page's view.
type shownToken struct {
	ID      int32  `json:"id"`
	Text    string `json:"text"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
	Special bool   `json:"special"`
}

// encode is POST /api/tokenizers/NAME/encode.
func (s *Service) encode(c *call) error {
	var req struct {
		Text string `json:"text"`
	}
	if err := readJSON(c.r, &req); err != nil {
		return err
	}
	if len(req.Text) > maxEncode {
		return &apiError{"too_large", fmt.Sprintf("the text has %d bytes, at most %d can be shown as tokens", len(req.Text), maxEncode), "text"}
	}
	t, err := s.loadTokenizer(c.args[0])
	if err != nil {
		return err
	}
	return c.json(encodeText(t, req.Text))
}

func encodeText(t *bpe.Tokenizer, text string) map[string]any {
	ids := t.EncodeWithSpecials(nil, []byte(text))
	tokens := make([]shownToken, len(ids))
	used := map[int32]bool{}
	var whole []byte
	for i, id := range ids {
		piece := t.Token(id)
		tokens[i] = shownToken{id, string(piece), len(whole), len(whole) + len(piece), t.IsSpecial(id)}
		whole = append(whole, piece...)
		used[id] = true
	}
	words := len(bytes.Fields(whole))
	out := map[string]any{"tokens": tokens, "bytes": len(whole), "words": words, "vocab_used": len(used), "bytes_per_token": 0.0, "tokens_per_word": 0.0}
	if len(ids) > 0 {
		out["bytes_per_token"] = float64(len(whole)) / float64(len(ids))
	}
	if words > 0 {
		out["tokens_per_word"] = float64(len(ids)) / float64(words)
	}
	if string(whole) != text { // normalisation form C changed it; start and end are about this
		out["text"] = string(whole)
	}
	return out
}
