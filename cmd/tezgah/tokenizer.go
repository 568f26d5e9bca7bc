package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/train"
)

func newTokenizer() *cobra.Command {
	return group("tokenizer", "Train a tokenizer, encode and decode text",
		newTokenizerTrain(), newTokenizerEncode(), newTokenizerDecode(), newTokenizerInspect())
}

// inputFlags choose text files.
type inputFlags struct {
	corpus.InputOptions
}

func (f *inputFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.Include, "include", nil, "only files that match one of these globs (\"*.go\")")
	fl.StringSliceVar(&f.Exclude, "exclude", nil, "leave out files that match one of these globs")
	fl.StringVar(&f.Column, "column", "", "field of jsonl or column of parquet that holds the text (default text)")
	fl.BoolVar(&f.SkipBad, "skip-bad", false, "count broken records and go on")
	fl.BoolVar(&f.Split, "split", false, "split text files at <|endoftext|>")
}

func (f *inputFlags) options(paths []string) corpus.InputOptions {
	o := f.InputOptions
	o.Paths = paths
	o.Stdin = os.Stdin
	return o
}

type tokenizerTrainFlags struct {
	inputFlags
	opt  bpe.TrainOptions
	out  string
	json bool
}

func newTokenizerTrain() *cobra.Command {
	var f tokenizerTrainFlags
	cmd := &cobra.Command{
		Use:   "train --vocab-size N --out F.json PATH…",
		Short: "Learn a byte-level BPE vocabulary from text files and folders",
		Args:  atLeastOne("files or folders of text"),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	fl := cmd.Flags()
	fl.IntVar(&f.opt.VocabSize, "vocab-size", 32768, "ids in all, special tokens included (at most 131072)")
	fl.StringVar(&f.opt.Pattern, "pattern", "llama3", "how text is cut before merging: "+strings.Join(bpe.Patterns(), ", "))
	fl.StringSliceVar(&f.opt.SpecialTokens, "special", []string{"<|endoftext|>"}, "special tokens")
	fl.IntVar(&f.opt.MinPairCount, "min-count", 2, "do not merge pairs that occur less often")
	fl.IntVar(&f.opt.MaxTokenBytes, "max-token-bytes", 0, "longest token; 0 is no limit")
	fl.BoolVar(&f.opt.NFC, "nfc", false, "bring text to Unicode normalisation form C")
	fl.IntVar(&f.opt.Threads, "threads", 0, "0 is all cores; the result does not depend on it")
	fl.StringVar(&f.out, "out", "tokenizer.json", "file to write")
	fl.BoolVar(&f.json, "json", false, "print a JSON line at the end")
	f.inputFlags.register(cmd)
	return cmd
}

func (f *tokenizerTrainFlags) run(ctx context.Context, paths []string) error {
	if err := checkWord("pattern", f.opt.Pattern, bpe.Patterns()); err != nil {
		return err
	}
	if f.opt.VocabSize < 1 {
		return usagef("--vocab-size is %d, want 300 to %d", f.opt.VocabSize, bpe.MaxVocabSize)
	}
	begin := time.Now()
	t, stats, err := trainTokenizer(ctx, f.opt, f.options(paths), newStatusLine(f.json))
	if err != nil {
		return err
	}
	if err := saveTokenizer(f.out, t); err != nil {
		return err
	}
	if f.json {
		return printJSON(map[string]any{
			"path": f.out, "vocab_size": t.VocabSize(), "documents": stats.Documents,
			"bytes": stats.Bytes, "seconds": time.Since(begin).Seconds(),
		})
	}
	fmt.Printf("%s: %s ids from %s documents, %s, in %s\n", f.out, count(t.VocabSize()), count(stats.Documents),
		formatBytes(stats.Bytes), shortTime(time.Since(begin)))
	if t.VocabSize() < f.opt.VocabSize {
		fmt.Printf("note: the text has no more pairs to merge, so there are fewer ids than the %s asked for\n", count(f.opt.VocabSize))
	}
	return nil
}

// trainTokenizer learns a tokenizer from text, showing progress.
func trainTokenizer(ctx context.Context, opt bpe.TrainOptions, in corpus.InputOptions, status *statusLine) (*bpe.Tokenizer, corpus.WalkStats, error) {
	begin := time.Now()
	opt.Progress = func(p bpe.Progress) {
		if p.Stage == "merge" {
			eta := time.Duration(0)
			if p.Done > 0 {
				eta = time.Since(begin) * time.Duration(p.Total-p.Done) / time.Duration(p.Done)
			}
			status.set("tokenizer: %s of %s ids, %s left", count(p.Done), count(p.Total), shortTime(eta))
		} else {
			status.set("tokenizer: counting, %s", formatBytes(p.Done))
		}
	}
	defer status.clear()
	tr, err := bpe.NewTrainer(opt)
	if err != nil {
		return nil, corpus.WalkStats{}, usageError{err}
	}
	stats, err := corpus.Walk(ctx, in, func(d corpus.Document) error { return tr.Add(d.Text) })
	if err != nil {
		return nil, stats, err
	}
	if stats.Bytes == 0 {
		return nil, stats, fmt.Errorf("no text found in %s: give text, markdown, source, jsonl or parquet files, or folders of them", strings.Join(in.Paths, ", "))
	}
	begin = time.Now()
	t, err := tr.Train(ctx)
	return t, stats, err
}

func saveTokenizer(path string, t *bpe.Tokenizer) error {
	return checkpoint.WriteFileAtomic(path, func(w io.Writer) error {
		_, err := w.Write(t.JSON())
		return err
	})
}

func newTokenizerEncode() *cobra.Command {
	var tokenizer string
	var asJSON, specials bool
	cmd := &cobra.Command{
		Use:   "encode --tokenizer F.json [FILE]",
		Short: "Print the ids of a text (standard input without FILE)",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := loadTokenizer(tokenizer)
			if err != nil {
				return err
			}
			text, err := readInput(args)
			if err != nil {
				return err
			}
			var ids []int32
			if specials {
				ids = t.EncodeWithSpecials(nil, text)
			} else {
				ids = t.Encode(nil, text)
			}
			if asJSON {
				return printJSON(ids)
			}
			w := bufio.NewWriter(os.Stdout)
			for i, id := range ids {
				if i > 0 {
					w.WriteByte(' ')
				}
				w.WriteString(strconv.Itoa(int(id)))
			}
			w.WriteByte('\n')
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&tokenizer, "tokenizer", "tokenizer.json", "tokenizer.json, a .llm model or a .bin token file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	cmd.Flags().BoolVar(&specials, "specials", false, "recognise special tokens in the text")
	return cmd
}

func newTokenizerDecode() *cobra.Command {
	var tokenizer string
	cmd := &cobra.Command{
		Use:   "decode --tokenizer F.json [ID…]",
		Short: "Print the text of ids (read from standard input without arguments)",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := loadTokenizer(tokenizer)
			if err != nil {
				return err
			}
			words := args
			if len(words) == 0 {
				b, err := io.ReadAll(os.Stdin)
				if err != nil {
					return err
				}
				words = strings.FieldsFunc(string(b), func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) })
			}
			ids := make([]int32, len(words))
			for i, w := range words {
				id, err := strconv.ParseInt(w, 10, 32)
				if err != nil || id < 0 || int(id) >= t.VocabSize() {
					return fmt.Errorf("%q is not an id of this tokenizer, want 0 to %d", w, t.VocabSize()-1)
				}
				ids[i] = int32(id)
			}
			_, err = os.Stdout.Write(t.Decode(ids))
			return err
		},
	}
	cmd.Flags().StringVar(&tokenizer, "tokenizer", "tokenizer.json", "tokenizer.json, a .llm model or a .bin token file")
	return cmd
}

