package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tezgah/checkpoint"
	"tezgah/corpus"
)

// Text is a text as the page lists it.
type Text struct {
	Name      string    `json:"name"`
	Label     string    `json:"label"`
	Bytes     int64     `json:"bytes"`
	Files     int       `json:"files"`
	Documents int64     `json:"documents"` // 0 unknown
	Created   time.Time `json:"created"`
	Format    string    `json:"format"` // "text", "jsonl" or "parquet"
	Sample    bool      `json:"sample"`
}

// texts remembers what the folders of texts hold, which may be many files.
type texts struct {
	mu    sync.Mutex
	known map[string]Text
}

// textFacts is text.json. It is written once, with a text's first file.
type textFacts struct {
	Label   string    `json:"label"`
	Created time.Time `json:"created"`
}

const (
	textMeta  = "text.json"
	textFiles = "files" // the folder of a text's files, named 000001-LABEL …
)

// archiveEndings are files of files, which are not read.
var archiveEndings = []string{".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".7z", ".rar", ".bz2", ".xz"}

// textFormat is how corpus will read a file of this name.
func textFormat(name string) string {
	name = strings.ToLower(name)
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return "jsonl"
	case ".parquet":
		return "parquet"
	}
	return "text"
}

func (s *Service) listTexts(c *call) error {
	entries, err := os.ReadDir(s.path("texts"))
	if err != nil {
		return err
	}
	list := []Text{}
	if s.opt.Sample != nil {
		list = append(list, s.sampleText())
	}
	for _, e := range entries {
		if t, err := s.text(e.Name()); err == nil {
			list = append(list, t)
		}
	}
	return c.json(list)
}

// text looks a text up.
func (s *Service) text(name string) (Text, error) {
	if err := checkName("name", name); err != nil {
		return Text{}, err
	}
	if name == sampleName && s.opt.Sample != nil {
		return s.sampleText(), nil
	}
	s.texts.mu.Lock()
	defer s.texts.mu.Unlock()
	if t, ok := s.texts.known[name]; ok {
		return t, nil
	}
	t, err := readText(s.path("texts", name), name)
	if errors.Is(err, os.ErrNotExist) {
		return t, fail("not_found", "there is no text %q", name)
	}
	if err == nil {
		s.texts.known[name] = t
	}
	return t, err
}

// readText reads a text's folder.
func readText(dir, name string) (Text, error) {
	var facts textFacts
	t := Text{Name: name, Format: "text"}
	b, err := os.ReadFile(filepath.Join(dir, textMeta))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &facts); err != nil {
		return t, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, textMeta), err)
	}
	t.Label, t.Created = facts.Label, facts.Created
	entries, err := os.ReadDir(filepath.Join(dir, textFiles))
	if err != nil {
		return t, err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			return t, err
		}
		if t.Files == 0 {
			t.Format = textFormat(e.Name())
		}
		t.Files++
		t.Bytes += fi.Size()
	}
	return t, nil
}

// putText is PUT /api/texts/NAME: a new text, or a further file of one.
func (s *Service) putText(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	if name == sampleName {
		return badField("name", "the name sample belongs to the sample text, choose another")
	}
	label := cleanLabel(c.r.Query["label"])
	for _, end := range archiveEndings {
		if strings.HasSuffix(strings.ToLower(label), end) {
			return badField("label", "%s is an archive, which is not read: unpack it and give the files or their folder", label)
		}
	}
	more, err := boolQuery(c.r, "append")
	if err != nil {
		return err
	}
	if !more {
		if _, err := os.Stat(s.path("texts", name)); err == nil {
			return fail("exists", "there is a text %q already: delete it, or choose another name", name)
		}
	}
	tmp, size, err := s.receive(c)
	if err != nil {
		return err
	}
	defer os.Remove(tmp) // nothing is there any more when it was renamed
	t, err := s.addFile(name, label, tmp, size)
	if err != nil {
		return err
	}
	s.changed("texts")
	return c.json(t)
}

