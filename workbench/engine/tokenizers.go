package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/internal/nearest"
)

// Tokenizer is a tokenizer as the page lists it.
type Tokenizer struct {
	Name      string    `json:"name"`
	VocabSize int       `json:"vocab_size"`
	Pattern   string    `json:"pattern"`
	Specials  []string  `json:"specials"`
	NFC       bool      `json:"nfc"`
	Bytes     int64     `json:"bytes"`
	Created   time.Time `json:"created"`
	SHA256    string    `json:"sha256"`
}

// stamp tells whether a file is still the one that was read.
type stamp struct {
	path  string
	size  int64
	mtime time.Time
}

func stampOf(path string) (stamp, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{path, fi.Size(), fi.ModTime()}, nil
}

// tokenizers remembers what the files hold, and the last tokenizer used.
type tokenizers struct {
	mu    sync.Mutex
	known map[stamp]Tokenizer
	from  stamp // where last came from
	last  *bpe.Tokenizer
}

const tokenizerExt = ".json"

func (s *Service) tokenizerPath(name string) string { return s.path("tokenizers", name+tokenizerExt) }

// names lists the files of a folder with an ending, without it, that are valid
// names.
func (s *Service) names(folder, ext string) ([]string, error) {
	entries, err := os.ReadDir(s.path(folder))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ext)
		if ok && e.Type().IsRegular() && checkName("name", name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *Service) listTokenizers(c *call) error {
	names, err := s.names("tokenizers", tokenizerExt)
	if err != nil {
		return err
	}
	list := []Tokenizer{}
	for _, name := range names {
		if t, err := s.tokenizer(name); err == nil {
			list = append(list, t)
		}
	}
	return c.json(list)
}

// tokenizer describes one.
func (s *Service) tokenizer(name string) (Tokenizer, error) {
	st, err := stampOf(s.tokenizerPath(name))
	if err != nil {
		return Tokenizer{}, fail("not_found", "there is no tokenizer %q", name)
	}
	s.tokenizers.mu.Lock()
	defer s.tokenizers.mu.Unlock()
	if t, ok := s.tokenizers.known[st]; ok {
		return t, nil
	}
	t, err := bpe.Load(st.path)
	if err != nil {
		return Tokenizer{}, err
	}
	d := describe(name, t, st)
	s.tokenizers.known[st] = d
	return d, nil
}

func describe(name string, t *bpe.Tokenizer, st stamp) Tokenizer {
	d := Tokenizer{
		Name: name, VocabSize: t.VocabSize(), Pattern: t.Pattern(), Specials: []string{}, NFC: t.NFC(),
		Bytes: st.size, Created: st.mtime.UTC(), SHA256: fmt.Sprintf("%x", t.Hash()),
	}
	for id := range int32(t.VocabSize()) {
		if t.IsSpecial(id) {
			d.Specials = append(d.Specials, string(t.Token(id)))
		}
	}
	return d
}

// loadTokenizer reads a tokenizer by name, or with "model:NAME" that of a
// model.
func (s *Service) loadTokenizer(name string) (*bpe.Tokenizer, error) {
	path := ""
	if m, ok := strings.CutPrefix(name, "model:"); ok {
		p, err := s.modelPath(m)
		if err != nil {
			return nil, err
		}
		path = p
	} else {
		if err := checkName("tokenizer", name); err != nil {
			return nil, err
		}
		path = s.tokenizerPath(name)
	}
	st, err := stampOf(path)
	if err != nil {
		return nil, fail("not_found", "there is no tokenizer %q", name)
	}
	s.tokenizers.mu.Lock()
	defer s.tokenizers.mu.Unlock()
	if s.tokenizers.last != nil && s.tokenizers.from == st {
		return s.tokenizers.last, nil
	}
	t, err := readTokenizer(path)
	if err == nil {
		s.tokenizers.from, s.tokenizers.last = st, t
	}
	return t, err
}

// readTokenizer reads a tokenizer.json, or the one inside a model.
func readTokenizer(path string) (*bpe.Tokenizer, error) {
	if strings.HasSuffix(path, tokenizerExt) {
		return bpe.Load(path)
	}
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if len(f.Header.Tokenizer) == 0 {
		return nil, fail("bad_request", "the model holds no tokenizer")
	}
	return bpe.Parse(f.Header.Tokenizer)
}

// tokenizerRequest is the body of POST /api/tokenizers.
type tokenizerRequest struct {
	Name      string   `json:"name"`
	Texts     []string `json:"texts"`
	VocabSize int      `json:"vocab_size"`
	Pattern   string   `json:"pattern"`
	Specials  []string `json:"specials"`
	NFC       bool     `json:"nfc"`
	SkipBad   bool     `json:"skip_bad"`
}

func (r tokenizerRequest) check() error {
	if err := checkName("name", r.Name); err != nil {
		return err
	}
	if r.Pattern != "" && !slices.Contains(bpe.Patterns(), r.Pattern) {
		return badField("pattern", "pattern is %q, want one of %s%s", r.Pattern, strings.Join(bpe.Patterns(), ", "), nearest.Hint(r.Pattern, bpe.Patterns(), ""))
	}
	if r.VocabSize < 257+len(r.Specials) || r.VocabSize > bpe.MaxVocabSize {
		return badField("vocab_size", "vocab_size is %d, want %d to %d", r.VocabSize, 257+len(r.Specials), bpe.MaxVocabSize)
	}
	return nil
}

