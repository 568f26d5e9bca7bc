package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// journal describes an unfinished build: F.bin.journal beside F.bin.partial. Everything it says was synced to disk
// before it was written, so a build that was killed goes on from it.
type journal struct {
	Version     int          `json:"version"`
	Fingerprint string       `json:"fingerprint"` // of inputs, options and tokenizer
	Position    position     `json:"position"`
	Stats       WalkStats    `json:"stats"`
	Duplicates  int64        `json:"duplicates"`
	Doc         docState     `json:"doc"`
	Train       []shardState `json:"train"`
	Val         []shardState `json:"val,omitempty"`
	Complete    bool         `json:"complete"` // everything is written; only the renaming is left
}

// docState is what was decided about the document being written, which may come in pieces.
type docState struct {
	Drop bool `json:"drop"` // it is left out as a duplicate
	Val  bool `json:"val"`  // it goes to the validation part
}

const journalVersion = 1

// fingerprint hashes everything that decides the bytes of the output. Files count by path, size and time of change.
// SkipBad is not among it: what was written before the first broken record is the same with and without.
func fingerprint(opt *BuildOptions, list []input) string {
	type file struct {
		Path          string
		Size, ModTime int64
	}
	key := struct {
		Version, Piece   int
		Tokenizer        [32]byte
		Include, Exclude []string
		Column           string
		Split, Dedupe    bool
		ValFraction      float64
		Seed             uint64
		ShardBytes       int64
		Files            []file
	}{
		journalVersion, buildPiece, TokenizerHash(opt.Tokenizer.JSON()), opt.Input.Include, opt.Input.Exclude,
		opt.Input.Column, opt.Input.Split, opt.Dedupe, opt.ValFraction, opt.Seed, opt.ShardBytes, nil,
	}
	for _, in := range list {
		key.Files = append(key.Files, file{in.path, in.size, in.modTime})
	}
	h := sha256.New()
	json.NewEncoder(h).Encode(key) // a hash takes any write, and the struct has nothing that JSON lacks
	return hex.EncodeToString(h.Sum(nil))
}

// readJournal returns nil when there is none.
func readJournal(path string) (*journal, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("broken journal: %w", err)
	}
	if j.Version != journalVersion {
		return nil, fmt.Errorf("journal version %d, want %d", j.Version, journalVersion)
	}
	return &j, nil
}

func (j *journal) save(path string) error {
	b, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	return writeFileAtomic(path, b)
}

// writeFileAtomic writes a file under a temporary name, syncs it and renames it, so that path holds the old or the new
// content and never a part.
func writeFileAtomic(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncFolder(filepath.Dir(path))
}
