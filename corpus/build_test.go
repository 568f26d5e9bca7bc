package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBuildRoundTrip(t *testing.T) {
	files := map[string]string{
		"b.txt": "second\n", "a/x.md": "first", "c.jsonl": "{\"text\":\"third\"}\n\n{\"text\":\"four\\nth\"}\n", "empty.txt": "",
		"bin.dat": "a\x00b", ".git/config": "no", "z.txt": "not utf-8: \xff\xfe",
	}
	want := []string{"first", "second\n", "third", "four\nth", "not utf-8: \xff\xfe"}
	for _, tok := range []byteTokenizer{narrow, wide} {
		dir := writeTree(t, files)
		out := filepath.Join(t.TempDir(), "o.bin")
		r, d := mustBuild(t, BuildOptions{Input: InputOptions{Paths: []string{dir}}, Tokenizer: tok, Out: out})
		if got := string(tok.decode(readAll(t, d))); got != joined(want) {
			t.Fatalf("%s: decoded %q, want %q", tok.name, got, joined(want))
		}
		if r.Documents != 5 || d.Docs() != 5 || r.Stats.Empty != 1 || r.Stats.Binary != 1 || r.Tokens != d.Len() {
			t.Fatalf("report %+v", r)
		}
		if d.TextBytes() != int64(len(joined(want))-5*len(endOfText)) {
			t.Fatalf("%d text bytes", d.TextBytes())
		}
		for i := range want {
			ids := make([]int32, len(want[i])+1)
			if n := d.DocStart(int64(i+1)) - d.DocStart(int64(i)); n != int64(len(ids)) {
				t.Fatalf("document %d has %d tokens, want %d", i, n, len(ids))
			}
			if err := d.Read(ids, d.DocStart(int64(i))); err != nil || string(tok.decode(ids)) != want[i]+endOfText {
				t.Fatalf("document %d is %q, %v", i, tok.decode(ids), err)
			}
		}
		if left, _ := filepath.Glob(out + "?*"); len(left) > 0 {
			t.Fatalf("left over: %v", left)
		}
		memory, err := BuildMemory(tok, [][]byte{[]byte(want[0]), []byte(want[1]), nil, []byte(want[2]), []byte(want[3]), []byte(want[4])})
		if file, e := os.ReadFile(out); err != nil || e != nil || !bytes.Equal(file, memory) {
			t.Fatalf("BuildMemory differs from Build: %v, %v", err, e)
		}
	}
}

// bigTree is a few megabytes of many kinds of documents, with duplicates and a long one.
func bigTree(t *testing.T) string {
	t.Helper()
	pq, _ := parquetFile(t, 300)
	files := map[string]string{"p.parquet": pq, "long.txt": prose(7, 1_500_000), "long-again.txt": prose(7, 1_500_000),
		"packed.txt.gz": gzipped(t, prose(8, 400_000))}
	var lines, split strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "{\"text\":%q}\n", strings.ToValidUTF8(prose(uint64(i%150), 3*i), ""))
		fmt.Fprintf(&split, "%s\n%s\n", prose(uint64(i%90), 2*i+1), endOfText)
		files[fmt.Sprintf("small/%03d.txt", i)] = prose(uint64(i), i)
	}
	files["lines.jsonl"] = lines.String()
	files["split.md"] = split.String()
	return writeTree(t, files)
}

// contents returns the files of a folder by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = string(b)
	}
	return m
}

func sameFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s differs (%d bytes, want %d)", what, name, len(got[name]), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s should not exist", what, name)
		}
	}
}

// variants are options whose outputs differ.
var variants = map[string]BuildOptions{
	"plain":  {},
	"all":    {ValFraction: 0.2, Seed: 3, ShardBytes: 500_000, Dedupe: true, Input: InputOptions{Split: true}},
	"dedupe": {Dedupe: true},
}

func TestBuildSameForAnyThreads(t *testing.T) {
	src := bigTree(t)
	for name, opt := range variants {
		opt.Input.Paths, opt.Tokenizer = []string{src}, narrow
		var want map[string]string
		for _, threads := range []int{1, 2, 7} {
			dir := t.TempDir()
			opt.Out, opt.Threads = filepath.Join(dir, "o.bin"), threads
			if _, err := Build(context.Background(), opt); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, dir); want == nil {
				want = got
			} else {
				sameFiles(t, fmt.Sprintf("%s with %d threads", name, threads), got, want)
			}
		}
	}
}

