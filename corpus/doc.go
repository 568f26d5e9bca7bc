// Package corpus turns text into token files and token files into training batches.
//
// Three stages, each usable alone:
//
//	text in    Walk streams documents out of txt, md, source files, jsonl and parquet, plain or compressed with gzip or
//	           zstd, out of folders and standard input, always in the same order (files.go, reader.go, text.go, jsonl.go,
//	           jsonfield.go, parquet.go, walk.go). WalkLines hands out lines of jsonl as they are (lines.go).
//	tokens out Build encodes them on all cores and writes .bin shards with a document index, the tokenizer and checksums;
//	           it goes on where it was after an interruption (build.go, pipeline.go, output.go, shard.go, journal.go,
//	           dedupe.go). docs/formats.md draws the file byte by byte; header.go reads and writes its header.
//	tokens in  Open maps a token file, ours or nanoGPT's or llm.c's, into memory (dataset.go, section.go, foreign.go,
//	           manifest.go), Sampler draws training windows from one or several of them by a seeded permutation
//	           (sampler.go, permute.go) and Windows reads a range front to back for evaluation (windows.go, split.go).
//
// Numbers about data (unigram entropy, histogram, lengths) are in unigram.go and inspect.go.
//
// The package does not tokenize: it takes any Tokenizer. It does not choose devices or know the model. Start with
// dataset.go to read token files, with build.go to follow how they are made.
package corpus

import "crypto/sha256"

// Tokenizer is what this package needs of a tokenizer; *bpe.Tokenizer is one.
type Tokenizer interface {
	// JSON is the whole tokenizer.json. It is stored in every token file, and its SHA-256 is the tokenizer's hash.
	JSON() []byte
	// VocabSize is V: ids are below it.
	VocabSize() int
	// EndOfDocument is the id that ends every document, negative when the vocabulary has none.
	EndOfDocument() int32
	// Encode appends the ids of text to dst. It may be called from several goroutines at once. Special tokens that are
	// spelled out in text count as ordinary text.
	Encode(dst []int32, text []byte) []int32
}

// TokenizerHash is the hash by which token files and models tell whether they share a vocabulary.
func TokenizerHash(tokenizerJSON []byte) [32]byte { return sha256.Sum256(tokenizerJSON) }
