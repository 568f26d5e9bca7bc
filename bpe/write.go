package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// writeJSON writes the canonical tokenizer.json of a trained tokenizer: the vocabulary by ascending id, one token and
// one merge a line, so that two files can be compared line by line. The same definition always gives the same bytes.
func writeJSON(d *definition) []byte {
	var b bytes.Buffer
	b.WriteString("{\n\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n\"added_tokens\":[")
	for i, a := range d.added {
		separate(&b, i)
		writeAdded(&b, a)
	}
	b.WriteString("],\n\"normalizer\":")
	if d.nfc {
		b.WriteString(`{"type":"NFC"}`)
	} else {
		b.WriteString("null")
	}
	b.WriteString(",\n\"pre_tokenizer\":")
	b.WriteString(preTokenizerJSON(d.rules))
	b.WriteString(",\n\"post_processor\":null,\n\"decoder\":" + byteLevelJSON(true) + ",\n\"model\":{\"type\":\"BPE\"," +
		"\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null," +
		"\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{")
	for i, text := range byID(d.vocab) {
		separate(&b, i)
		fmt.Fprintf(&b, "%s:%d", quote(text), d.vocab[text])
	}
	b.WriteString("},\n\"merges\":[")
	for i, m := range d.merges {
		separate(&b, i)
		fmt.Fprintf(&b, "[%s,%s]", quote(m[0]), quote(m[1]))
	}
	b.WriteString("]}\n}\n")
	return b.Bytes()
}

// writeAdded writes an entry of added_tokens.
func writeAdded(b *bytes.Buffer, a addedToken) {
	fmt.Fprintf(b, `{"id":%d,"content":%s,"single_word":%t,"lstrip":%t,"rstrip":%t,"normalized":%t,"special":%t}`,
		a.id, quote(a.content), a.singleWord, a.lstrip, a.rstrip, a.normalized, a.special)
}

// separate begins entry i of a list on a line of its own.
func separate(b *bytes.Buffer, i int) {
	if i > 0 {
		b.WriteByte(',')
	}
	b.WriteByte('\n')
}

func byteLevelJSON(regex bool) string {
	return fmt.Sprintf(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":%t}`, regex)
}

func preTokenizerJSON(r rules) string {
	if r.gpt2 {
		return byteLevelJSON(true)
	}
	return fmt.Sprintf(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated",`+
		`"invert":false},%s]}`, quote(canonical[r.name].regex), byteLevelJSON(false))
}

// byID returns the tokens of a vocabulary by ascending id.
func byID(vocab map[string]int32) []string {
	texts := make([]string, len(vocab))
	for text, id := range vocab {
		texts[id] = text // Train gives the ids 0 to len(vocab) − 1
	}
	return texts
}

// quote writes a JSON string and leaves <, > and & as they are.
func quote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= 0x2000 }) < 0 {
		return `"` + s + `"` // nothing to escape: so are nearly all tokens in the byte alphabet
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
