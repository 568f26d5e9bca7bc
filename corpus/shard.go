package corpus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// partialSuffix ends the names of files that are being written.
const partialSuffix = ".partial"

// shardState is what the journal keeps of a shard, and what it takes to go on writing it.
type shardState struct {
	Name      string `json:"name"` // final name, without folder
	Sealed    bool   `json:"sealed,omitempty"`
	Tokens    int64  `json:"tokens"`
	Docs      int64  `json:"docs"`
	TextBytes int64  `json:"text_bytes"`
	Continues bool   `json:"continues,omitempty"`
	DataCRC   uint32 `json:"data_crc"`  // of all token data so far
	IndexCRC  uint32 `json:"index_crc"` // of all document starts so far
}

// shardWriter writes one token file under a temporary name: token data after a gap for the header, and the document
// index into a second file, because it may not fit into memory. seal puts them together.
type shardWriter struct {
	shardState
	dir   string
	width int

	file  *os.File
	data  *bufio.Writer
	spill *os.File // document starts
	index *bufio.Writer

	blocks    []byte // finished checksums of the block table
	blockCRC  uint32 // of the block being filled
	blockFill int64
}

func (w *shardWriter) partial() string { return filepath.Join(w.dir, w.Name+partialSuffix) }
func (w *shardWriter) indexPartial() string {
	return filepath.Join(w.dir, w.Name+".docs"+partialSuffix)
}

// createShard starts an empty shard.
func createShard(dir, name string, width int, continues bool) (*shardWriter, error) {
	w := &shardWriter{shardState: shardState{Name: name, Continues: continues}, dir: dir, width: width}
	var err error
	if w.file, err = os.Create(w.partial()); err != nil {
		return nil, err
	}
	if w.spill, err = os.Create(w.indexPartial()); err != nil {
		w.file.Close()
		return nil, err
	}
	w.buffer()
	_, err = w.data.Write(make([]byte, headerBytes))
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *shardWriter) buffer() {
	w.data = bufio.NewWriterSize(w.file, 1<<20)
	w.index = bufio.NewWriterSize(w.spill, 64<<10)
}

// reopenShard goes on with a shard as the journal describes it. What was written after the journal is cut off; what
// was written before is read again and must have the journal's checksums.
func reopenShard(dir string, state shardState, width int) (*shardWriter, error) {
	w := &shardWriter{shardState: state, dir: dir, width: width}
	var err error
	if w.file, err = os.OpenFile(w.partial(), os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if w.spill, err = os.OpenFile(w.indexPartial(), os.O_RDWR, 0); err != nil {
		w.file.Close()
		return nil, err
	}
	if err := w.recover(); err != nil {
		w.close()
		return nil, err
	}
	w.buffer()
	return w, nil
}

func (w *shardWriter) recover() error {
	want := w.shardState
	size := want.Tokens * int64(w.width)
	if err := cutTo(w.file, headerBytes+size); err != nil {
		return err
	}
	if err := cutTo(w.spill, 8*want.Docs); err != nil {
		return err
	}
	w.DataCRC, w.IndexCRC = 0, 0
	buf := make([]byte, 1<<20)
	if _, err := w.file.Seek(headerBytes, io.SeekStart); err != nil {
		return err
	}
	if err := eachChunk(w.file, buf, w.sum); err != nil {
		return err
	}
	if err := eachChunk(w.spill, buf, func(b []byte) { w.IndexCRC = crc32.Update(w.IndexCRC, castagnoli, b) }); err != nil {
		return err
	}
	if w.DataCRC != want.DataCRC || w.IndexCRC != want.IndexCRC {
		return errors.New("checksum differs from the journal")
	}
	return nil
}

// cutTo shortens f to size bytes, which it must have.
func cutTo(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return fmt.Errorf("%s has %d bytes, want at least %d", f.Name(), info.Size(), size)
	}
	return f.Truncate(size)
}

func eachChunk(r io.Reader, buf []byte, f func([]byte)) error {
	for {
		n, err := r.Read(buf)
		f(buf[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sum takes token data into the checksums.
func (w *shardWriter) sum(b []byte) {
	w.DataCRC = crc32.Update(w.DataCRC, castagnoli, b)
	for len(b) > 0 {
		n := min(int64(len(b)), blockBytes-w.blockFill)
		w.blockCRC = crc32.Update(w.blockCRC, castagnoli, b[:n])
		w.blockFill += n
		b = b[n:]
		if w.blockFill == blockBytes {
			w.endBlock()
		}
	}
}

func (w *shardWriter) endBlock() {
	w.blocks = binary.LittleEndian.AppendUint32(w.blocks, w.blockCRC)
	w.blockCRC, w.blockFill = 0, 0
}

// startDoc notes that a document begins with the next token.
func (w *shardWriter) startDoc() error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(w.Tokens))
	w.IndexCRC = crc32.Update(w.IndexCRC, castagnoli, b[:])
	w.Docs++
	_, err := w.index.Write(b[:])
	return err
}

// write appends tokens, encoded in width bytes each.
func (w *shardWriter) write(b []byte) error {
	w.sum(b)
	w.Tokens += int64(len(b) / w.width)
	_, err := w.data.Write(b)
	return err
}

// flush makes everything written so far survive a crash.
func (w *shardWriter) flush() error {
	for _, step := range []func() error{w.data.Flush, w.index.Flush, w.file.Sync, w.spill.Sync} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// header ends the last block and describes what was written.
func (w *shardWriter) header(t Tokenizer) *header {
	if w.blockFill > 0 {
		w.endBlock()
	}
	tokenizer := t.JSON()
	h := &header{
		width: w.width, vocabSize: t.VocabSize(), tokens: w.Tokens, docs: w.Docs, textBytes: w.TextBytes,
		endOfDocument: t.EndOfDocument(), tokenizerHash: TokenizerHash(tokenizer),
		indexCRC: w.IndexCRC, tokenizerCRC: crc(tokenizer), blockCRC: crc(w.blocks),
	}
	if w.Continues {
		h.flags = flagContinues
	}
	h.layOut(int64(len(tokenizer)))
	return h
}

// seal appends index, tokenizer and checksums, writes the header and closes the file, which keeps its temporary name.
func (w *shardWriter) seal(t Tokenizer) error {
	h := w.header(t)
	if err := w.index.Flush(); err != nil {
		return err
	}
	if _, err := w.spill.Seek(0, io.SeekStart); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return w.pad(h.index.off - h.data.end()) },
		func() error { _, err := io.Copy(w.data, w.spill); return err },
		func() error { _, err := w.data.Write(t.JSON()); return err },
		func() error { return w.pad(h.blocks.off - h.tokenizer.end()) },
		func() error { _, err := w.data.Write(w.blocks); return err },
		w.data.Flush,
		func() error { _, err := w.file.WriteAt(h.marshal(), 0); return err },
		w.file.Sync,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	w.Sealed = true
	w.close()
	return nil
}

func (w *shardWriter) pad(n int64) error {
	_, err := w.data.Write(make([]byte, n))
	return err
}

// close closes the files and leaves them where they are.
func (w *shardWriter) close() {
	w.file.Close()
	w.spill.Close()
}
