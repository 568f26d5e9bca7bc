package corpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// BuildOptions says what Build reads and writes.
type BuildOptions struct {
	Input     InputOptions
	Tokenizer Tokenizer
	// Out is the token file, with a name that ends in .bin.
	Out string
	// ValFraction of the documents, between 0 and 1, go to F.val.bin instead, chosen by a hash of the document's first
	// 256 KiB and Seed: equal documents always land on the same side.
	ValFraction float64
	Seed        uint64
	// ShardBytes limits the token data of a file; more goes to F-00000.bin, F-00001.bin … with F.manifest.json. 0 means
	// one file.
	ShardBytes int64
	// Threads that parse and encode; 0 means one for each processor. The output does not depend on it.
	Threads int
	// Dedupe leaves out documents that were seen before, byte for byte (by a 128-bit hash). Documents over 256 KiB
	// that come out of split text files or standard input are always kept.
	Dedupe bool
	// Restart forgets an interrupted build of the same output instead of going on with it.
	Restart bool
	// Progress is called a few times a second and once at the end, Notice with single lines for the user. Both may be
	// nil and are called from Build's goroutine.
	Progress func(Progress)
	Notice   func(string)

	checkpoint func(written int64, since time.Duration) bool // for tests; when to save the journal
	written    func() error                                  // for tests; called after every job
}

// Progress is how far a build is.
type Progress struct {
	BytesRead, BytesTotal        int64 // of input files as they are on disk; total 0: unknown
	TextBytes, Tokens, Documents int64
	Elapsed, ETA                 time.Duration // of this run; ETA 0: unknown
	MBPerSec                     float64       // text encoded by this run, in 10^6 bytes a second
	Done                         bool
}

// Report is what a build made.
type Report struct {
	Path         string        `json:"path"`               // of the token file or the manifest
	ValPath      string        `json:"val_path,omitempty"` // "" without validation part
	Stats        WalkStats     `json:"input"`
	Tokens       int64         `json:"tokens"`
	ValTokens    int64         `json:"val_tokens"`
	Documents    int64         `json:"documents"`
	ValDocuments int64         `json:"val_documents"`
	Duplicates   int64         `json:"duplicates"`
	TextBytes    int64         `json:"text_bytes"`
	ValTextBytes int64         `json:"val_text_bytes"`
	Shards       int           `json:"shards"`
	ValShards    int           `json:"val_shards"`
	Resumed      bool          `json:"resumed"` // went on with an interrupted build
	Elapsed      time.Duration `json:"elapsed_ns"`
	MBPerSec     float64       `json:"mb_per_sec"` // text encoded by this run, in 10^6 bytes a second
}

// buildPiece is the size of the pieces that long texts are cut into. It is part of the output: a document longer than
// this may be cut between shards, and its first piece decides whether it is for validation.
const buildPiece = 256 << 10

// Build reads text and writes a token file. Documents end with the end-of-document token. The files appear under their
// names when they are complete, by renaming; until then there are F.bin.partial and F.bin.journal, with which a later
// call with the same inputs and options goes on. That holds after a crash, a cancelled ctx and a full disk; standard
// input cannot be read twice and starts again. The output is the same bytes whatever the number of threads and
// interruptions. Memory stays within a few hundred megabytes (16 bytes a document more with Dedupe).
func Build(ctx context.Context, opt BuildOptions) (Report, error) {
	b, err := newBuilder(ctx, opt)
	if err != nil {
		return Report{}, fmt.Errorf("data build: %w", err)
	}
	defer b.unlock()
	if err := b.run(ctx); err != nil {
		return Report{}, fmt.Errorf("data build: %w", err)
	}
	return b.report(), nil
}

// builder is a running build.
type builder struct {
	opt        BuildOptions
	list       []input
	journal    journal
	resumable  bool // no standard input
	resumed    bool
	train, val *output // val nil without validation part
	seen       hashSet
	stream     *stream
	unlock     func()

	start, saved, shown time.Time
	dirty               bool  // a record is written in part: the journal must not be saved
	written             int64 // token bytes since the journal was saved
	sealed              int   // shards sealed when the journal was saved
	textBefore          int64 // text bytes of earlier runs
	readBefore          int64 // file bytes skipped because an earlier run read them
	total               int64
}

func newBuilder(ctx context.Context, opt BuildOptions) (*builder, error) {
	if err := checkBuild(&opt); err != nil {
		return nil, err
	}
	b := &builder{opt: opt, start: time.Now(), resumable: true}
	var err error
	if b.list, err = listInputs(ctx, &b.opt.Input); err != nil {
		return nil, err
	}
	b.list = slices.DeleteFunc(b.list, func(in input) bool { return !in.named && isOwnFile(in.path, opt.Out) })
	for i := range b.list {
		b.total += b.list[i].size
		if b.list[i].stream {
			b.resumable = false
		}
	}
	if !b.resumable {
		b.total = 0
	}
	if b.unlock, err = lockOutput(opt.Out + ".lock"); err != nil {
		return nil, fmt.Errorf("output %s: %w", opt.Out, pathCause(err))
	}
	if err := b.prepare(); err != nil {
		b.unlock()
		return nil, err
	}
	return b, nil
}

// isOwnFile tells whether a file that was found in a folder is the output of this build, an earlier one of the same
// name, or one of its temporary files.
func isOwnFile(path, out string) bool {
	dir, name := filepath.Split(path)
	outDir, outName := filepath.Split(out)
	base, ok := strings.CutPrefix(name, strings.TrimSuffix(outName, ".bin"))
	if !ok || !ownSuffix.MatchString(base) {
		return false
	}
	a, errA := filepath.Abs(dir)
	b, errB := filepath.Abs(outDir)
	return errA == nil && errB == nil && a == b
}