// TestBuildGoesOn interrupts a build again and again, by an error, by cancelling and without any chance to tidy up, and
// compares the result with that of an unbroken build.
func TestBuildGoesOn(t *testing.T) {
	src := bigTree(t)
	for name, opt := range variants {
		opt.Input.Paths, opt.Tokenizer, opt.Threads = []string{src}, narrow, 2
		plain := t.TempDir()
		opt.Out = filepath.Join(plain, "o.bin")
		whole, err := Build(context.Background(), opt)
		if err != nil {
			t.Fatal(err)
		}
		broken := t.TempDir()
		opt.Threads = 1
		opt.Out = filepath.Join(broken, "o.bin")
		var r Report
		tries := 0
		for stop := 1; ; stop++ {
			if tries++; tries > 200 {
				t.Fatal("no end")
			}
			jobs := 0
			ctx, cancel := context.WithCancel(context.Background())
			run := opt
			run.checkpoint = func(int64, time.Duration) bool { return jobs%3 != 0 }
			crashed := errors.New("crash")
			run.written = func() error {
				if jobs++; jobs <= 1+stop%4 {
					return nil
				}
				switch stop % 3 {
				case 0:
					return crashed
				case 1:
					cancel()
					return nil
				}
				return errors.New("not reached")
			}
			if stop%3 == 2 {
				r, err = Report{}, crashed
				if killedBuild(t, name, src, opt.Out, 2+stop%4) {
					r, err = whole, nil // so few jobs were left that it came to its end
					r.Resumed = true
				}
			} else {
				r, err = Build(ctx, run)
			}
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, crashed) && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if _, err := os.Stat(opt.Out); err == nil {
				t.Fatal("an unfinished file has the final name")
			}
		}
		if !r.Resumed || tries < 3 {
			t.Errorf("%s: %d tries: the test tests nothing", name, tries)
		}
		sameFiles(t, name, contents(t, broken), contents(t, plain))
		r.Elapsed, r.MBPerSec, r.Resumed, r.Path, r.ValPath = whole.Elapsed, whole.MBPerSec, whole.Resumed, whole.Path, whole.ValPath
		whole.Stats.BytesRead = r.Stats.BytesRead
		if r != whole {
			t.Errorf("%s: report %+v, want %+v", name, r, whole)
		}
	}
}

// killedBuild builds in another process, which dies without a chance to tidy up after the given number of jobs, if
// there are so many.
func killedBuild(t *testing.T, variant, src, out string, jobs int) (finished bool) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "CORPUS_TEST_KILLED_BUILD="+variant, "CORPUS_TEST_SRC="+src, "CORPUS_TEST_OUT="+out,
		"CORPUS_TEST_JOBS="+strconv.Itoa(jobs))
	b, err := cmd.CombinedOutput()
	if finished = err == nil && string(b) == "finished"; !finished && (err == nil || len(b) > 0) {
		t.Fatalf("the killed build: %v, %s", err, b)
	}
	return finished
}

