package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"

	"tezgah/tensor"
)

// File is an open safetensors file. Its methods may be called from several
// goroutines at once.
type File struct {
	r       io.ReaderAt
	closer  io.Closer // nil when the file lies in memory
	name    string    // for messages
	head    *header
	index   map[string]int // name -> place in head.entries
	dataAt  int64          // where the byte buffer begins in the file
	hasSums bool
}

// Open opens a safetensors file and checks everything but the data itself:
// the header's length against the file's, then JSON, names, types, shapes and
// offsets (see parseHeader), then the header's checksum if it has one.
func Open(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := r.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("open %s: it is not a regular file", path)
	}
	var f *File
	if err == nil {
		f, err = NewFile(r, st.Size(), path)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	f.closer = r
	return f, nil
}

// NewFile is Open for a file that is already open or lies in memory; name is
// for messages.
func NewFile(r io.ReaderAt, sizeBytes int64, name string) (*File, error) {
	f := &File{r: r, name: name, index: map[string]int{}}
	if err := f.readHeader(sizeBytes); err != nil {
		return nil, f.damaged(err)
	}
	for i, e := range f.head.entries {
		f.index[e.Name] = i
	}
	return f, nil
}

func (f *File) readHeader(sizeBytes int64) error {
	var length [lengthBytes]byte
	if sizeBytes < lengthBytes+2 {
		return fmt.Errorf("it has %d bytes, too few for a safetensors header", sizeBytes)
	}
	if err := readFull(f.r, length[:], 0); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderBytes {
		return fmt.Errorf("the header would be %d bytes long, at most %d are allowed: this is not a safetensors file", n, maxHeaderBytes)
	}
	if int64(n) > sizeBytes-lengthBytes {
		return fmt.Errorf("the header would be %d bytes long, the file has %d: it was cut short or is no safetensors file", n, sizeBytes)
	}
	raw := make([]byte, n)
	if err := readFull(f.r, raw, lengthBytes); err != nil {
		return err
	}
	f.dataAt = lengthBytes + int64(n)
	var err error
	if f.head, err = parseHeader(raw, sizeBytes-f.dataAt); err != nil {
		return err
	}
	if self, ok := f.head.meta[keySelf]; ok {
		if err := checkSelf(raw, self); err != nil {
			return err
		}
	}
	if sums, ok := f.head.meta[keySums]; ok {
		f.hasSums = true
		return f.head.setSums(sums)
	}
	return nil
}

// damaged says which file is meant, what is wrong, and what to do.
func (f *File) damaged(err error) error {
	return fmt.Errorf("%s: %w: %w; use another copy or an earlier checkpoint", f.name, ErrCorrupt, err)
}

// Close closes the file.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Name returns the path, or the name given to NewFile.
func (f *File) Name() string { return f.name }

// Meta returns a copy of the file's __metadata__.
func (f *File) Meta() map[string]string { return maps.Clone(f.head.meta) }

// Tensors describes the tensors in the order of their data.
func (f *File) Tensors() []Info {
	infos := make([]Info, len(f.head.entries))
	for i, e := range f.head.entries {
		infos[i] = e.Info
		infos[i].Shape = slices.Clone(e.Shape)
	}
	return infos
}

// Lookup describes the tensor called name.
func (f *File) Lookup(name string) (Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	info := f.head.entries[i].Info
	info.Shape = slices.Clone(info.Shape)
	return info, true
}

func (f *File) entry(name string) (entry, error) {
	i, ok := f.index[name]
	if !ok {
		return entry{}, fmt.Errorf("%s has no tensor %q", f.name, name)
	}
	return f.head.entries[i], nil
}

// ReadAt fills p from byte off of the tensor's data. It checks no checksum:
// that needs the whole tensor (see Stream and Verify).
func (f *File) ReadAt(name string, p []byte, off int64) error {
	e, err := f.entry(name)
	if err != nil {
		return err
	}
	if size := e.SizeBytes(); off < 0 || off > size || int64(len(p)) > size-off {
		return fmt.Errorf("%s: read of %d bytes at byte %d of tensor %q, which has %d", f.name, len(p), off, name, size)
	}
	if err := readFull(f.r, p, f.dataAt+e.begin+off); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", f.name, name, err)
	}
	return nil
}

