package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The most that the JSON files of a folder may be long. A configuration has
// some kilobytes, an index about 100 bytes a tensor, a vocabulary some
// megabytes.
const (
	maxConfigBytes    = 1 << 20
	maxIndexBytes     = 32 << 20
	maxTokenizerBytes = 256 << 20
)

// hfPath is the path of the file name in a model's folder. A link is followed
// only where it ends in the same folder, or among the blobs of Hugging Face's
// cache, whose snapshots consist of such links: a folder from elsewhere must
// not make us read other files of this machine.
func hfPath(dir, name string) (string, error) {
	if dir == "" {
		dir = "."
	}
	path := filepath.Join(dir, name)
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	home, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	snapshots := filepath.Dir(home) // in the cache: MODEL/snapshots/REVISION beside MODEL/blobs
	cached := filepath.Base(snapshots) == "snapshots" && within(filepath.Join(filepath.Dir(snapshots), "blobs"), real)
	if !cached && !within(home, real) {
		return "", fmt.Errorf("%s is a link to %s, outside the model's folder; copy the file there", path, real)
	}
	st, err := os.Stat(real)
	if err == nil && !st.Mode().IsRegular() { // a pipe would block the open
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return path, err
}

// within reports whether path lies below dir, both without links.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel) && rel != "."
}

// readText reads a file of a model's folder whole, if it has at most limit
// bytes.
func readText(dir, name string, limit int64) ([]byte, error) {
	path, err := hfPath(dir, name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, st.Size(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// readStrict is readText for files whose keys decide: one that comes twice is an
// error, because readers differ in which of the two they take.
func readStrict(dir, name string, limit int64) ([]byte, error) {
	b, err := readText(dir, name, limit)
	if err != nil {
		return nil, err
	}
	if err := uniqueKeys(b); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return b, nil
}

// uniqueKeys refuses JSON that is not valid, and objects at any depth that
// have a key twice.
func uniqueKeys(raw []byte) error {
	if !json.Valid(raw) { // also bounds the depth
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		return fmt.Errorf("it is not valid JSON")
	}
	return walkKeys(json.NewDecoder(bytes.NewReader(raw)), "the file")
}

// walkKeys reads one value.
func walkKeys(d *json.Decoder, what string) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() && (t == json.Delim('{') || t == json.Delim('[')) {
		inner := what
		if t == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			inner = key.(string) // valid JSON has nothing else here
			if seen[inner] {
				return fmt.Errorf("%s has the key %q twice", what, inner)
			}
			seen[inner] = true
		}
		if err := walkKeys(d, inner); err != nil {
			return err
		}
	}
	if t == json.Delim('{') || t == json.Delim('[') {
		_, err = d.Token() // the closing bracket
	}
	return err
}

// chatJinja reads the chat template of a folder: the file that transformers 5
// writes, or the key of tokenizer_config.json before it, which may also be a
// list of named templates. Empty when there is none.
func chatJinja(dir string) (string, error) {
	b, err := readText(dir, jinjaName, maxConfigBytes)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return string(b), err
	}
	if b, err = readText(dir, "tokenizer_config.json", maxTokenizerBytes); errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: %w", err)
	}
	if !given(config.Template) {
		return "", nil
	}
	return pickTemplate(config.Template)
}

// pickTemplate reads a template, or of a list the one called default.
func pickTemplate(raw json.RawMessage) (string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: chat_template is %.40s…, want a text or a list of named texts", raw)
	}
	for _, t := range list {
		if strings.EqualFold(t.Name, "default") {
			return t.Template, nil
		}
	}
	return "", nil
}
