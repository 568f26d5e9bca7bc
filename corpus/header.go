package corpus

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// The layout is drawn byte by byte in docs/formats.md. All integers are little-endian.
const (
	// magic begins every token file. The line break catches copies that were "corrected" as text.
	magic = "TZGTOK\r\n"
	// version of the layout. Readers refuse any other.
	version = 1
	// headerBytes is the length of the header of version 1.
	headerBytes = 256
	// blockBytes is the size of the blocks of token data that have a checksum each. A block is checked when it is first
	// touched, so that a file of any size opens at once and a flipped bit is still found.
	blockBytes = 64 << 10
	// flagContinues says that the first token of a shard continues the last document of the shard before.
	flagContinues = 1
	// noEndOfDocument stands in the header for a vocabulary without an end-of-document token.
	noEndOfDocument = math.MaxUint32
	// maxTokenizerBytes bounds the tokenizer section.
	maxTokenizerBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// section is a range of bytes of the file.
type section struct{ off, size int64 }

func (s section) end() int64 { return s.off + s.size }

// header is the fixed part of a token file.
type header struct {
	width         int // bytes of a token, 2 or 4
	vocabSize     int
	tokens        int64
	docs          int64
	textBytes     int64 // of the documents that were encoded, without end-of-document tokens
	endOfDocument int32 // negative for none
	block         int64 // bytes of data under one checksum
	flags         uint32

	data, index, tokenizer, blocks   section
	tokenizerHash                    [32]byte
	indexCRC, tokenizerCRC, blockCRC uint32
}

// tokenWidth is the number of bytes of a token when there are vocabSize ids.
func tokenWidth(vocabSize int) int {
	if vocabSize <= 1<<16 {
		return 2
	}
	return 4
}

// layOut sets the sections of a file with the given counts.
func (h *header) layOut(tokenizerBytes int64) {
	h.block = blockBytes
	h.data = section{headerBytes, h.tokens * int64(h.width)}
	h.index = section{align8(h.data.end()), 8 * h.docs}
	h.tokenizer = section{h.index.end(), tokenizerBytes}
	h.blocks = section{align8(h.tokenizer.end()), 4 * blockCount(h.data.size, blockBytes)}
}

func align8(n int64) int64 { return (n + 7) &^ 7 }

func blockCount(size, block int64) int64 { return (size + block - 1) / block }

func (h *header) fileBytes() int64 { return h.blocks.end() }

// marshal returns the headerBytes of the header, with its own checksum at the end.
func (h *header) marshal() []byte {
	b := make([]byte, headerBytes)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], headerBytes)
	le.PutUint32(b[16:], uint32(h.width))
	le.PutUint32(b[20:], uint32(h.vocabSize))
	le.PutUint64(b[24:], uint64(h.tokens))
	le.PutUint64(b[32:], uint64(h.docs))
	le.PutUint64(b[40:], uint64(h.textBytes))
	eod := uint32(noEndOfDocument)
	if h.endOfDocument >= 0 {
		eod = uint32(h.endOfDocument)
	}
	le.PutUint32(b[48:], eod)
	le.PutUint32(b[52:], uint32(h.block))
	for i, s := range []section{h.data, h.index, h.tokenizer, h.blocks} {
		le.PutUint64(b[56+16*i:], uint64(s.off))
		le.PutUint64(b[64+16*i:], uint64(s.size))
	}
	copy(b[120:152], h.tokenizerHash[:])
	le.PutUint32(b[152:], h.indexCRC)
	le.PutUint32(b[156:], h.tokenizerCRC)
	le.PutUint32(b[160:], h.blockCRC)
	le.PutUint32(b[164:], h.flags)
	le.PutUint32(b[headerBytes-4:], crc(b[:headerBytes-4]))
	return b
}

// parseHeader reads and checks the header of a file of the given size. b holds at least the file's first headerBytes.
func parseHeader(b []byte, fileBytes int64) (*header, error) {
	le := binary.LittleEndian
	if int64(len(b)) < headerBytes {
		return nil, fmt.Errorf("%d bytes are too few for a header of %d: the file is truncated", len(b), headerBytes)
	}
	if v := le.Uint32(b[8:]); v != version {
		return nil, fmt.Errorf("version %d, want %d: it was written by another Tezgah, build it again", v, version)
	}
	if n := le.Uint32(b[12:]); n != headerBytes {
		return nil, fmt.Errorf("header of %d bytes, want %d: the file is damaged", n, headerBytes)
	}
	if got, want := crc(b[:headerBytes-4]), le.Uint32(b[headerBytes-4:]); got != want {
		return nil, fmt.Errorf("header checksum %08x, want %08x: the file is damaged, build it again", got, want)
	}
	h := &header{
		width:         int(le.Uint32(b[16:])),
		vocabSize:     int(le.Uint32(b[20:])),
		tokens:        int64(le.Uint64(b[24:])),
		docs:          int64(le.Uint64(b[32:])),
		textBytes:     int64(le.Uint64(b[40:])),
		endOfDocument: -1,
		block:         int64(le.Uint32(b[52:])),
		tokenizerHash: [32]byte(b[120:152]),
		indexCRC:      le.Uint32(b[152:]),
		tokenizerCRC:  le.Uint32(b[156:]),
		blockCRC:      le.Uint32(b[160:]),
		flags:         le.Uint32(b[164:]),
	}
	if eod := le.Uint32(b[48:]); eod != noEndOfDocument {
		h.endOfDocument = int32(eod)
	}
	for i, s := range []*section{&h.data, &h.index, &h.tokenizer, &h.blocks} {
		*s = section{int64(le.Uint64(b[56+16*i:])), int64(le.Uint64(b[64+16*i:]))}
	}
	return h, h.check(fileBytes)
}

// check compares the counts and sections with each other and with the size of the file.
func (h *header) check(fileBytes int64) error {
	const most = math.MaxInt64 / 16 // below it the sums here can't overflow
	switch {
	case h.vocabSize < 1 || h.vocabSize > math.MaxInt32:
		return fmt.Errorf("vocabulary of %d ids", h.vocabSize)
	case h.width != tokenWidth(h.vocabSize):
		return fmt.Errorf("tokens of %d bytes, want %d for a vocabulary of %d", h.width, tokenWidth(h.vocabSize), h.vocabSize)
	case h.tokens < 0 || h.tokens > most || h.docs < 0 || h.docs > h.tokens || h.textBytes < 0:
		return fmt.Errorf("%d tokens in %d documents of %d bytes", h.tokens, h.docs, h.textBytes)
	case h.endOfDocument >= int32(h.vocabSize):
		return fmt.Errorf("end-of-document id %d, want less than the vocabulary size %d", h.endOfDocument, h.vocabSize)
	case h.block < 1 || h.block%4 != 0:
		return fmt.Errorf("checksum blocks of %d bytes", h.block)
	case h.tokenizer.size < 0 || h.tokenizer.size > maxTokenizerBytes:
		return fmt.Errorf("tokenizer of %d bytes", h.tokenizer.size)
	}
	want := *h
	want.layOut(h.tokenizer.size)
	want.blocks.size = 4 * blockCount(h.data.size, h.block)
	if h.data != want.data || h.index != want.index || h.tokenizer != want.tokenizer || h.blocks != want.blocks {
		return fmt.Errorf("its sections %v %v %v %v do not fit its counts", h.data, h.index, h.tokenizer, h.blocks)
	}
	if size := h.fileBytes(); size != fileBytes {
		return fmt.Errorf("the file has %d bytes, want %d: it is truncated or something was appended, build it again", fileBytes, size)
	}
	return nil
}