func newTokenizerInspect() *cobra.Command {
	var text string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect F.json [FILE]",
		Short: "Describe a tokenizer, and how it cuts a text",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := loadTokenizer(args[0])
			if err != nil {
				return err
			}
			sample := []byte(text)
			if len(args) == 2 {
				if sample, err = readInput(args[1:]); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(inspectJSON(t, sample))
			}
			printTokenizer(t, sample)
			return nil
		},
	}
	cmd.Flags().StringVar(&text, "text", "", "text to cut")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func inspectJSON(t *bpe.Tokenizer, text []byte) map[string]any {
	out := map[string]any{
		"vocab_size": t.VocabSize(), "pattern": t.Pattern(), "nfc": t.NFC(), "merges": len(t.Merges()),
		"end_of_document": t.EndOfDocument(), "hash": fmt.Sprintf("%x", t.Hash()),
	}
	if len(text) > 0 {
		s := bpe.Inspect(t, text)
		var longest []string
		for _, l := range s.Longest {
			longest = append(longest, string(l))
		}
		out["text"] = map[string]any{
			"bytes": s.Bytes, "words": s.Words, "tokens": s.Tokens, "tokens_per_word": s.TokensPerWord,
			"bytes_per_token": s.BytesPerToken, "single_byte_share": s.SingleByteShare,
			"vocab_used": s.VocabUsed, "longest": longest, "ids": s.IDs, "boundaries": s.Boundaries,
		}
	}
	return out
}

