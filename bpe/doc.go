// Package bpe is Tezgah's tokenizer: byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019), trained,
// encoded and decoded exactly, with ids equal to those of Hugging Face tokenizers reading the same tokenizer.json.
//
// Text goes through four stages, each in its own file:
//
//	added.go    (EncodeWithSpecials only) cut out added tokens such as <|endoftext|>
//	nfc.go      optional Unicode normalisation, form C
//	scan.go     cut the text into pre-tokens with the pattern gpt2, llama3, qwen2 or turkish
//	merge.go    merge the bytes of one pre-token in order of merge rank
//
// Training counts pre-tokens (count.go) and then merges the most frequent pair again and again (train.go, learn.go).
// parse.go and write.go read and write tokenizer.json. Open tokenizer.go first.
//
// # Invalid UTF-8
//
// Bytes are never lost: Decode(Encode(b)) is b for every b, except that a tokenizer with NFC first normalises the
// valid parts. A byte that does not belong to a valid UTF-8 sequence counts as one code point that is neither a letter
// nor a number nor a space, like U+FFFD.
//
// # What this package does not do
//
// It adds no beginning-of-sequence token by itself (see Tokenizer.BOS), truncates and pads nothing, and knows no other
// model than byte-level BPE: Parse refuses the rest by name.
package bpe