// trainTokenizer is POST /api/tokenizers.
func (s *Service) trainTokenizer(c *call) error {
	req := tokenizerRequest{VocabSize: 8192}
	if err := readJSON(c.r, &req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	opt := bpe.TrainOptions{VocabSize: req.VocabSize, Pattern: req.Pattern, SpecialTokens: req.Specials, NFC: req.NFC, Threads: s.opt.Threads}
	if _, err := bpe.NewTrainer(opt); err != nil {
		return fail("bad_request", "%v", err)
	}
	done, err := s.claimNew("tokenizers/"+req.Name, s.tokenizerPath(req.Name), "it is being trained")
	if err != nil {
		return err
	}
	in, release, err := s.input(c.ctx, req.Texts, "the tokenizer "+req.Name+" is being trained on it")
	if err != nil {
		done()
		return err
	}
	in.SkipBad = req.SkipBad
	return c.json(s.startJob("tokenizer", req.Name, func() { release(); done() }, func(ctx context.Context, j *job) (any, error) {
		t, err := s.learn(ctx, j, in, opt)
		if err != nil {
			return nil, err
		}
		return s.saveTokenizer(req.Name, t.JSON())
	}))
}

// learn counts the text and merges, with progress.
func (s *Service) learn(ctx context.Context, j *job, in corpus.InputOptions, opt bpe.TrainOptions) (*bpe.Tokenizer, error) {
	opt.Progress = func(p bpe.Progress) {
		s.yield(ctx)
		if p.Stage == "merge" {
			j.progress("merge", float64(p.Done), float64(p.Total), "merges/s", 1)
		}
	}
	tr, err := bpe.NewTrainer(opt)
	if err != nil {
		return nil, err
	}
	total := float64(0)
	for _, p := range in.Paths {
		total += float64(folderBytes(p))
	}
	if slices.ContainsFunc(in.Paths, func(p string) bool { return compressed(p) }) {
		total = 0 // the text is larger than its files
	}
	read := float64(0)
	stats, err := corpus.Walk(ctx, in, func(d corpus.Document) error {
		read += float64(len(d.Text))
		j.progress("read", read, max(total, min(read, total)), "MB/s", 1e6)
		s.yield(ctx)
		return tr.Add(d.Text)
	})
	if err != nil {
		return nil, err
	}
	if stats.Bytes == 0 {
		return nil, fail("bad_request", "the texts hold no text: give plain text, jsonl with a field text, or parquet")
	}
	return tr.Train(ctx)
}

// compressed reports whether a text has files that are smaller than what they
// hold.
func compressed(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		name := strings.ToLower(e.Name())
		return strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".zst") || strings.HasSuffix(name, ".parquet")
	})
}

// saveTokenizer writes a tokenizer.json and describes it.
func (s *Service) saveTokenizer(name string, json []byte) (Tokenizer, error) {
	if err := checkpoint.WriteBytesAtomic(s.tokenizerPath(name), json); err != nil {
		return Tokenizer{}, err
	}
	s.changed("tokenizers")
	return s.tokenizer(name)
}

// claimNew takes a key for something new, whose file must not be there yet, not
// even in other case.
func (s *Service) claimNew(key, path, holder string) (release func(), err error) {
	release, err = s.claims.exclusive(key, holder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		release()
		return nil, err
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), filepath.Base(path)) {
			release()
			return nil, fail("exists", "%s exists already: delete it, or choose another name", key)
		}
	}
	return release, nil
}

// putTokenizer is PUT /api/tokenizers/NAME.
func (s *Service) putTokenizer(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	release, err := s.claimNew("tokenizers/"+name, s.tokenizerPath(name), "it is being uploaded")
	if err != nil {
		return err
	}
	defer release()
	tmp, size, err := s.receive(c)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if size > maxTokenizer {
		return fail("too_large", "the file has %d bytes, a tokenizer.json has at most %d", size, maxTokenizer)
	}
	b, err := os.ReadFile(tmp)
	if err != nil {
		return err
	}
	if _, err := bpe.Parse(b); err != nil {
		return fail("bad_request", "this is no tokenizer that can be used here: %v", err)
	}
	t, err := s.saveTokenizer(name, b)
	if err != nil {
		return err
	}
	return c.json(t)
}

// maxTokenizer is the limit of an uploaded tokenizer.json; Gemma's 262,144 ids
// take 33 MB.
const maxTokenizer = 128 << 20

func (s *Service) getTokenizer(c *call) error {
	t, err := s.loadTokenizer(c.args[0])
	if err != nil {
		return err
	}
	c.Start(200, fileHeader("application/json; charset=utf-8", strings.TrimPrefix(c.args[0], "model:")+tokenizerExt, int64(len(t.JSON()))))
	c.Write(t.JSON())
	return nil
}

func (s *Service) deleteTokenizer(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	return s.deleteFile(c, "tokenizers", name, s.tokenizerPath(name))
}

// deleteFile removes the one file that something is.
func (s *Service) deleteFile(c *call, folder, name, path string) error {
	release, err := s.claims.exclusive(folder+"/"+name, "it is being deleted")
	if err != nil {
		return err
	}
	defer release()
	if err := os.Remove(path); err != nil {
		if os.IsNotExist(err) {
			return fail("not_found", "there is no %q in %s", name, folder)
		}
		return err
	}
	s.changed(folder)
	return c.noContent()
}
