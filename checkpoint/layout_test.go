package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestLLMLayout walks over the bytes of a file as docs/formats.md draws them,
// and compares the drawing's keys with the file's.
func TestLLMLayout(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("docs/formats.md is not among the files of a browser")
	}
	h, w, m := sample()
	h.ChatTemplate, h.LoRA = "chatml", json.RawMessage(`{"rank":2,"alpha":4,"targets":["wq"]}`)
	var f MemFile
	if _, err := WriteLLM(&f, h, w, m); err != nil {
		t.Fatal(err)
	}
	b := f.Bytes()
	n := int(binary.LittleEndian.Uint64(b))
	if (8+n)%64 != 0 {
		t.Errorf("the data begins at byte %d, want a multiple of 64", 8+n)
	}
	head := string(b[8 : 8+n])
	if !strings.HasPrefix(head, `{"__metadata__":{"format":"pt","tezgah.version":"1","tezgah.header_crc32c":"`) || !strings.HasSuffix(strings.TrimRight(head, " "), "}}") {
		t.Errorf("the header begins with %.80q and ends with %q", head, head[n-80:])
	}

	// The header's checksum covers bytes 0 … 8+n, its own eight digits as 0.
	at := strings.Index(head, "header_crc32c\":\"") + len("header_crc32c\":\"")
	zeroed := slices.Clone(b[:8+n])
	copy(zeroed[8+at:], "00000000")
	if sum := fmt.Sprintf("%08x", crc32.Checksum(zeroed, crc32.MakeTable(crc32.Castagnoli))); sum != head[at:at+8] {
		t.Errorf("the header's checksum is %s, the file says %s", sum, head[at:at+8])
	}
	checkDataSums(t, b, n)
	checkDrawing(t, head)
}

// checkDataSums compares tezgah.crc32c, eight digits a tensor in the order of
// the data, with the bytes that data_offsets span; wide types come first.
func checkDataSums(t *testing.T, b []byte, n int) {
	t.Helper()
	var entries map[string]json.RawMessage
	var meta map[string]string
	if err := json.Unmarshal(b[8:8+n], &entries); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(entries["__metadata__"], &meta); err != nil {
		t.Fatal(err)
	}
	delete(entries, "__metadata__")
	type span struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	var spans []span
	for name, raw := range entries {
		var s span
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		spans = append(spans, s)
	}
	slices.SortFunc(spans, func(a, b span) int {
		return (a.Offsets[0]+a.Offsets[1])*2 + len(a.DType) - (b.Offsets[0]+b.Offsets[1])*2 - len(b.DType)
	})
	var sums strings.Builder
	narrow := false
	for _, s := range spans {
		data := b[8+n+s.Offsets[0] : 8+n+s.Offsets[1]]
		fmt.Fprintf(&sums, "%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
		if narrow && s.DType == "F32" {
			t.Error("an F32 tensor stands behind a narrower one")
		}
		narrow = narrow || s.DType == "I8"
	}
	if sums.String() != meta["tezgah.crc32c"] {
		t.Errorf("checksums are %s, the file says %s", sums.String(), meta["tezgah.crc32c"])
	}
}

// checkDrawing compares the keys of the drawing with those of the file, in
// their order.
func checkDrawing(t *testing.T, head string) {
	t.Helper()
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, ok := bytes.Cut(doc, []byte("## The model file"))
	if drawing, _, ok = bytes.Cut(drawing, []byte("### Names")); !ok {
		t.Fatal("docs/formats.md has no drawing of the model file")
	}
	key := regexp.MustCompile(`"(tezgah\.[a-z0-9_]+)":`)
	keys := func(text string) (list []string) {
		for _, m := range key.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		return list
	}
	if got, want := keys(head), keys(string(drawing)); !slices.Equal(got, want) {
		t.Errorf("the file has the keys %q, docs/formats.md draws %q", got, want)
	}
}
