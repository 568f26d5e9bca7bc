package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// manifestFormat begins every manifest.
const manifestFormat = "tezgah-shards"

// manifest lists the shards of a token file that is cut into several: F.manifest.json.
type manifest struct {
	Format    string          `json:"format"`
	Version   int             `json:"version"`
	VocabSize int             `json:"vocab_size"`
	Tokenizer string          `json:"tokenizer_sha256"`
	Tokens    int64           `json:"tokens"`
	Documents int64           `json:"documents"`
	TextBytes int64           `json:"text_bytes"`
	Shards    []manifestShard `json:"shards"`
}

type manifestShard struct {
	File      string `json:"file"` // in the manifest's folder
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"` // of the whole file
	Tokens    int64  `json:"tokens"`
	Documents int64  `json:"documents"`
}

// parseManifest reads and checks a manifest.
func parseManifest(b []byte) (*manifest, error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("broken manifest: %w", err)
	}
	if m.Format != manifestFormat || m.Version != version {
		return nil, fmt.Errorf("format %q version %d, want %q version %d", m.Format, m.Version, manifestFormat, version)
	}
	if len(m.Shards) == 0 {
		return nil, errors.New("manifest without shards")
	}
	var tokens, docs int64
	for i, s := range m.Shards {
		if s.File == "" || s.File != filepath.Base(s.File) || s.File == "." || s.File == ".." {
			return nil, fmt.Errorf("shard %d is %q, want the name of a file in the manifest's folder", i, s.File)
		}
		if s.Tokens < 0 || s.Documents < 0 || s.Tokens > 1<<58 || s.Documents > s.Tokens {
			return nil, fmt.Errorf("shard %s has %d tokens in %d documents", s.File, s.Tokens, s.Documents)
		}
		if tokens += s.Tokens; tokens > 1<<58 {
			return nil, fmt.Errorf("%d tokens are too many", tokens)
		}
		docs += s.Documents
	}
	if tokens != m.Tokens || docs != m.Documents {
		return nil, fmt.Errorf("its shards have %d tokens in %d documents, want %d in %d", tokens, docs, m.Tokens, m.Documents)
	}
	return &m, nil
}

// hashFile returns the SHA-256 of a file.
func hashFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}
