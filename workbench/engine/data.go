package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tezgah/corpus"
)

// Data is a token file as the page lists it.
type Data struct {
	Name      string    `json:"name"`
	Tokens    int64     `json:"tokens"`
	Documents int64     `json:"documents"`
	Bytes     int64     `json:"bytes"`
	TextBytes int64     `json:"text_bytes"`
	VocabSize int       `json:"vocab_size"`
	Tokenizer string    `json:"tokenizer_sha256"`
	Created   time.Time `json:"created"`
}

// dataFiles remembers what token files hold.
type dataFiles struct {
	mu    sync.Mutex
	known map[stamp]Data
}

const dataExt = ".bin"

func (s *Service) dataPath(name string) string { return s.path("data", name+dataExt) }

func (s *Service) listData(c *call) error {
	names, err := s.names("data", dataExt)
	if err != nil {
		return err
	}
	list := []Data{}
	for _, name := range names {
		if d, err := s.data(name); err == nil {
			list = append(list, d)
		}
	}
	return c.json(list)
}

// data describes a token file.
func (s *Service) data(name string) (Data, error) {
	if err := checkName("data", name); err != nil {
		return Data{}, err
	}
	st, err := stampOf(s.dataPath(name))
	if err != nil {
		return Data{}, badField("data", "there is no token file %q", name)
	}
	s.dataFiles.mu.Lock()
	defer s.dataFiles.mu.Unlock()
	if d, ok := s.dataFiles.known[st]; ok {
		return d, nil
	}
	d, err := readData(name, st)
	if err == nil {
		s.dataFiles.known[st] = d
	}
	return d, err
}

func readData(name string, st stamp) (Data, error) {
	f, err := corpus.Open(st.path, corpus.OpenOptions{})
	if err != nil {
		return Data{}, err
	}
	defer f.Close()
	return Data{
		Name: name, Tokens: f.Len(), Documents: f.Docs(), Bytes: st.size, TextBytes: f.TextBytes(),
		VocabSize: f.VocabSize(), Tokenizer: fmt.Sprintf("%x", f.TokenizerHash()), Created: st.mtime.UTC(),
	}, nil
}

// dataRequest is the body of POST /api/data.
type dataRequest struct {
	Name      string   `json:"name"`
	Texts     []string `json:"texts"`
	Tokenizer string   `json:"tokenizer"`
	Split     bool     `json:"split"`
	Dedupe    bool     `json:"dedupe"`
	SkipBad   bool     `json:"skip_bad"`
}

// buildData is POST /api/data.
func (s *Service) buildData(c *call) error {
	var req dataRequest
	if err := readJSON(c.r, &req); err != nil {
		return err
	}
	if err := checkName("name", req.Name); err != nil {
		return err
	}
	t, err := s.loadTokenizer(req.Tokenizer)
	if err != nil {
		return err
	}
	done, err := s.claimNew("data/"+req.Name, s.dataPath(req.Name), "it is being built")
	if err != nil {
		return err
	}
	in, release, err := s.input(c.ctx, req.Texts, "the token file "+req.Name+" is being built from it")
	if err != nil {
		done()
		return err
	}
	in.Split, in.SkipBad = req.Split, req.SkipBad
	opt := corpus.BuildOptions{Input: in, Tokenizer: t, Dedupe: req.Dedupe, Threads: s.opt.Threads, Notice: s.notice}
	return c.json(s.startJob("data", req.Name, func() { release(); done() }, func(ctx context.Context, j *job) (any, error) {
		return s.build(ctx, j, req.Name, opt)
	}))
}

// build writes a token file beside its place and moves it there when it is
// whole.
func (s *Service) build(ctx context.Context, j *job, name string, opt corpus.BuildOptions) (any, error) {
	dir, err := s.tmpDir("data")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	opt.Out = filepath.Join(dir, name+dataExt)
	opt.Progress = func(p corpus.Progress) {
		s.yield(ctx)
		j.change(p.Done, func(v *Job) {
			v.Stage, v.Done, v.Total = "encode", float64(p.BytesRead), float64(p.BytesTotal)
			v.Rate, v.Unit, v.ETA = p.MBPerSec, "MB/s", p.ETA.Seconds()
		})
	}
	rep, err := corpus.Build(ctx, opt)
	if err != nil {
		return nil, err
	}
	if rep.Tokens == 0 {
		return nil, errors.New("the texts hold no text: give plain text, jsonl with a field text, or parquet")
	}
	if err := os.Rename(opt.Out, s.dataPath(name)); err != nil {
		return nil, err
	}
	s.changed("data")
	return s.data(name)
}

// putData is PUT /api/data/NAME: a .bin file from elsewhere.
func (s *Service) putData(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	release, err := s.claimNew("data/"+name, s.dataPath(name), "it is being uploaded")
	if err != nil {
		return err
	}
	defer release()
	tmp, _, err := s.receive(c)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	f, err := corpus.Open(tmp, corpus.OpenOptions{Verify: true})
	if err != nil {
		return fail("bad_request", "this is no token file: %v", err)
	}
	f.Close()
	if err := os.Rename(tmp, s.dataPath(name)); err != nil {
		return err
	}
	s.changed("data")
	d, err := s.data(name)
	if err != nil {
		return err
	}
	return c.json(d)
}

func (s *Service) getData(c *call) error {
	if _, err := s.data(c.args[0]); err != nil {
		return notFound(err)
	}
	release, err := s.claims.share("it is being downloaded", "data/"+c.args[0])
	if err != nil {
		return err
	}
	defer release()
	return sendFile(c, s.dataPath(c.args[0]), "application/octet-stream", c.args[0]+dataExt)
}

// notFound is what a missing thing is when it is asked for by path, rather than
// named in a setting.
func notFound(err error) error {
	e := *asAPI(err)
	if e.Code == "bad_request" {
		e.Code, e.Field = "not_found", ""
	}
	return &e
}

func (s *Service) deleteData(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	return s.deleteFile(c, "data", name, s.dataPath(name))
}