// ownSuffix matches what follows F in the names of files that a build of F.bin makes.
var ownSuffix = regexp.MustCompile(`^(\.val)?(-\d{5,})?(\.bin|\.manifest\.json)(\.docs)?(\.partial|\.journal|\.lock|\.tmp|\.journal\.tmp)?$`)

func checkBuild(opt *BuildOptions) error {
	t := opt.Tokenizer
	switch {
	case t == nil:
		return errors.New("no tokenizer")
	case t.VocabSize() < 1:
		return fmt.Errorf("tokenizer with %d ids", t.VocabSize())
	case t.EndOfDocument() < 0 || int(t.EndOfDocument()) >= t.VocabSize():
		return errors.New("the tokenizer has no end-of-document token: train it with the special token <|endoftext|>")
	case len(t.JSON()) > maxTokenizerBytes:
		return fmt.Errorf("tokenizer.json has %d bytes, want at most %d", len(t.JSON()), maxTokenizerBytes)
	case !(opt.ValFraction >= 0 && opt.ValFraction < 1):
		return fmt.Errorf("validation fraction %v, want at least 0 and less than 1", opt.ValFraction)
	case opt.ShardBytes < 0 || opt.ShardBytes > 0 && opt.ShardBytes < 4096:
		return fmt.Errorf("shard size of %d bytes, want at least 4096 or 0 for one file", opt.ShardBytes)
	case opt.Threads < 0:
		return fmt.Errorf("%d threads, want at least 1, or 0 for all processors", opt.Threads)
	}
	if opt.Threads == 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
	if info, err := os.Stat(opt.Out); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("output %s exists and is not a file", opt.Out)
	}
	dir := filepath.Dir(opt.Out)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("output folder %s does not exist: create it first", dir)
	}
	return nil
}

func (b *builder) journalPath() string { return b.opt.Out + ".journal" }

// prepare opens the outputs, new or as an earlier run left them.
func (b *builder) prepare() error {
	old, err := readJournal(b.journalPath())
	print := fingerprint(&b.opt, b.list)
	switch {
	case err != nil:
		b.notice("starting again: %v", err)
	case old == nil:
	case b.opt.Restart:
		b.notice("starting again, as asked")
	case !b.resumable || old.Fingerprint != print || old.Stats.Bad > 0 && !b.opt.Input.SkipBad:
		b.notice("an interrupted build of other inputs or options is discarded")
	default:
		if err = b.restore(old); err == nil {
			return nil
		}
		b.notice("starting again, the interrupted build can't be used: %v", err)
	}
	if old != nil {
		b.removePartials(old)
	}
	b.journal = journal{Version: journalVersion, Fingerprint: print}
	return b.newOutputs()
}

// removePartials removes the files and the journal of an interrupted build that is discarded.
func (b *builder) removePartials(old *journal) {
	for _, s := range slices.Concat(old.Train, old.Val) {
		path := filepath.Join(filepath.Dir(b.opt.Out), filepath.Base(s.Name))
		os.Remove(path + partialSuffix)
		os.Remove(path + ".docs" + partialSuffix)
	}
	os.Remove(b.journalPath())
}

func (b *builder) newOutputs() error {
	var err error
	if b.train, err = newOutput(b.opt.Out, b.opt.Tokenizer, b.opt.ShardBytes); err != nil {
		return err
	}
	b.val = nil
	if b.opt.ValFraction > 0 {
		b.val, err = newOutput(valPath(b.opt.Out), b.opt.Tokenizer, b.opt.ShardBytes)
	}
	return err
}

func valPath(out string) string { return strings.TrimSuffix(out, ".bin") + ".val.bin" }

func (b *builder) outputs() []*output {
	if b.val == nil {
		return []*output{b.train}
	}
	return []*output{b.train, b.val}
}

func (b *builder) restore(old *journal) error {
	if err := b.newOutputs(); err != nil {
		return err
	}
	if old.Complete {
		b.journal, b.resumed = *old, true
		b.train.sealed = old.Train
		if b.val != nil {
			b.val.sealed = old.Val
		}
		return nil
	}
	err := b.train.restore(old.Train)
	if err == nil && b.val != nil {
		err = b.val.restore(old.Val)
	}
	if err != nil {
		for _, o := range b.outputs() {
			o.abandon(false)
		}
		return err
	}
	b.journal, b.resumed = *old, true
	b.textBefore = old.Stats.Bytes
	b.sealed = len(b.train.sealed)
	if b.val != nil {
		b.sealed += len(b.val.sealed)
	}
	b.notice("going on after %d documents, %.1f MB of text", old.Stats.Documents, float64(old.Stats.Bytes)/1e6)
	return nil
}

func (b *builder) notice(format string, args ...any) {
	if b.opt.Notice != nil {
		b.opt.Notice(fmt.Sprintf(format, args...))
	}
}

func (b *builder) run(ctx context.Context) error {
	if !b.journal.Complete {
		if err := b.encode(ctx); err != nil {
			return b.interrupted(err)
		}
		if err := b.finish(); err != nil {
			return err
		}
	}
	if err := b.publish(); err != nil {
		return fmt.Errorf("%w; run the same command again to finish", diskError(err))
	}
	b.progress(true)
	return nil
}