// addFile moves a whole file into a text, which is made if need be.
func (s *Service) addFile(name, label, tmp string, size int64) (Text, error) {
	release, err := s.claims.exclusive("texts/"+name, "a file is being added")
	if err != nil {
		return Text{}, err
	}
	defer release()
	t, err := s.text(name)
	dir := s.path("texts", name)
	if err != nil {
		if err := os.MkdirAll(filepath.Join(dir, textFiles), 0o777); err != nil {
			return t, err
		}
		t = Text{Name: name, Label: label, Format: textFormat(label), Created: now()}
		b, _ := json.Marshal(textFacts{t.Label, t.Created})
		if err := checkpoint.WriteBytesAtomic(filepath.Join(dir, textMeta), b); err != nil {
			return t, err
		}
	}
	t.Files++
	t.Bytes += size
	file := fmt.Sprintf("%06d-%s", t.Files, cleanFileName(label))
	if err := os.Rename(tmp, filepath.Join(dir, textFiles, file)); err != nil {
		return t, err
	}
	s.texts.mu.Lock()
	defer s.texts.mu.Unlock()
	s.texts.known[name] = t
	return t, nil
}

// getText is GET /api/texts/NAME?max=4096: the beginning, as readers see it.
func (s *Service) getText(c *call) error {
	most := 4096
	if q := c.r.Query["max"]; q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 1 || n > 1<<20 {
			return badField("max", "max is %q, want 1 to 1048576 bytes", q)
		}
		most = n
	}
	in, release, err := s.input(c.ctx, []string{c.args[0]}, "its beginning is being read")
	if err != nil {
		return err
	}
	defer release()
	in.SkipBad = true
	var out []byte
	_, err = corpus.Walk(c.ctx, in, func(d corpus.Document) error {
		if len(out) > 0 {
			out = append(out, '\n')
		}
		out = append(out, d.Text[:min(len(d.Text), most)]...)
		if len(out) >= most {
			return corpus.Stop
		}
		return nil
	})
	if err != nil {
		return err
	}
	out = out[:min(len(out), most)]
	c.Start(200, map[string]string{"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})
	c.Write([]byte(strings.ToValidUTF8(string(out), "\uFFFD")))
	return nil
}

func (s *Service) deleteText(c *call) error {
	name := c.args[0]
	if name == sampleName {
		return fail("forbidden", "the sample text cannot be deleted")
	}
	if _, err := s.text(name); err != nil {
		return err
	}
	release, err := s.claims.exclusive("texts/"+name, "it is being deleted")
	if err != nil {
		return err
	}
	defer release()
	// The description goes first: without it what is left counts as half an upload.
	dir := s.path("texts", name)
	if err := errors.Join(os.Remove(filepath.Join(dir, textMeta)), os.RemoveAll(dir)); err != nil {
		return err
	}
	s.texts.mu.Lock()
	delete(s.texts.known, name)
	s.texts.mu.Unlock()
	s.changed("texts")
	return c.noContent()
}

// input opens the files behind the names of texts for reading. release ends
// their use.
func (s *Service) input(ctx context.Context, names []string, use string) (in corpus.InputOptions, release func(), err error) {
	if len(names) == 0 {
		return in, nil, badField("texts", "no text is chosen, want the name of at least one")
	}
	var keys []string
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return in, nil, badField("texts", "the text %q comes twice", name)
		}
		if _, err := s.text(name); err != nil {
			return in, nil, err
		}
		keys = append(keys, "texts/"+name)
		path := s.path("texts", name, textFiles)
		if name == sampleName && s.opt.Sample != nil {
			if path, err = s.sampleFile(ctx); err != nil {
				return in, nil, err
			}
		}
		in.Paths = append(in.Paths, path)
	}
	release, err = s.claims.share(use, keys...)
	return in, release, err
}

// removeHalfTexts removes what an ended process left of texts: folders without
// description.
func (s *Service) removeHalfTexts() error {
	entries, err := os.ReadDir(s.path("texts"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		meta := s.path("texts", e.Name(), textMeta)
		if _, err := os.Stat(meta); errors.Is(err, fs.ErrNotExist) && e.IsDir() {
			if err := os.RemoveAll(s.path("texts", e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
