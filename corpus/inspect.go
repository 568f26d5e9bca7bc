package corpus

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
)

// InspectOptions configures Inspect.
type InspectOptions struct {
	Open OpenOptions
	// TokenBytes returns the text bytes of every id for a tokenizer.json, as the function TokenBytes does; nil leaves out
	// what needs it when the file does not say how much text it holds.
	TokenBytes func(tokenizerJSON []byte) ([]int32, error)
	// Top is how many of the most frequent ids are listed, 0 means 10; SampleTokens how many tokens of a document from
	// the middle of the file are returned, 0 means 200.
	Top, SampleTokens int
	// Verify compares all checksums first.
	Verify bool
}

// Info describes a token file.
type Info struct {
	Path          string       `json:"path"`
	Format        string       `json:"format"`
	Shards        int          `json:"shards"`
	Tokens        int64        `json:"tokens"`
	Documents     int64        `json:"documents"`  // 0: no index
	TextBytes     int64        `json:"text_bytes"` // 0: unknown
	FileBytes     int64        `json:"file_bytes"`
	VocabSize     int          `json:"vocab_size"`
	TokenWidth    int          `json:"token_width"`
	EndOfDocument int32        `json:"end_of_document"` // negative: none
	TokenizerHash string       `json:"tokenizer_sha256"`
	UsedIDs       int          `json:"used_ids"`
	UnusedIDs     int          `json:"unused_ids"`
	Top           []TokenCount `json:"top"`
	Sample        []int32      `json:"sample"`
	ShortestDoc   int64        `json:"shortest_document"` // tokens, with the end-of-document token
	MedianDoc     int64        `json:"median_document"`
	MeanDoc       float64      `json:"mean_document"`
	LongestDoc    int64        `json:"longest_document"`
	BitsPerToken  float64      `json:"unigram_bits_per_token"` // entropy of the token frequencies
	BitsPerByte   float64      `json:"unigram_bits_per_byte"`  // 0: unknown
	BytesPerToken float64      `json:"bytes_per_token"`        // 0: unknown
}

// TokenCount is how often an id occurs.
type TokenCount struct {
	ID    int32 `json:"id"`
	Count int64 `json:"count"`
}

// Inspect reads a token file once from front to back and describes it.
func Inspect(ctx context.Context, path string, opt InspectOptions) (Info, error) {
	d, err := Open(path, opt.Open)
	if err != nil {
		return Info{}, err
	}
	defer d.Close()
	if opt.Verify {
		if err := d.Verify(ctx); err != nil {
			return Info{}, err
		}
	}
	info := Info{Path: d.Name(), Format: d.Format(), Shards: d.Shards(), Tokens: d.Len(), Documents: d.Docs(),
		TextBytes: d.TextBytes(), VocabSize: d.VocabSize(), TokenWidth: d.TokenWidth(), EndOfDocument: d.EndOfDocument()}
	if hash := d.TokenizerHash(); d.tokenizer != nil {
		info.TokenizerHash = hex.EncodeToString(hash[:])
	}
	info.FileBytes = d.fileBytes()
	counts, err := countTokens(ctx, Whole(d))
	if err != nil {
		return Info{}, err
	}
	info.histogram(counts, opt.Top)
	info.lengths(d)
	if err := info.perByte(d, counts, opt.TokenBytes); err != nil {
		return Info{}, fmt.Errorf("token file %s: %w", path, err)
	}
	return info, info.sample(d, opt.SampleTokens)
}

// fileBytes sums the sizes of the files, as far as they can be found.
func (d *Dataset) fileBytes() int64 {
	var n int64
	for _, p := range d.parts {
		name := p.name
		if d.manifest != nil {
			name = filepath.Join(d.folder, name)
		}
		if info, err := os.Stat(name); err == nil {
			n += info.Size()
		}
	}
	return n
}

// histogram sets the most frequent ids and the entropy.
func (info *Info) histogram(counts []int64, top int) {
	if top <= 0 {
		top = 10
	}
	total := float64(info.Tokens)
	for id, n := range counts {
		if n == 0 {
			info.UnusedIDs++
			continue
		}
		info.UsedIDs++
		info.BitsPerToken -= float64(n) / total * math.Log2(float64(n)/total)
		info.Top = append(info.Top, TokenCount{int32(id), n})
	}
	sort.SliceStable(info.Top, func(i, j int) bool { return info.Top[i].Count > info.Top[j].Count })
	info.Top = info.Top[:min(top, len(info.Top)):min(top, len(info.Top))]
}

// lengths sets the figures about document lengths. The median is exact up to a million documents and from every k-th
// document above.
func (info *Info) lengths(d *Dataset) {
	n := d.Docs()
	if n == 0 {
		return
	}
	info.ShortestDoc = math.MaxInt64
	step := n/1_000_000 + 1
	var some []int64
	start := d.DocStart(0)
	for i := range n {
		next := d.DocStart(i + 1)
		length := next - start
		start = next
		info.ShortestDoc = min(info.ShortestDoc, length)
		info.LongestDoc = max(info.LongestDoc, length)
		if i%step == 0 {
			some = append(some, length)
		}
	}
	sort.Slice(some, func(i, j int) bool { return some[i] < some[j] })
	info.MedianDoc = some[len(some)/2]
	info.MeanDoc = float64(d.Len()-d.DocStart(0)) / float64(n)
}

// perByte sets the figures that need to know how much text the tokens stand for.
func (info *Info) perByte(d *Dataset, counts []int64, tokenBytes func([]byte) ([]int32, error)) error {
	bytes := d.TextBytes()
	if tokenBytes != nil && d.tokenizer != nil {
		lengths, err := tokenBytes(d.TokenizerJSON())
		if err != nil {
			return err
		}
		if len(lengths) != len(counts) {
			return fmt.Errorf("bytes of %d ids, want %d", len(lengths), len(counts))
		}
		bytes = 0
		for id, n := range counts {
			bytes += n * int64(lengths[id])
		}
	}
	if bytes > 0 {
		info.BytesPerToken = float64(bytes) / float64(d.Len())
		info.BitsPerByte = info.BitsPerToken / info.BytesPerToken
	}
	return nil
}

// sample sets the beginning of the document in the middle of the file.
func (info *Info) sample(d *Dataset, n int) error {
	if n <= 0 {
		n = 200
	}
	off, end := d.Len()/2, d.Len()
	if i := d.DocAt(off); i >= 0 {
		off, end = d.DocStart(i), d.DocStart(i+1)
	}
	info.Sample = make([]int32, min(int64(n), end-off))
	return d.Read(info.Sample, off)
}
