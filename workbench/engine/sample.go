package engine

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"tezgah/checkpoint"
)

// sampleName is the text that is always there.
const sampleName = "sample"

// documentEnd separates the documents of the sample.
const documentEnd = "<|endoftext|>"

// sample guards the making of the sample's file.
type sample struct{ mu sync.Mutex }

// samplePath is the sample on the disk, as jsonl so that its documents need no
// setting to stay apart.
func (s *Service) samplePath() string { return s.path("cache", "sample.jsonl") }

// sampleText describes the sample. Its size is known once it has been read.
func (s *Service) sampleText() Text {
	t := Text{Name: sampleName, Label: sampleName, Format: "text", Sample: true, Files: 1, Created: s.started}
	if fi, err := os.Stat(s.samplePath()); err == nil {
		t.Bytes, t.Created = fi.Size(), fi.ModTime().UTC()
	}
	return t
}

// sampleFile returns the sample's path and writes the file first if this
// process has not.
func (s *Service) sampleFile(ctx context.Context) (string, error) {
	s.sample.mu.Lock()
	defer s.sample.mu.Unlock()
	path := s.samplePath()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	from, err := s.opt.Sample(ctx)
	if err != nil {
		return "", fmt.Errorf("the sample text: %w", err)
	}
	defer from.Close()
	err = checkpoint.WriteFileAtomic(path, func(w io.Writer) error { return writeSample(ctx, w, from, s.yield) })
	if err != nil {
		return "", fmt.Errorf("the sample text: %w", err)
	}
	return path, nil
}

// writeSample turns documents with separators between them into jsonl.
func writeSample(ctx context.Context, w io.Writer, from io.Reader, yield func(context.Context)) error {
	in := bufio.NewReaderSize(from, 1<<16)
	var r io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		r = z
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 1<<16), 64<<20)
	sc.Split(splitDocuments)
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for sc.Scan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		yield(ctx)
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		if err := enc.Encode(map[string]string{"text": sc.Text()}); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	return out.Flush()
}

// splitDocuments is a bufio.SplitFunc that cuts at documentEnd.
func splitDocuments(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.Index(data, []byte(documentEnd)); i >= 0 {
		return i + len(documentEnd), bytes.TrimPrefix(data[:i], []byte("\n")), nil
	}
	if atEOF && len(data) > 0 {
		return len(data), bytes.TrimPrefix(data, []byte("\n")), nil
	}
	return 0, nil, nil
}