// boundaryColors are two backgrounds that alternate from token to token.
var boundaryColors = [2]string{"\x1b[48;5;24m\x1b[38;5;231m", "\x1b[48;5;94m\x1b[38;5;231m"}

// printTokenizer is inspect for a person. Tokens alternate in colour on a
// terminal and are separated by | elsewhere.
func printTokenizer(t *bpe.Tokenizer, text []byte) {
	fmt.Printf("ids        %s (%s merges)\npattern    %s\nnfc        %v\n", count(t.VocabSize()), count(len(t.Merges())), t.Pattern(), t.NFC())
	if end := t.EndOfDocument(); end >= 0 {
		fmt.Printf("end        %s = %d\n", t.Token(end), end)
	}
	fmt.Printf("hash       %x\n", t.Hash())
	if len(text) == 0 {
		return
	}
	s := bpe.Inspect(t, text)
	fmt.Printf("\ntext       %s, %s words, %s tokens, %s distinct ids\n", formatBytes(int64(s.Bytes)), count(s.Words), count(s.Tokens), count(s.VocabUsed))
	fmt.Printf("per word   %.3f tokens\nper token  %.3f bytes\none byte   %.1f %% of the tokens\n", s.TokensPerWord, s.BytesPerToken, 100*s.SingleByteShare)
	fmt.Print("longest   ")
	for _, l := range s.Longest[:min(8, len(s.Longest))] {
		fmt.Printf(" %q", l)
	}
	fmt.Print("\n\n")
	color := stdoutIsTerminal()
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	begin := 0
	for i, end := range s.Boundaries {
		if i == 400 {
			fmt.Fprintf(w, "\n… and %s tokens more\n", count(s.Tokens-i))
			return
		}
		piece := string(s.Text[begin:end])
		begin = end
		switch {
		case color:
			fmt.Fprint(w, boundaryColors[i%2], strings.ReplaceAll(piece, "\n", "⏎\x1b[0m\n"), "\x1b[0m")
		default:
			fmt.Fprint(w, piece, "|")
		}
	}
	w.WriteByte('\n')
}

// loadTokenizer reads a tokenizer.json, or takes the tokenizer out of a model
// or a token file.
func loadTokenizer(path string) (*bpe.Tokenizer, error) {
	switch {
	case strings.HasSuffix(path, ".llm"):
		t, _, err := train.ModelTokenizer(path)
		return t, err
	case strings.HasSuffix(path, ".bin"):
		d, err := corpus.Open(path, corpus.OpenOptions{})
		if err != nil {
			return nil, err
		}
		defer d.Close()
		if len(d.TokenizerJSON()) == 0 {
			return nil, fmt.Errorf("%s holds no tokenizer", path)
		}
		return bpe.Parse(d.TokenizerJSON())
	}
	return bpe.Load(path)
}

// readInput reads the named file, or standard input without one or for "-".
func readInput(args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(args[0])
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
