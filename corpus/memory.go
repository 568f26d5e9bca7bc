package corpus

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// BuildMemory returns the content of a token file with the given documents, for where there are no files: open it with
// OpenBytes. Empty documents are left out.
func BuildMemory(t Tokenizer, docs [][]byte) ([]byte, error) {
	if t == nil || t.EndOfDocument() < 0 || int(t.EndOfDocument()) >= t.VocabSize() {
		return nil, errors.New("data build: the tokenizer has no end-of-document token: train it with the special token <|endoftext|>")
	}
	w := shardWriter{width: tokenWidth(t.VocabSize())}
	e := encoder{tokenizer: t, width: w.width}
	var j job
	var index []byte
	for i, text := range docs {
		if len(text) == 0 {
			continue
		}
		index = binary.LittleEndian.AppendUint64(index, uint64(len(j.tokens)/w.width))
		w.TextBytes += int64(len(text))
		if err := e.encode(&j, text, true); err != nil {
			return nil, fmt.Errorf("data build: document %d: %w", i, err)
		}
	}
	if len(index) == 0 {
		return nil, errors.New("data build: no text: give at least one document that is not empty")
	}
	w.sum(j.tokens)
	w.Tokens, w.Docs, w.IndexCRC = int64(len(j.tokens)/w.width), int64(len(index)/8), crc(index)
	h := w.header(t)
	b := make([]byte, h.fileBytes())
	copy(b, h.marshal())
	copy(b[h.data.off:], j.tokens)
	copy(b[h.index.off:], index)
	copy(b[h.tokenizer.off:], t.JSON())
	copy(b[h.blocks.off:], w.blocks)
	return b, nil
}