// Stream hands the tensor's data to each in order, in pieces of whole elements
// that are valid only during the call. When the file has checksums, the
// tensor's is compared before the last piece is handed out, so that damaged
// data never arrives in full.
func (f *File) Stream(name string, each func(p []byte, off int64) error) error {
	r, err := f.reader(name)
	if err != nil {
		return err
	}
	for {
		off := r.off
		piece, err := r.next()
		if err != nil || piece == nil {
			return err
		}
		if err := each(piece, off); err != nil {
			return err
		}
	}
}

// Reader returns the tensor's data as a stream. A wrong checksum is an error
// of the Read that would return the last bytes.
func (f *File) Reader(name string) (io.Reader, error) { return f.reader(name) }

func (f *File) reader(name string) (*tensorReader, error) {
	e, err := f.entry(name)
	if err != nil {
		return nil, err
	}
	return &tensorReader{f: f, e: e}, nil
}

// tensorReader reads one tensor in pieces and sums it up.
type tensorReader struct {
	f    *File
	e    entry
	buf  []byte
	rest []byte // of the piece that Read is handing out
	off  int64  // of the next piece
	sum  uint32
	err  error // a wrong checksum, which stays
}

// next returns the next piece, nil after the last.
func (r *tensorReader) next() ([]byte, error) {
	size := r.e.SizeBytes()
	if r.err != nil || r.off == size && r.off > 0 {
		return nil, r.err
	}
	if r.buf == nil {
		r.buf = make([]byte, min(chunkBytes, size))
	}
	piece := r.buf[:min(chunkBytes, size-r.off)]
	if err := readFull(r.f.r, piece, r.f.dataAt+r.e.begin+r.off); err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", r.f.name, r.e.Name, err)
	}
	r.sum = crc32.Update(r.sum, castagnoli, piece)
	if r.off+int64(len(piece)) == size {
		if r.err = r.f.checkSum(r.e, r.sum); r.err != nil {
			return nil, r.err
		}
	}
	r.off += int64(len(piece))
	if len(piece) == 0 {
		return nil, nil // an empty tensor
	}
	return piece, nil
}

// Read implements io.Reader.
func (r *tensorReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		piece, err := r.next()
		if err != nil {
			return 0, err
		}
		if piece == nil {
			return 0, io.EOF
		}
		r.rest = piece
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (f *File) checkSum(e entry, got uint32) error {
	if f.hasSums && got != e.sum {
		return f.damaged(fmt.Errorf("tensor %q has CRC-32C %08x, it was written with %08x", e.Name, got, e.sum))
	}
	return nil
}

// ReadBytes reads a whole tensor into dst, which must have its size, and
// compares its checksum.
func (f *File) ReadBytes(name string, dst []byte) error {
	e, err := f.entry(name)
	if err != nil {
		return err
	}
	if size := e.SizeBytes(); int64(len(dst)) != size {
		return fmt.Errorf("%s: tensor %q: got %d bytes to fill, want %d for shape %v of %v", f.name, name, len(dst), size, e.Shape, e.Type)
	}
	if err := readFull(f.r, dst, f.dataAt+e.begin); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", f.name, name, err)
	}
	if !f.hasSums {
		return nil
	}
	return f.checkSum(e, crc32.Checksum(dst, castagnoli))
}

// ReadFloat32 reads a whole tensor of F32, F16, BF16 or F64 into dst, which
// must have its number of elements, and compares its checksum. F64 is rounded;
// the other conversions are exact.
func (f *File) ReadFloat32(name string, dst []float32) error {
	e, err := f.entry(name)
	if err != nil {
		return err
	}
	if n := e.Elements(); int64(len(dst)) != n {
		return fmt.Errorf("%s: tensor %q: got room for %d elements, want %d for shape %v", f.name, name, len(dst), n, e.Shape)
	}
	if e.Type == tensor.F32 {
		return f.ReadBytes(name, tensor.Bytes(dst))
	}
	widen, err := widener(e.Type)
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", f.name, name, err)
	}
	size := int64(e.Type.Size())
	return f.Stream(name, func(p []byte, off int64) error {
		widen(dst[off/size:], p)
		return nil
	})
}

// Verify reads the whole file and compares every checksum. A file without
// checksums verifies when it can be read to its end.
func (f *File) Verify() error {
	for _, e := range f.head.entries {
		if err := f.Stream(e.Name, func([]byte, int64) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// readFull reads len(p) bytes at off; a file that ends sooner is damaged.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends at byte %d, want %d: it was cut short", ErrCorrupt, off+int64(n), off+int64(len(p)))
	}
	return err
}