func TestMain(m *testing.M) {
	name := os.Getenv("CORPUS_TEST_KILLED_BUILD")
	if name == "" {
		os.Exit(m.Run())
	}
	opt := variants[name]
	opt.Input.Paths, opt.Tokenizer, opt.Threads, opt.Out = []string{os.Getenv("CORPUS_TEST_SRC")}, narrow, 2, os.Getenv("CORPUS_TEST_OUT")
	jobs, err := strconv.Atoi(os.Getenv("CORPUS_TEST_JOBS"))
	opt.checkpoint = func(int64, time.Duration) bool { return jobs%2 == 0 }
	opt.written = func() error {
		if jobs--; jobs > 0 {
			return nil
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		time.Sleep(time.Minute)
		return err
	}
	if _, buildErr := Build(context.Background(), opt); err != nil || buildErr != nil {
		fmt.Print(err, buildErr)
		os.Exit(1)
	}
	fmt.Print("finished")
	os.Exit(0)
}

func TestBuildDedupeAndVal(t *testing.T) {
	src := bigTree(t)
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}, Split: true}, Tokenizer: narrow, Out: filepath.Join(t.TempDir(), "o.bin"),
		Dedupe: true, ValFraction: 0.3, Seed: 5}
	r, train := mustBuild(t, opt)
	val := mustOpen(t, r.ValPath, OpenOptions{})
	docs, stats := walkAll(t, opt.Input)
	distinct := map[string]int{}
	for _, d := range docs {
		distinct[d]++
	}
	seen := map[string]int{}
	for _, d := range []*Dataset{train, val} {
		for _, doc := range strings.Split(string(narrow.decode(readAll(t, d))), endOfText) {
			seen[doc]++
		}
	}
	delete(seen, "")
	// The long text is split nowhere and twice there: only whole files of any length and documents up to 256 KiB are compared.
	long := prose(7, 1_500_000)
	if seen[long] != 2 {
		t.Errorf("the long document is there %d times, want 2 in split texts", seen[long])
	}
	seen[long] = 1
	for doc, n := range seen {
		if n != 1 || distinct[doc] == 0 {
			t.Fatalf("a document of %d bytes is there %d times", len(doc), n)
		}
	}
	if len(seen) != len(distinct) {
		t.Errorf("%d documents, want %d", len(seen), len(distinct))
	}
	if r.Duplicates != stats.Documents-int64(len(distinct))-1 {
		t.Errorf("%d duplicates, want %d", r.Duplicates, stats.Documents-int64(len(distinct))-1)
	}
	share := float64(r.ValDocuments) / float64(r.Documents+r.ValDocuments)
	if share < 0.2 || share > 0.4 { // about 600 documents: 5 standard deviations are 0.1
		t.Errorf("%.2f of the documents are for validation, want about 0.3", share)
	}
	opt.Seed, opt.Out = 6, filepath.Join(t.TempDir(), "o.bin")
	other, err := Build(context.Background(), opt)
	if err != nil || other.ValTokens == r.ValTokens {
		t.Errorf("another seed makes the same split: %v", err)
	}
}

func TestBuildDropsLongDuplicateFiles(t *testing.T) {
	src := bigTree(t)
	r, _ := mustBuild(t, BuildOptions{Input: InputOptions{Paths: []string{src}, Include: []string{"long*"}}, Tokenizer: narrow,
		Out: filepath.Join(t.TempDir(), "o.bin"), Dedupe: true})
	if r.Documents != 1 || r.Duplicates != 1 || r.TextBytes != int64(len(prose(7, 1_500_000))) {
		t.Fatalf("report %+v", r)
	}
}

func TestBuildShards(t *testing.T) {
	src := bigTree(t)
	dir := t.TempDir()
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: wide, Out: filepath.Join(dir, "o.bin")}
	_, whole := mustBuild(t, opt)
	want, starts := readAll(t, whole), docStarts(whole)
	opt.ShardBytes = 300_000
	r, d := mustBuild(t, opt)
	if r.Shards < 10 || d.Shards() != r.Shards || r.Path != filepath.Join(dir, "o.manifest.json") {
		t.Fatalf("report %+v", r)
	}
	if !slices.Equal(readAll(t, d), want) || !slices.Equal(docStarts(d), starts) {
		t.Fatal("the shards have other tokens or documents than the whole")
	}
	for i := range d.Docs() {
		if d.DocAt(d.DocStart(i)) != i || d.DocAt(d.DocStart(i+1)-1) != i {
			t.Fatalf("DocAt disagrees with DocStart at document %d", i)
		}
	}
	for _, p := range d.parts {
		if len(p.data) > 300_000 {
			t.Fatalf("shard of %d bytes", len(p.data))
		}
	}
	if _, err := os.Stat(opt.Out); err == nil {
		t.Fatal("the earlier single file is still there")
	}
	mustOpen(t, opt.Out, OpenOptions{})                 // finds the manifest
	for off := int64(0); off < d.Len(); off += 74_999 { // reads across shards
		ids := make([]int32, min(5_000, d.Len()-off))
		if err := d.Read(ids, off); err != nil || !slices.Equal(ids, want[off:off+int64(len(ids))]) {
			t.Fatalf("read at %d: %v", off, err)
		}
	}
	opt.ShardBytes = 1 << 30 // back to one file: the shards and their manifest go
	mustBuild(t, opt)
	if files := contents(t, dir); len(files) != 1 || files["o.bin"] == "" {
		t.Fatalf("%d files left", len(files))
	}
}

func docStarts(d *Dataset) []int64 {
	var s []int64
	for i := range d.Docs() + 1 {
		s = append(s, d.DocStart(i))
	}
	return s
}

