package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sort"
	"sync/atomic"
)

// part is one file's tokens in memory: a shard of ours, or a file of nanoGPT or llm.c. Reading is safe for concurrent
// use.
type part struct {
	name      string
	width     int
	vocabSize int
	data      []byte // tokens
	docs      []byte // document starts, u64 each; empty for foreign files
	first     int64  // offset of the first token in the dataset
	firstDoc  int64
	header    *header // nil for foreign files
	tokenizer []byte
	blocks    []byte          // checksum of each block; empty for foreign files
	checked   []atomic.Uint64 // a bit for each block that was checked
	unmap     func() error
}

func (p *part) tokens() int64   { return int64(len(p.data) / p.width) }
func (p *part) docCount() int64 { return int64(len(p.docs) / 8) }

// openPart maps a file. The caller turns the content into a part.
func openFile(path string) (b []byte, unmap func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, pathCause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, pathCause(err)
	case info.IsDir():
		return nil, nil, fmt.Errorf("is a folder, want a token file or a manifest")
	case info.Size() == 0:
		return nil, nil, fmt.Errorf("is empty: build it with tezgah data build")
	}
	return mapFile(f, info.Size())
}

// parsePart checks everything of a file of ours but its token data, which is checked block by block when it is read.
func parsePart(name string, b []byte) (*part, error) {
	h, err := parseHeader(b, int64(len(b)))
	if err != nil {
		return nil, err
	}
	cut := func(s section) []byte { return b[s.off:s.end():s.end()] }
	p := &part{name: name, width: h.width, vocabSize: h.vocabSize, header: h, unmap: func() error { return nil },
		data: cut(h.data), docs: cut(h.index), tokenizer: cut(h.tokenizer), blocks: cut(h.blocks)}
	for _, s := range []struct {
		name string
		b    []byte
		want uint32
	}{{"document index", p.docs, h.indexCRC}, {"tokenizer", p.tokenizer, h.tokenizerCRC}, {"checksum table", p.blocks, h.blockCRC}} {
		if got := crc(s.b); got != s.want {
			return nil, fmt.Errorf("checksum of the %s is %08x, want %08x: the file is damaged, build it again", s.name, got, s.want)
		}
	}
	for _, gap := range []section{{h.data.end(), h.index.off - h.data.end()}, {h.tokenizer.end(), h.blocks.off - h.tokenizer.end()}} {
		if len(bytes.Trim(cut(gap), "\x00")) > 0 {
			return nil, fmt.Errorf("bytes %d to %d are not 0: the file is damaged, build it again", gap.off, gap.end())
		}
	}
	if TokenizerHash(p.tokenizer) != h.tokenizerHash {
		return nil, fmt.Errorf("the tokenizer does not have the hash in the header: build the file again")
	}
	if err := p.checkIndex(); err != nil {
		return nil, err
	}
	p.checked = make([]atomic.Uint64, (len(p.blocks)/4+63)/64)
	return p, nil
}

// checkIndex makes sure that document starts rise and lie inside the data.
func (p *part) checkIndex() error {
	last := int64(-1)
	for i := range p.docCount() {
		start := p.docStart(i)
		if start <= last || start >= p.tokens() {
			return fmt.Errorf("document %d begins at token %d, want one after %d and below %d: build the file again",
				i, start, last, p.tokens())
		}
		last = start
	}
	return nil
}

// docStart is the token within the part at which document i begins.
func (p *part) docStart(i int64) int64 { return int64(binary.LittleEndian.Uint64(p.docs[8*i:])) }

// docBefore is the number of documents of the part that begin at or before token off, less one: −1 when off belongs to
// a document that began in an earlier shard.
func (p *part) docBefore(off int64) int64 {
	n := int(p.docCount())
	return int64(sort.Search(n, func(i int) bool { return p.docStart(int64(i)) > off })) - 1
}

// read fills dst from token off on, which must be in range.
func (p *part) read(dst []int32, off int64) error {
	return guard(func() error {
		raw := p.data[off*int64(p.width) : (off+int64(len(dst)))*int64(p.width)]
		if err := p.check(off*int64(p.width), int64(len(raw))); err != nil {
			return err
		}
		most := decodeTokens(dst, raw, p.width)
		if most < uint32(p.vocabSize) {
			return nil
		}
		for i, id := range dst {
			if uint32(id) >= uint32(p.vocabSize) {
				return fmt.Errorf("token %d is id %d, want ids below the vocabulary size %d: the file belongs to another tokenizer",
					p.first+off+int64(i), uint32(id), p.vocabSize)
			}
		}
		return nil
	})
}

// decodeTokens returns the largest id.
func decodeTokens(dst []int32, raw []byte, width int) (most uint32) {
	if width == 2 {
		for i := range dst {
			id := uint32(binary.LittleEndian.Uint16(raw[2*i:]))
			most = max(most, id)
			dst[i] = int32(id)
		}
		return most
	}
	for i := range dst {
		id := binary.LittleEndian.Uint32(raw[4*i:])
		most = max(most, id)
		dst[i] = int32(id)
	}
	return most
}

// check verifies the blocks under n bytes of data from byte off on that were not verified before.
func (p *part) check(off, n int64) error {
	if len(p.blocks) == 0 || n == 0 {
		return nil
	}
	for i := off / p.header.block; i <= (off+n-1)/p.header.block; i++ {
		if p.checked[i/64].Load()&(1<<(i%64)) != 0 {
			continue
		}
		start := i * p.header.block
		block := p.data[start:min(start+p.header.block, int64(len(p.data)))]
		if got, want := crc(block), binary.LittleEndian.Uint32(p.blocks[4*i:]); got != want {
			return fmt.Errorf("checksum of the tokens from %d on is %08x, want %08x: the file is damaged, build it again",
				p.first+start/int64(p.width), got, want)
		}
		p.checked[i/64].Or(1 << (i % 64))
	}
	return nil
}

// closeness counts the first bytes of b that are those of the magic: a file of ours whose beginning is damaged must not
// be taken for a headerless one.
func closeness(b []byte) int {
	n := 0
	for i := range min(len(b), len(magic)) {
		if b[i] == magic[i] {
			n++
		}
	}
	return n
}

func hasMagic(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }
