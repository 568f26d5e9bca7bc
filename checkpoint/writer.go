package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	chunkBytes = 4 << 20 // one piece of tensor data, and the memory a save needs
	dataAlign  = 64      // the data begins at a multiple of this; the format asks for 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pair is one metadata entry; metadata is written in the order given.
type pair struct{ key, value string }

// plan is a file that is ready to be written: the header is final except for
// the checksums, whose places are known.
type plan struct {
	head    []byte   // length, JSON, padding
	tensors []Tensor // in the order of their data
	size    int64    // of the whole file, in bytes
	sumsAt  int      // where in head the data's checksums stand, 0 for none
	selfAt  int      // where in head its own checksum stands, 0 for none
}

// planFile lays out a safetensors file. Tensors of wide elements come first
// and otherwise keep their order, so that every tensor is aligned.
func planFile(meta []pair, ts []Tensor) (*plan, error) {
	p := &plan{tensors: slices.Clone(ts)}
	slices.SortStableFunc(p.tensors, func(a, b Tensor) int {
		return cmp.Compare(b.Type.Size(), a.Type.Size())
	})
	names := map[string]bool{metadataKey: true}
	for _, t := range p.tensors {
		if err := t.check(); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("two tensors are called %q", t.Name)
		}
		names[t.Name] = true
	}
	if err := p.encodeHeader(meta); err != nil {
		return nil, err
	}
	if n := len(p.head) - lengthBytes; n > maxHeaderBytes {
		return nil, fmt.Errorf("the header takes %d bytes, readers of safetensors accept %d: use a smaller vocabulary", n, maxHeaderBytes)
	}
	return p, nil
}

// encodeHeader writes p.head and p.size, with zeros in place of checksums.
func (p *plan) encodeHeader(meta []pair) error {
	var b bytes.Buffer
	b.Write(make([]byte, lengthBytes))
	b.WriteByte('{')
	comma := ""
	if len(meta) > 0 {
		b.WriteString(`"` + metadataKey + `":{`)
		for i, m := range meta {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeString(&b, m.key); err != nil {
				return err
			}
			b.WriteByte(':')
			switch m.key {
			case keySums:
				p.sumsAt = b.Len() + 1
			case keySelf:
				p.selfAt = b.Len() + 1
			}
			if err := writeString(&b, m.value); err != nil {
				return fmt.Errorf("metadata %q: %w", m.key, err)
			}
		}
		b.WriteByte('}')
		comma = ","
	}
	var at int64
	for _, t := range p.tensors {
		b.WriteString(comma)
		comma = ","
		if err := writeString(&b, t.Name); err != nil {
			return err
		}
		end := at + t.SizeBytes()
		if end < at {
			return fmt.Errorf("the tensors together are larger than any file")
		}
		shape := strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",")
		fmt.Fprintf(&b, `:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.Type, shape, at, end)
		at = end
	}
	b.WriteByte('}')
	for b.Len()%dataAlign != 0 {
		b.WriteByte(' ')
	}
	p.head = b.Bytes()
	binary.LittleEndian.PutUint64(p.head, uint64(len(p.head)-lengthBytes))
	p.size = int64(len(p.head)) + at
	return nil
}

// writeString appends s as a JSON string. Go's encoder would replace invalid
// UTF-8 without a word, so that is refused.
func writeString(b *bytes.Buffer, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%.40q is not UTF-8, which safetensors metadata and names must be", s)
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the encoder's newline
	return nil
}

// write writes every tensor to w, then the header: until it is there, nothing
// can take the file for a whole one.
func (p *plan) write(w io.WriterAt) error {
	at := int64(len(p.head))
	var buf []byte
	for i, t := range p.tensors {
		s := &sink{w: w, at: at, left: t.SizeBytes()}
		if t.Read != nil && buf == nil {
			buf = make([]byte, chunkBytes)
		}
		if err := t.copyTo(s, buf); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if p.sumsAt > 0 {
			putHex(p.head[p.sumsAt+i*hexDigits:], s.sum)
		}
		at = s.at
	}
	if p.selfAt > 0 {
		putHex(p.head[p.selfAt:], headerSum(p.head, p.selfAt))
	}
	_, err := w.WriteAt(p.head, 0)
	return err
}

// copyTo writes the tensor's data to s; buf is for a tensor with Read.
func (t Tensor) copyTo(s *sink, buf []byte) error {
	size := s.left
	switch {
	case (t.Read == nil) == (t.Write == nil):
		return fmt.Errorf("got both or neither of Read and Write, want one")
	case t.Write != nil:
		if err := t.Write(s); err != nil {
			return err
		}
	default:
		for off := int64(0); off < size; {
			piece := buf[:min(int64(len(buf)), size-off)]
			if err := t.Read(piece, off); err != nil {
				return err
			}
			if _, err := s.Write(piece); err != nil {
				return err
			}
			off += int64(len(piece))
		}
	}
	if s.left != 0 {
		return fmt.Errorf("got %d bytes of data, want %d for shape %v of %v", size-s.left, size, t.Shape, t.Type)
	}
	return nil
}

// sink receives one tensor's data: it writes it to its place in the file and
// sums it up.
type sink struct {
	w    io.WriterAt
	at   int64 // place of the next byte in the file
	left int64 // bytes to come
	sum  uint32
}

func (s *sink) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, fmt.Errorf("got at least %d bytes of data too many", int64(len(p))-s.left)
	}
	n, err := s.w.WriteAt(p, s.at)
	s.sum = crc32.Update(s.sum, castagnoli, p[:n])
	s.at += int64(n)
	s.left -= int64(n)
	return n, err
}

// WriteSafetensors writes a plain safetensors file to w, which must be empty,
// and returns its size. meta may be nil.
func WriteSafetensors(w io.WriterAt, meta map[string]string, ts []Tensor) (sizeBytes int64, err error) {
	p, err := planFile(sortedPairs(meta), ts)
	if err != nil {
		return 0, fmt.Errorf("write safetensors: %w", err)
	}
	if err := p.write(w); err != nil {
		return 0, fmt.Errorf("write safetensors: %w", err)
	}
	return p.size, nil
}

// SaveSafetensors writes a plain safetensors file under path, atomically (see
// WriteFileAtomic). meta may be nil; transformers expects {"format": "pt"}.
func SaveSafetensors(path string, meta map[string]string, ts []Tensor) error {
	p, err := planFile(sortedPairs(meta), ts)
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return p.save(path)
}

// save writes the planned file under path, all or nothing.
func (p *plan) save(path string) error {
	if err := checkSpace(path, p.size); err != nil {
		return err
	}
	a, err := createAtomic(path)
	if err != nil {
		return err
	}
	if err := p.write(a.f); err != nil {
		a.abort()
		return saveError(path, p.size, err)
	}
	return saveError(path, p.size, a.commit())
}

func sortedPairs(meta map[string]string) []pair {
	var ps []pair
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		if k == keySums || k == keySelf {
			continue // they belong to the file they came from
		}
		ps = append(ps, pair{k, meta[k]})
	}
	return ps
}

// MemFile is an io.WriterAt in memory, for saving where there are no files
// (a browser) and for tests. The zero value is empty.
type MemFile struct{ b []byte }

// WriteAt implements io.WriterAt; the file grows as needed.
func (m *MemFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("write at negative offset %d", off)
	}
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// Bytes returns the content, which later writes may change.
func (m *MemFile) Bytes() []byte { return m.b }