func TestBuildRefusals(t *testing.T) {
	src := writeTree(t, map[string]string{"a.txt": "one text", "b.jsonl": "{\"text\":\"x\"}\n{\n", "empty.txt": "", "nul": "a\x00b"})
	text := InputOptions{Paths: []string{src + "/a.txt"}}
	dir := t.TempDir()
	for want, opt := range map[string]BuildOptions{
		"no tokenizer":            {Input: text},
		"no end-of-document":      {Input: text, Tokenizer: byteTokenizer{vocab: 256}},
		"name that ends in .bin":  {Input: text, Tokenizer: narrow, Out: dir + "/tokens"},
		"does not exist":          {Input: text, Tokenizer: narrow, Out: dir + "/no/o.bin"},
		"is not a file":           {Input: text, Tokenizer: narrow, Out: dir},
		"validation fraction 1":   {Input: text, Tokenizer: narrow, Out: dir + "/o.bin", ValFraction: 1},
		"leaves 1 documents":      {Input: text, Tokenizer: narrow, Out: dir + "/o.bin", ValFraction: 1e-9},
		"leaves 0 documents":      {Input: text, Tokenizer: narrow, Out: dir + "/o.bin", ValFraction: 1 - 1e-9},
		"shard size":              {Input: text, Tokenizer: narrow, Out: dir + "/o.bin", ShardBytes: 10},
		"-1 threads":              {Input: text, Tokenizer: narrow, Out: dir + "/o.bin", Threads: -1},
		"no input":                {Tokenizer: narrow, Out: dir + "/o.bin"},
		"no text in":              {Input: InputOptions{Paths: []string{src + "/empty.txt"}}, Tokenizer: narrow, Out: dir + "/o.bin"},
		"b.jsonl:2: ":             {Input: InputOptions{Paths: []string{src + "/b.jsonl"}}, Tokenizer: narrow, Out: dir + "/kept2.bin"},
		"below its vocabulary":    {Input: InputOptions{Paths: []string{src + "/nul"}}, Tokenizer: byteTokenizer{base: -1, vocab: 256}, Out: dir + "/o.bin"},
		"standard input: format":  {Input: InputOptions{Paths: []string{"-"}, StdinFormat: "x"}, Tokenizer: narrow, Out: dir + "/o.bin"},
		"2 documents are kept in": {Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: dir + "/kept.bin"},
	} {
		_, err := Build(context.Background(), opt)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	for name := range contents(t, dir) {
		if !strings.HasPrefix(name, "kept") {
			t.Errorf("left over: %s", name)
		}
	}
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}, SkipBad: true}, Tokenizer: narrow, Out: dir + "/kept.bin"}
	if r, err := Build(context.Background(), opt); err != nil || !r.Resumed || r.Documents != 2 || r.Stats.Bad != 1 || r.Stats.Binary != 1 {
		t.Errorf("going on with SkipBad: %+v, %v", r, err)
	}
}

// TestBuildDiskFull: a write that fails for lack of space leaves the old output alone, and the build goes on when
// there is space again.
func TestBuildDiskFull(t *testing.T) {
	src, dir := bigTree(t), t.TempDir()
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(dir, "o.bin"), Threads: 1}
	if err := os.WriteFile(opt.Out, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	run := opt
	jobs := 0
	run.checkpoint = func(int64, time.Duration) bool { return true }
	run.written = func() error {
		if jobs++; jobs == 4 {
			return &os.PathError{Op: "write", Path: opt.Out + partialSuffix, Err: diskFull}
		}
		return nil
	}
	_, err := Build(context.Background(), run)
	if !isDiskFull(err) || !strings.Contains(err.Error(), "free some space") || !strings.Contains(err.Error(), "to go on") {
		t.Fatalf("got %v", err)
	}
	if b, _ := os.ReadFile(opt.Out); string(b) != "precious" {
		t.Fatal("the old file was touched")
	}
	r, err := Build(context.Background(), opt)
	if err != nil || !r.Resumed {
		t.Fatalf("%+v, %v", r, err)
	}
	mustOpen(t, opt.Out, OpenOptions{Verify: true})
}

var diskFull error = func() error {
	if runtime.GOOS == "windows" {
		return syscall.Errno(112)
	}
	return syscall.ENOSPC
}()

