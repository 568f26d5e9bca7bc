package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// InputOptions says which text to read and how. The zero value of every field but Paths is a sensible default.
type InputOptions struct {
	// Paths are files, folders (read recursively, sorted by name) and "-" for standard input, in the order in which they
	// are read.
	Paths []string
	// Include and Exclude are globs for the files in folders; a file named in Paths is always read. A pattern without
	// a slash is matched with the file's base name, one with a slash with the path below the folder, where "**" stands
	// for any number of folders. No Include means all files. Exclude wins.
	Include, Exclude []string
	// Column is the parquet column or jsonl field that holds the text. "" means text, and for jsonl then messages, then
	// prompt and completion.
	Column string
	// SkipBad counts and skips broken records (and what follows a break in a compressed file) instead of failing.
	SkipBad bool
	// Split cuts text files into documents at <|endoftext|>. Without it a text file is one document.
	Split bool
	// Stdin is read for "-"; nil means os.Stdin.
	Stdin io.Reader
	// StdinFormat is what standard input and pipes hold: "text" (also ""), "jsonl" or "parquet". Compression is detected.
	StdinFormat string
}

// format is how a file's content is cut into documents.
type format int

const (
	formatText format = iota
	formatJSONL
	formatParquet
)

// packing is how a file is compressed.
type packing int

const (
	packNone packing = iota
	packGzip
	packZstd
	packDetect // streams: by the first bytes
)

// input is one file to read.
type input struct {
	path    string // as shown in messages and used to open; "-" for standard input
	named   bool   // given by name rather than found in a folder
	stream  bool   // standard input, a pipe or a device: can be read once, and its size is not known
	format  format
	packing packing
	size    int64 // bytes on disk when listed, 0 for standard input
	modTime int64 // nanoseconds since 1970 when listed
}

// archives are files whose content is other files. They are refused by name: reading one as text would train on headers.
var archives = []string{".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".7z", ".rar", ".bz2", ".xz"}

// classify sets format and packing by the file's name.
func (in *input) classify() {
	name := strings.ToLower(filepath.Base(in.path))
	switch {
	case strings.HasSuffix(name, ".gz"):
		in.packing, name = packGzip, strings.TrimSuffix(name, ".gz")
	case strings.HasSuffix(name, ".zst"):
		in.packing, name = packZstd, strings.TrimSuffix(name, ".zst")
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		in.format = formatJSONL
	case ".parquet":
		in.format = formatParquet
	}
}

func isArchive(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	for _, suffix := range archives {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// listInputs finds the files behind opt.Paths. Version control folders (.git, .hg, .svn) are left out, as are archives
// and whatever is neither a regular file nor a link to one. Links to folders are not followed, so there are no cycles.
func listInputs(ctx context.Context, opt *InputOptions) ([]input, error) {
	if len(opt.Paths) == 0 {
		return nil, errors.New("no input: name at least one file or folder, or - for standard input")
	}
	globs, err := newFilter(opt.Include, opt.Exclude)
	if err != nil {
		return nil, err
	}
	var list []input
	for _, path := range opt.Paths {
		if list, err = listPath(ctx, list, path, opt, globs); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no files to read in %s: check the include and exclude globs",
			strings.Join(opt.Paths, ", "))
	}
	return list, nil
}

// listPath appends what one of opt.Paths stands for.
func listPath(ctx context.Context, list []input, path string, opt *InputOptions, globs *filter) ([]input, error) {
	if path == "-" {
		in, err := streamInput(path, opt)
		return append(list, in), err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("input %s: %w", path, pathCause(err))
	case info.IsDir():
		return listFolder(ctx, list, path, globs)
	case !info.Mode().IsRegular():
		in, err := streamInput(path, opt)
		return append(list, in), err
	case isArchive(path):
		return nil, fmt.Errorf("input %s is an archive, which is not read: unpack it and give the folder", path)
	}
	return append(list, newInput(path, info, true)), nil
}

// streamInput is standard input or a pipe, whose name says nothing about its content.
func streamInput(path string, opt *InputOptions) (input, error) {
	in := input{path: path, named: true, stream: true, packing: packDetect}
	switch opt.StdinFormat {
	case "", "text":
	case "jsonl":
		in.format = formatJSONL
	case "parquet":
		in.format = formatParquet
	default:
		return in, fmt.Errorf("standard input: format %q, want text, jsonl or parquet", opt.StdinFormat)
	}
	return in, nil
}

func newInput(path string, info fs.FileInfo, named bool) input {
	in := input{path: path, named: named, size: info.Size(), modTime: info.ModTime().UnixNano()}
	in.classify()
	return in
}

// listFolder appends the files below root, sorted by their path with / between the parts.
func listFolder(ctx context.Context, list []input, root string, globs *filter) ([]input, error) {
	first := len(list)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("input %s: %w", path, pathCause(err))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (isVersionControl(d.Name()) || globs.excludes(rel)) {
				return filepath.SkipDir
			}
			return nil
		}
		if isArchive(path) || !globs.match(rel) {
			return nil
		}
		info, err := os.Stat(path) // follows a link to a file
		if err != nil || !info.Mode().IsRegular() {
			return nil // a dangling link, a socket, a link to a folder
		}
		list = append(list, newInput(path, info, false))
		return nil
	})
	found := list[first:]
	sort.Slice(found, func(i, j int) bool { return filepath.ToSlash(found[i].path) < filepath.ToSlash(found[j].path) })
	return list, err
}

func isVersionControl(name string) bool { return name == ".git" || name == ".hg" || name == ".svn" }

// pathCause takes the path out of an error of package os, for messages that name it already.
func pathCause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
