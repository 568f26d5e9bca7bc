package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/corpus"
)

func newData() *cobra.Command {
	return group("data", "Build and look into token files", newDataBuild(), newDataInspect())
}

type dataBuildFlags struct {
	inputFlags
	opt       corpus.BuildOptions
	tokenizer string
	shardMiB  int64
	json      bool
}

func newDataBuild() *cobra.Command {
	var f dataBuildFlags
	cmd := &cobra.Command{
		Use:   "build --tokenizer F.json --out F.bin PATH…",
		Short: "Encode text files and folders into a token file (\"-\" is standard input)",
		Args:  atLeastOne("files or folders of text"),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.tokenizer, "tokenizer", "tokenizer.json", "the tokenizer to encode with")
	fl.StringVar(&f.opt.Out, "out", "data.bin", "token file to write")
	fl.Float64Var(&f.opt.ValFraction, "val-fraction", 0, "share of the documents that goes to OUT.val.bin")
	fl.Uint64Var(&f.opt.Seed, "seed", 0, "decides which documents are held out")
	fl.Int64Var(&f.shardMiB, "shard-mib", 0, "start a new shard at this size; 0 writes one file")
	fl.IntVar(&f.opt.Threads, "threads", 0, "0 is all cores; the bytes do not depend on it")
	fl.BoolVar(&f.opt.Dedupe, "dedupe", false, "drop documents that are exact copies of earlier ones")
	fl.BoolVar(&f.opt.Restart, "restart", false, "forget an interrupted build instead of going on with it")
	fl.StringVar(&f.StdinFormat, "stdin-format", "text", "format of standard input: text, jsonl or parquet")
	fl.BoolVar(&f.json, "json", false, "print a JSON line at the end")
	f.inputFlags.register(cmd)
	return cmd
}

func (f *dataBuildFlags) run(ctx context.Context, paths []string) error {
	t, err := loadTokenizer(f.tokenizer)
	if err != nil {
		return err
	}
	if f.shardMiB < 0 {
		return usagef("--shard-mib is %d, want 0 or a positive number", f.shardMiB)
	}
	f.opt.Input, f.opt.Tokenizer, f.opt.ShardBytes = f.options(paths), t, f.shardMiB<<20
	rep, err := buildData(ctx, f.opt, newStatusLine(f.json))
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(rep)
	}
	printBuild(rep)
	return nil
}

// buildData runs a build with progress.
func buildData(ctx context.Context, opt corpus.BuildOptions, status *statusLine) (corpus.Report, error) {
	opt.Progress = func(p corpus.Progress) {
		of := ""
		if p.BytesTotal > 0 {
			of = fmt.Sprintf(" of %s, %s left", formatBytes(p.BytesTotal), shortTime(p.ETA))
		}
		status.set("data: %s%s, %s tokens, %.0f MB/s", formatBytes(p.BytesRead), of, count(p.Tokens), p.MBPerSec)
	}
	opt.Notice = func(s string) { status.print("data: %s", s) }
	defer status.clear()
	return corpus.Build(ctx, opt)
}

func printBuild(rep corpus.Report) {
	fmt.Printf("%s: %s tokens, %s documents, from %s of text in %s (%.0f MB/s)\n", rep.Path, count(rep.Tokens),
		count(rep.Documents), formatBytes(rep.TextBytes), shortTime(rep.Elapsed), rep.MBPerSec)
	if rep.ValPath != "" {
		fmt.Printf("%s: %s tokens, %s documents\n", rep.ValPath, count(rep.ValTokens), count(rep.ValDocuments))
	}
	if rep.Duplicates > 0 {
		fmt.Printf("%s exact copies dropped\n", count(rep.Duplicates))
	}
	if rep.Stats.Bad > 0 {
		fmt.Printf("%s broken records or files skipped\n", count(rep.Stats.Bad))
	}
}

func newDataInspect() *cobra.Command {
	var asJSON bool
	var tokenizer string
	opt := corpus.InspectOptions{Top: 10, SampleTokens: 60}
	cmd := &cobra.Command{
		Use:   "inspect F.bin",
		Short: "Show header, counts, documents, a decoded sample and the commonest ids",
		Args:  exactly("one token file", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspectData(cmd.Context(), args[0], tokenizer, opt, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&opt.Verify, "verify", true, "check every block's checksum")
	cmd.Flags().IntVar(&opt.Top, "top", opt.Top, "commonest ids to show")
	cmd.Flags().StringVar(&tokenizer, "tokenizer", "", "tokenizer.json, for token files that carry none")
	return cmd
}

func inspectData(ctx context.Context, path, tokenizer string, opt corpus.InspectOptions, asJSON bool) error {
	var tok *bpe.Tokenizer
	if tokenizer != "" {
		t, err := bpe.Load(tokenizer)
		if err != nil {
			return err
		}
		tok = t
		opt.Open = corpus.OpenOptions{TokenizerJSON: t.JSON(), VocabSize: t.VocabSize(), EndOfDocument: t.EndOfDocument()}
	}
	opt.TokenBytes = func(tokenizerJSON []byte) ([]int32, error) {
		t, err := bpe.Parse(tokenizerJSON)
		if err != nil {
			return nil, err
		}
		tok = t
		return corpus.TokenBytes(t.Decode, t.VocabSize(), t.EndOfDocument(), t.IsSpecial), nil
	}
	info, err := corpus.Inspect(ctx, path, opt)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(info)
	}
	printDataInfo(info, tok)
	return nil
}

func printDataInfo(i corpus.Info, tok *bpe.Tokenizer) {
	fmt.Printf("file       %s (%s, %d shards, %s)\n", i.Path, i.Format, i.Shards, formatBytes(i.FileBytes))
	fmt.Printf("tokens     %s of %d bytes, %s ids (%s used)\n", count(i.Tokens), i.TokenWidth, count(i.VocabSize), count(i.UsedIDs))
	if i.Documents > 0 {
		fmt.Printf("documents  %s, tokens each: mean %.0f, median %d, %d to %d\n", count(i.Documents), i.MeanDoc, i.MedianDoc, i.ShortestDoc, i.LongestDoc)
	}
	if i.TextBytes > 0 {
		fmt.Printf("text       %s, %.3f bytes per token\n", formatBytes(i.TextBytes), i.BytesPerToken)
	}
	fmt.Printf("entropy    %.3f bits per token", i.BitsPerToken)
	if i.BitsPerByte > 0 {
		fmt.Printf(", %.3f bits per byte (unigram)", i.BitsPerByte)
	}
	fmt.Printf("\ntokenizer  %s\n", i.TokenizerHash)
	if tok == nil {
		return
	}
	fmt.Println("\ncommonest")
	for _, c := range i.Top {
		fmt.Printf("%8d  %-20q %s (%.2f %%)\n", c.ID, tok.Token(c.ID), count(c.Count), 100*float64(c.Count)/float64(i.Tokens))
	}
	fmt.Printf("\nfrom the middle\n%s\n", strings.TrimRight(string(tok.Decode(i.Sample)), "\n"))
}

// stdoutIsTerminal reports whether colours make sense.
func stdoutIsTerminal() bool {
	fi, err := os.Stdout.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}