func TestBuildDamagedJournal(t *testing.T) {
	src := bigTree(t)
	for name, damage := range map[string]func(out string) error{
		"journal": func(out string) error { return os.WriteFile(out+".journal", []byte("{"), 0o666) },
		"partial": func(out string) error { return os.Truncate(out+partialSuffix, 300) },
		"bit": func(out string) error {
			b, err := os.ReadFile(out + partialSuffix)
			if err != nil {
				return err
			}
			b[headerBytes+10] ^= 1
			return os.WriteFile(out+partialSuffix, b, 0o666)
		},
		"options": func(out string) error { return nil },
	} {
		opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(t.TempDir(), "o.bin")}
		run := opt
		jobs := 0
		run.written = func() error {
			if jobs++; jobs == 5 {
				return errors.New("stop")
			}
			return nil
		}
		if _, err := Build(context.Background(), run); err == nil {
			t.Fatal("was not interrupted")
		}
		if err := damage(opt.Out); err != nil {
			t.Fatal(err)
		}
		opt.Dedupe = name == "options"
		var notices []string
		opt.Notice = func(s string) { notices = append(notices, s) }
		r, d := mustBuild(t, opt)
		if r.Resumed || len(notices) == 0 {
			t.Errorf("%s: resumed %v, notices %q", name, r.Resumed, notices)
		}
		docs, _ := walkAll(t, opt.Input)
		if !opt.Dedupe && string(narrow.decode(readAll(t, d))) != joined(docs) {
			t.Errorf("%s: wrong content", name)
		}
	}
}

// TestBuildPublishAgain: a crash between two renames is made good by the next run.
func TestBuildPublishAgain(t *testing.T) {
	src, dir := bigTree(t), t.TempDir()
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(dir, "o.bin"),
		ShardBytes: 400_000, ValFraction: 0.3}
	b, err := newBuilder(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	b.opt.Threads = 2
	if err := b.encode(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "o-00000.bin")
	if err := os.Rename(first+partialSuffix, first); err != nil {
		t.Fatal(err)
	}
	b.unlock()
	r, d := mustBuild(t, opt)
	if !r.Resumed || d.Len() != r.Tokens || r.Tokens == 0 {
		t.Fatalf("report %+v", r)
	}
	mustOpen(t, r.ValPath, OpenOptions{Verify: true})
	for name := range contents(t, dir) {
		if strings.HasSuffix(name, partialSuffix) || strings.HasSuffix(name, ".journal") {
			t.Errorf("left over: %s", name)
		}
	}
}

func TestBuildProgress(t *testing.T) {
	src := bigTree(t)
	var last Progress
	calls := 0
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(t.TempDir(), "o.bin"),
		Progress: func(p Progress) {
			if p.BytesRead < last.BytesRead || p.Tokens < last.Tokens {
				t.Errorf("progress goes back: %+v after %+v", p, last)
			}
			last = p
			calls++
		}}
	r, _ := mustBuild(t, opt)
	if calls < 2 || !last.Done || last.BytesRead != last.BytesTotal || last.Tokens != r.Tokens || last.ETA != 0 {
		t.Fatalf("%d calls, last %+v", calls, last)
	}
}

// TestBuildInsideItsInput: the files of the build itself are not taken for input, nor for a change of the input.
func TestBuildInsideItsInput(t *testing.T) {
	src := bigTree(t)
	want, _ := walkAll(t, InputOptions{Paths: []string{src}})
	for _, shard := range []int64{0, 2_000_000} {
		opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: filepath.Join(src, "o.bin"), ShardBytes: shard}
		run := opt
		jobs := 0
		run.written = func() error {
			if jobs++; jobs == 9 {
				return errors.New("stop")
			}
			return nil
		}
		if _, err := Build(context.Background(), run); err == nil {
			t.Fatal("was not interrupted")
		}
		r, d := mustBuild(t, opt)
		if !r.Resumed || string(narrow.decode(readAll(t, d))) != joined(want) {
			t.Errorf("shards of %d: resumed %v", shard, r.Resumed)
		}
	}
	for name, want := range map[string]bool{"o.bin": true, "o-00003.bin.partial": true, "o.val.manifest.json": true, "o.bin.journal.tmp": true,
		"o.txt": false, "o.bin.txt": false, "no.bin": false, "o-x.bin": false, "sub/o.bin": false} {
		if got := isOwnFile(filepath.Join(src, name), filepath.Join(src, "o.bin")); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestBuildLocks(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("no locks in the standard library")
	}
	out := filepath.Join(t.TempDir(), "o.bin")
	src := writeTree(t, map[string]string{"a.txt": "a"})
	opt := BuildOptions{Input: InputOptions{Paths: []string{src}}, Tokenizer: narrow, Out: out}
	b, err := newBuilder(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer b.unlock()
	if _, err := Build(context.Background(), opt); err == nil || !strings.Contains(err.Error(), "another build") {
		t.Fatalf("got %v", err)
	}
}
