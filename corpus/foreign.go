package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Token files of other projects (their layouts are in docs/formats.md). They carry no vocabulary and no checksums,
// so the caller says how many ids there are and every id is compared with that when it is read.

const (
	formatTezgah  = "tezgah"
	formatNanoGPT = "nanogpt"
	formatLLMC    = "llm.c"
	llmcHeader    = 1024 // 256 int32
)

// llmcWidth returns the token width that an llm.c header announces, 0 when b does not begin with one.
func llmcWidth(b []byte) int {
	if len(b) < 8 {
		return 0
	}
	switch id, v := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]); {
	case id == 20240520 && v == 1:
		return 2
	case id == 20240801 && v == 7:
		return 4
	}
	return 0
}

// parseForeign reads a file without our header.
func parseForeign(name string, b []byte, opt *OpenOptions) (p *part, format string, err error) {
	width, format := llmcWidth(b), formatLLMC
	data := b
	if width > 0 {
		data, err = llmcData(b, width)
	} else {
		width, format = 2, formatNanoGPT
		err = checkHeaderless(b)
	}
	if err != nil {
		return nil, "", err
	}
	if opt.VocabSize <= 0 {
		return nil, "", fmt.Errorf("it has no vocabulary of its own (%s file): give the tokenizer that made it", describe(format))
	}
	p = &part{name: name, width: width, vocabSize: opt.VocabSize, data: data, unmap: func() error { return nil }}
	return p, format, nil
}

func describe(format string) string {
	if format == formatNanoGPT {
		return "read as a headerless nanoGPT"
	}
	return format
}

func llmcData(b []byte, width int) ([]byte, error) {
	if len(b) < llmcHeader {
		return nil, fmt.Errorf("%d bytes are too few for an llm.c header of %d: the file is truncated", len(b), llmcHeader)
	}
	n := int64(binary.LittleEndian.Uint32(b[8:]))
	if want := llmcHeader + n*int64(width); int64(len(b)) != want {
		return nil, fmt.Errorf("%d bytes, want %d for the %d tokens of its llm.c header: the file is truncated or damaged",
			len(b), want, n)
	}
	return b[llmcHeader:], nil
}

// checkHeaderless refuses what is surely not a nanoGPT file.
func checkHeaderless(b []byte) error {
	switch {
	case closeness(b) > len(magic)/2:
		return fmt.Errorf("its first bytes are damaged: build the file again")
	case len(b) >= llmcHeader && len(bytes.Trim(b[12:llmcHeader], "\x00")) == 0:
		return fmt.Errorf("the first bytes of its llm.c header are damaged")
	case len(b)%2 != 0:
		return fmt.Errorf("no token file: neither the header of Tezgah or llm.c, nor (with an odd size of %d bytes) nanoGPT's "+
			"16-bit tokens", len(b))
	}
	return nil
}
