package engine

import (
	"archive/zip"
	"context"
	"os"
	"path/filepath"
	"strings"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/tensor"
)

// exportTypes are the element types of each format.
var exportTypes = map[string][]string{"llm": {"f32"}, "hf": {"f32", "f16", "bf16"}, "gguf": {"f32", "f16", "q8_0"}}

// downloadModel is GET /api/models/NAME/download?format=&type=.
func (s *Service) downloadModel(c *call) error {
	name := c.args[0]
	path, err := s.modelPath(name)
	if err != nil {
		return notFound(err)
	}
	format, typ := c.r.Query["format"], c.r.Query["type"]
	if format == "" {
		format = "llm"
	}
	if typ == "" {
		typ = "f32"
	}
	if err := checkWord("format", format, []string{"llm", "hf", "gguf"}); err != nil {
		return err
	}
	if err := checkWord("type", typ, exportTypes[format]); err != nil {
		return err
	}
	force, err := boolQuery(c.r, "force")
	if err != nil {
		return err
	}
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Header.LoRA != nil {
		return fail("busy", "the newest checkpoint of %s holds adapters alone: stop the run, which writes its model", name)
	}
	dir, err := s.tmpDir("download")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	switch format {
	case "hf":
		return s.sendHF(c, f, dir, name, typ)
	case "gguf":
		return s.sendGGUF(c, f, dir, name, typ, force)
	}
	if len(f.Moments()) == 0 {
		return sendFile(c, path, "application/octet-stream", name+modelExt)
	}
	out := filepath.Join(dir, name+modelExt)
	if err := saveWeights(f, out); err != nil {
		return err
	}
	return sendFile(c, out, "application/octet-stream", name+modelExt)
}

// saveWeights writes a checkpoint's weights without what only training needs.
func saveWeights(f *checkpoint.LLM, out string) error {
	h := f.Header
	h.State = nil
	var weights []checkpoint.Tensor
	for _, info := range f.Weights() {
		weights = append(weights, checkpoint.Tensor{Info: info, Read: func(p []byte, off int64) error { return f.ReadAt(info.Name, p, off) }})
	}
	return checkpoint.SaveLLM(out, h, weights, nil)
}

// roles names the tokens that other formats give a role.
func roles(f *checkpoint.LLM) (special checkpoint.SpecialTokens, pattern string, format *checkpoint.ChatFormat, err error) {
	if len(f.Header.Tokenizer) > 0 {
		t, err := bpe.Parse(f.Header.Tokenizer)
		if err != nil {
			return special, "", nil, err
		}
		if id := t.BOS(); id >= 0 {
			special.BOS = string(t.Token(id))
		}
		if id := t.EndOfDocument(); id >= 0 {
			special.EOS = string(t.Token(id))
		}
		pattern = t.Pattern()
	}
	if name := f.Header.ChatTemplate; name != "" {
		t, err := chat.Lookup(name)
		if err != nil {
			return special, "", nil, err
		}
		format = &checkpoint.ChatFormat{Jinja: t.Jinja(), End: t.EndText()}
	}
	return special, pattern, format, nil
}

func (s *Service) sendHF(c *call, f *checkpoint.LLM, dir, name, typ string) error {
	special, _, format, err := roles(f)
	if err != nil {
		return err
	}
	dtype, err := tensor.ParseDType(strings.ToUpper(typ))
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, name)
	if err := checkpoint.ExportHF(folder, f, checkpoint.HFOptions{Type: dtype, Special: special, Chat: format}); err != nil {
		return fail("bad_request", "%v", err)
	}
	c.Start(200, fileHeader("application/zip", name+".zip", -1))
	return zipFolder(c, folder, name, s.yield)
}

// zipFolder streams a folder as a .zip without compression: weights do not
// become smaller.
func zipFolder(c *call, folder, name string, yield func(context.Context)) error {
	z := zip.NewWriter(c)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name + "/" + e.Name(), Method: zip.Store, Modified: now()})
		if err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		_, err = copyN(c.ctx, w, f, -1, yield)
		f.Close()
		if err != nil {
			return err
		}
	}
	return z.Close()
}

func (s *Service) sendGGUF(c *call, f *checkpoint.LLM, dir, name, typ string, force bool) error {
	special, pattern, format, err := roles(f)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, name+".gguf")
	notes, err := checkpoint.ExportGGUF(out, f, checkpoint.GGUFOptions{Type: typ, Name: name, Pattern: pattern, Special: special, Chat: format, Force: force})
	if err != nil {
		return fail("bad_request", "%v", err)
	}
	for _, n := range notes {
		s.notice(name + ": " + n)
	}
	return sendFile(c, out, "application/octet-stream", name+".gguf")
}
