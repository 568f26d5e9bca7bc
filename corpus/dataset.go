package corpus

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
)

// OpenOptions helps to read files that lack something.
type OpenOptions struct {
	// TokenizerJSON, when given, must be the tokenizer of a file of ours; of a foreign file it becomes the tokenizer.
	TokenizerJSON []byte
	// VocabSize and EndOfDocument are for foreign files, which do not say them. EndOfDocument is used only together
	// with VocabSize; negative means that no id ends documents.
	VocabSize     int
	EndOfDocument int32
	// Verify checks all token data when the file is opened rather than each block on first touch.
	Verify bool
}

// Dataset is a token file, or the shards of one seen as a whole. Its methods may be called from several goroutines at
// once.
type Dataset struct {
	name          string
	format        string
	parts         []*part
	manifest      *manifest // nil unless there are shards
	folder        string
	tokens, docs  int64
	textBytes     int64
	vocabSize     int
	endOfDocument int32
	tokenizer     []byte
	tokenizerHash [32]byte
}

// Open maps a token file of ours, the shards behind a manifest, or a file of nanoGPT or llm.c. The name F.bin also finds
// F.manifest.json when there is no F.bin. Header, document index, tokenizer and checksum table are verified here, the
// token data on first touch, so that a file of any size opens at once.
func Open(path string, opt OpenOptions) (*Dataset, error) {
	d, err := open(path, &opt)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", path, err)
	}
	if opt.Verify {
		if err := d.Verify(context.Background()); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

func open(path string, opt *OpenOptions) (*Dataset, error) {
	b, unmap, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		other := strings.TrimSuffix(path, ".bin") + ".manifest.json"
		if mb, munmap, e := openFile(other); e == nil {
			path, b, unmap, err = other, mb, munmap, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if looksLikeManifest(b) {
		defer unmap()
		return openShards(path, b, opt)
	}
	d, err := newDataset(path, b, opt)
	if err != nil {
		unmap()
		return nil, err
	}
	d.parts[0].unmap = unmap
	return d, nil
}

// OpenBytes is Open for content in memory, which must not be changed afterwards. name is for messages.
func OpenBytes(name string, b []byte, opt OpenOptions) (*Dataset, error) {
	d, err := newDataset(name, b, &opt)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", name, err)
	}
	if opt.Verify {
		if err := d.Verify(context.Background()); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func looksLikeManifest(b []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(b[:min(len(b), 64)]), []byte("{"))
}

func newDataset(name string, b []byte, opt *OpenOptions) (d *Dataset, err error) {
	d = &Dataset{name: name}
	err = guard(func() error {
		if hasMagic(b) {
			p, err := parsePart(name, b)
			if err != nil {
				return err
			}
			d.format, d.parts = formatTezgah, []*part{p}
			return nil
		}
		p, format, err := parseForeign(name, b, opt)
		if err != nil {
			return err
		}
		d.format, d.parts = format, []*part{p}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, d.join(opt)
}

// openShards opens every shard of a manifest.
func openShards(path string, b []byte, opt *OpenOptions) (d *Dataset, err error) {
	m, err := parseManifest(b)
	if err != nil {
		return nil, err
	}
	d = &Dataset{name: path, format: formatTezgah, manifest: m, folder: filepath.Dir(path)}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	for _, s := range m.Shards {
		b, unmap, err := openFile(filepath.Join(d.folder, s.File))
		if err != nil {
			return d, fmt.Errorf("shard %s: %w", s.File, err)
		}
		var p *part
		err = guard(func() (err error) {
			if !hasMagic(b) {
				return errors.New("not a shard of this file: build it again")
			}
			p, err = parsePart(s.File, b)
			return err
		})
		if err == nil {
			err = s.fits(p, int64(len(b)), m)
		}
		if err != nil {
			unmap()
			return d, fmt.Errorf("shard %s: %w", s.File, err)
		}
		p.unmap = unmap
		d.parts = append(d.parts, p)
	}
	return d, d.join(opt)
}

// fits compares a shard with its entry.
func (s *manifestShard) fits(p *part, size int64, m *manifest) error {
	switch {
	case size != s.Bytes:
		return fmt.Errorf("%d bytes, want %d as in the manifest: build it again", size, s.Bytes)
	case p.tokens() != s.Tokens || p.docCount() != s.Documents:
		return fmt.Errorf("%d tokens in %d documents, want %d in %d as in the manifest: build it again",
			p.tokens(), p.docCount(), s.Tokens, s.Documents)
	case hex.EncodeToString(p.header.tokenizerHash[:]) != m.Tokenizer:
		return errors.New("its tokenizer is not the manifest's: build it again")
	}
	return nil
}

// join sets the figures of the whole from its parts.
func (d *Dataset) join(opt *OpenOptions) error {
	for _, p := range d.parts {
		p.first, p.firstDoc = d.tokens, d.docs
		d.tokens += p.tokens()
		d.docs += p.docCount()
		if p.header != nil {
			d.textBytes += p.header.textBytes
		}
	}
	first := d.parts[0]
	d.vocabSize, d.tokenizer = first.vocabSize, first.tokenizer
	if first.header == nil {
		d.tokenizer, d.endOfDocument = opt.TokenizerJSON, opt.EndOfDocument
		if int(d.endOfDocument) >= d.vocabSize {
			return fmt.Errorf("end-of-document id %d, want less than the vocabulary size %d", d.endOfDocument, d.vocabSize)
		}
	} else {
		d.endOfDocument = first.header.endOfDocument
	}
	if d.tokenizer != nil {
		d.tokenizerHash = TokenizerHash(d.tokenizer)
	}
	if opt.TokenizerJSON != nil && TokenizerHash(opt.TokenizerJSON) != d.tokenizerHash {
		return errors.New("it was made with another tokenizer than the one given: use that one, or build the file again")
	}
	if d.tokens == 0 {
		return errors.New("it has no tokens: build it again from files with text")
	}
	return nil
}

// Name is the path given to Open.
func (d *Dataset) Name() string { return d.name }

// Format is "tezgah", "nanogpt" or "llm.c".
func (d *Dataset) Format() string { return d.format }

// Len is the number of tokens.
func (d *Dataset) Len() int64 { return d.tokens }

// VocabSize is V: every id that Read returns is below it.
func (d *Dataset) VocabSize() int { return d.vocabSize }

// TokenWidth is the number of bytes that one token takes in the file, 2 or 4.
func (d *Dataset) TokenWidth() int { return d.parts[0].width }

// Shards is the number of files.
func (d *Dataset) Shards() int { return len(d.parts) }

// EndOfDocument is the id that ends documents, negative when there is none or it is not known.
func (d *Dataset) EndOfDocument() int32 { return d.endOfDocument }

// TextBytes is the size of the text that was encoded; 0 means unknown (foreign files).
func (d *Dataset) TextBytes() int64 { return d.textBytes }

// TokenizerJSON is the tokenizer the file was made with, nil when it is not known. It is a copy.
func (d *Dataset) TokenizerJSON() []byte { return bytes.Clone(d.tokenizer) }

// TokenizerHash is SHA-256 of TokenizerJSON, zero when there is none.
func (d *Dataset) TokenizerHash() [32]byte { return d.tokenizerHash }

// Docs is the number of documents in the index; foreign files have no index.
func (d *Dataset) Docs() int64 { return d.docs }

// DocStart is the offset of the first token of document i, for i = Docs() the number of tokens.
func (d *Dataset) DocStart(i int64) int64 {
	if i == d.docs {
		return d.tokens
	}
	k := sort.Search(len(d.parts), func(k int) bool { return d.parts[k].firstDoc > i }) - 1
	for d.parts[k].docCount() == 0 { // a shard inside one long document begins none
		k--
	}
	p := d.parts[k]
	return p.first + p.docStart(i-p.firstDoc)
}

// DocAt is the number of the document that token off belongs to, −1 when the file has no index.
func (d *Dataset) DocAt(off int64) int64 {
	k := d.partAt(off)
	p := d.parts[k]
	return p.firstDoc + p.docBefore(off-p.first)
}

func (d *Dataset) partAt(off int64) int {
	return sort.Search(len(d.parts), func(k int) bool { return d.parts[k].first > off }) - 1
}

// Read fills dst with the tokens from off on. It fails when they reach past the end, when a block of the file that is
// touched for the first time does not have its checksum, and when an id is not below VocabSize.
func (d *Dataset) Read(dst []int32, off int64) error {
	if off < 0 || off > d.tokens || int64(len(dst)) > d.tokens-off {
		return fmt.Errorf("token file %s: read of tokens %d to %d, it has %d", d.name, off, off+int64(len(dst)), d.tokens)
	}
	for len(dst) > 0 {
		p := d.parts[d.partAt(off)]
		n := min(int64(len(dst)), p.first+p.tokens()-off)
		if err := p.read(dst[:n], off-p.first); err != nil {
			return fmt.Errorf("token file %s: %w", p.name, err)
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// Verify reads all token data and compares its checksums, and those of the manifest.
func (d *Dataset) Verify(ctx context.Context) error {
	for i, p := range d.parts {
		const step = 1 << 20
		for off := int64(0); off < int64(len(p.data)); off += step {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := guard(func() error { return p.check(off, min(step, int64(len(p.data))-off)) })
			if err != nil {
				return fmt.Errorf("token file %s: %w", p.name, err)
			}
		}
		if d.manifest == nil {
			continue
		}
		s := d.manifest.Shards[i]
		sum, _, err := hashFile(filepath.Join(d.folder, s.File))
		if err == nil && sum != s.SHA256 {
			err = fmt.Errorf("SHA-256 is %s, want %s as in the manifest: build it again", sum, s.SHA256)
		}
		if err != nil {
			return fmt.Errorf("token file %s: %w", p.name, pathCause(err))
		}
	}
	return nil
}

// Close unmaps the files. Nothing of the dataset may be used afterwards.
func (d *Dataset) Close() error {
	var errs []error
	for _, p := range d.parts {
		errs = append(errs, p.unmap())
		p.data, p.docs, p.tokenizer, p.blocks = nil, nil, nil, nil
	}
	d.parts, d.tokens, d.docs = nil, 0, 0 // so that a late Read is an error
	return errors.Join(errs...)
}
