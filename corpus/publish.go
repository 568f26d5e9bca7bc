package corpus

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// single tells that the whole output is one file, named without a shard number.
func (o *output) single() bool { return len(o.sealed) == 1 }

// published is the path under which the output is opened.
func (o *output) published() string {
	if o.single() {
		return o.path()
	}
	return o.manifestPath()
}

// publish renames the sealed shards to their names and writes the manifest. Files that were renamed by an earlier call
// are left as they are.
func (o *output) publish(threads int) error {
	if o.single() {
		return o.publishFile()
	}
	m, err := o.manifest(threads)
	if err != nil {
		return err
	}
	for _, s := range o.sealed {
		if err := renamePartial(filepath.Join(o.dir, s.Name), filepath.Join(o.dir, s.Name)); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err := o.removeOldShards(m); err != nil {
		return err
	}
	if err := writeFileAtomic(o.manifestPath(), append(b, '\n')); err != nil {
		return err
	}
	return removeIfThere(o.path()) // an earlier build in one file would hide the manifest
}

func (o *output) publishFile() error {
	if err := renamePartial(filepath.Join(o.dir, o.sealed[0].Name), o.path()); err != nil {
		return err
	}
	if err := o.removeOldShards(nil); err != nil {
		return err
	}
	if err := removeIfThere(o.manifestPath()); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(o.path()))
}

// renamePartial renames from.partial to path, unless that was done before.
func renamePartial(from, path string) error {
	err := os.Rename(from+partialSuffix, path)
	if errors.Is(err, os.ErrNotExist) {
		if _, e := os.Stat(path); e == nil {
			return nil
		}
	}
	return err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeOldShards removes the shards that an earlier build of this output listed and the new one does not overwrite.
func (o *output) removeOldShards(m *manifest) error {
	b, err := os.ReadFile(o.manifestPath())
	if err != nil {
		return nil // there was none
	}
	old, err := parseManifest(b)
	if err != nil {
		return nil // not ours to judge
	}
	keep := map[string]bool{}
	if m != nil {
		for _, s := range m.Shards {
			keep[s.File] = true
		}
	}
	for i, s := range old.Shards {
		if s.File == fmt.Sprintf("%s-%05d.bin", o.base, i) && !keep[s.File] {
			if err := removeIfThere(filepath.Join(o.dir, s.File)); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifest hashes the shards, several at a time.
func (o *output) manifest(threads int) (*manifest, error) {
	hash := TokenizerHash(o.tokenizer.JSON())
	m := &manifest{Format: manifestFormat, Version: version, VocabSize: o.tokenizer.VocabSize(),
		Tokenizer: hex.EncodeToString(hash[:]), Shards: make([]manifestShard, len(o.sealed))}
	m.Tokens, m.Documents, m.TextBytes = o.totals()
	errs := make([]error, len(o.sealed))
	slots := make(chan struct{}, max(1, threads))
	var wg sync.WaitGroup
	for i, s := range o.sealed {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			path := filepath.Join(o.dir, s.Name)
			if _, err := os.Stat(path + partialSuffix); err == nil {
				path += partialSuffix
			}
			e := manifestShard{File: s.Name, Tokens: s.Tokens, Documents: s.Docs}
			e.SHA256, e.Bytes, errs[i] = hashFile(path)
			m.Shards[i] = e
		})
	}
	wg.Wait()
	return m, errors.Join(errs...)
}
