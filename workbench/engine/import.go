package engine

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tezgah/checkpoint"
	"tezgah/train"
)

// putModel is PUT /api/models/NAME: a .llm file, or a .zip of a Hugging Face
// folder.
func (s *Service) putModel(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	if _, err := os.Stat(s.path("runs", name)); err == nil {
		return fail("exists", "there is a run %q, and with it a model of that name: choose another", name)
	}
	release, err := s.claimNew("models/"+name, s.importedPath(name), "it is being imported")
	if err != nil {
		return err
	}
	tmp, size, err := s.receive(c)
	if err != nil {
		release()
		return err
	}
	from := cleanLabel(c.r.Query["label"])
	return c.json(s.startJob("import", name, release, func(ctx context.Context, j *job) (any, error) {
		defer os.Remove(tmp)
		j.change(true, func(v *Job) { v.Stage, v.Total, v.Unit = "check", float64(size), "B" })
		if err := s.importModel(ctx, tmp, name, from); err != nil {
			return nil, err
		}
		s.changed("models")
		return s.model(name)
	}))
}

// importModel brings the uploaded file into models/.
func (s *Service) importModel(ctx context.Context, tmp, name, label string) error {
	if z, err := zip.OpenReader(tmp); err == nil {
		defer z.Close()
		return s.importZip(ctx, z, name, label)
	}
	f, err := checkpoint.OpenLLM(tmp)
	if err != nil {
		return fmt.Errorf("the file is neither a .llm nor a .zip of a Hugging Face folder: %w", err)
	}
	err = f.Verify()
	lora := f.Header.LoRA != nil
	f.Close()
	if err != nil {
		return err
	}
	if lora {
		return errors.New("the file holds adapters alone, without the model that they belong to: bring in the run's model.llm, where the two are merged")
	}
	if _, err := train.ModelOf(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, s.importedPath(name))
}

// importZip unpacks a Hugging Face folder and converts it.
func (s *Service) importZip(ctx context.Context, z *zip.ReadCloser, name, label string) error {
	dir, err := s.tmpDir("import")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.unzip(ctx, z, dir); err != nil {
		return err
	}
	m, err := checkpoint.OpenHF(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	h, err := train.ImportHeader(m, label, "", s.opt.Version)
	if err != nil {
		return err
	}
	if err := checkpoint.SaveLLM(s.importedPath(name), h, m.Weights(), nil); err != nil {
		return err
	}
	for _, n := range m.Notes {
		s.notice(name + ": " + n)
	}
	return nil
}

// wantedEndings are the files of a Hugging Face folder that are read.
var wantedEndings = []string{".json", ".safetensors", ".jinja"}

// unzip writes the files of the folder with config.json to dir, without any
// folders: names in an archive never become paths.
func (s *Service) unzip(ctx context.Context, z *zip.ReadCloser, dir string) error {
	root, total := "", uint64(0)
	found := false
	for _, f := range z.File {
		if parent, ok := strings.CutSuffix(f.Name, "config.json"); ok && (parent == "" || strings.HasSuffix(parent, "/")) && (!found || len(parent) < len(root)) {
			root, found = parent, true
		}
		total += f.UncompressedSize64
	}
	if !found {
		return errors.New("the .zip has no config.json: pack a Hugging Face folder with config.json, model.safetensors and tokenizer.json")
	}
	limit := uint64(s.opt.MaxUpload)
	if free := s.freeDisk(); free > 0 {
		limit = min(limit, uint64(max(0, free-spareDisk)))
	}
	if total > limit {
		return fail("no_space", "the .zip unpacks to %d bytes, and there is room for %d", total, limit)
	}
	for _, f := range z.File {
		base, ok := strings.CutPrefix(f.Name, root)
		if !ok || !slices.Contains(wantedEndings, filepath.Ext(base)) || !fs.ValidPath(base) || strings.ContainsAny(base, `/\:`) {
			continue
		}
		if err := s.unzipFile(ctx, f, filepath.Join(dir, base)); err != nil {
			return err
		}
	}
	return nil
}

// unzipFile writes one file, at most as long as the archive says.
func (s *Service) unzipFile(ctx context.Context, f *zip.File, path string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = copyN(ctx, w, r, int64(f.UncompressedSize64), s.yield)
	return errors.Join(err, w.Close())
}
