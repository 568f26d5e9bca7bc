package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// Metadata keys of the checksums. Both values are lower-case hexadecimal of
// fixed width, so that the header's length is known before the data is.
const (
	keySums   = "tezgah.crc32c"        // 8 digits for each tensor, in the order of the data
	keySelf   = "tezgah.header_crc32c" // 8 digits for the header itself
	hexDigits = 8
)

// selfMark stands before the header's own checksum. It cannot occur inside a
// JSON string, where its quotes would be escaped.
const selfMark = `"` + keySelf + `":"`

func putHex(dst []byte, sum uint32) {
	const digits = "0123456789abcdef"
	for i := range hexDigits {
		dst[i] = digits[sum>>(28-4*i)&15]
	}
}

// parseHex is strict: an upper-case digit is a damaged one.
func parseHex(s string) (sum uint32, ok bool) {
	if len(s) != hexDigits {
		return 0, false
	}
	for _, c := range []byte(s) {
		v := strings.IndexByte("0123456789abcdef", c)
		if v < 0 {
			return 0, false
		}
		sum = sum<<4 | uint32(v)
	}
	return sum, true
}

// headerSum returns the CRC-32C of head (length, JSON and padding), taking the
// digits at selfAt as zeros.
func headerSum(head []byte, selfAt int) uint32 {
	sum := crc32.Update(0, castagnoli, head[:selfAt])
	sum = crc32.Update(sum, castagnoli, []byte(strings.Repeat("0", hexDigits)))
	return crc32.Update(sum, castagnoli, head[selfAt+hexDigits:])
}

// checkSelf compares the header's checksum with its bytes: raw is the JSON
// with its padding.
func checkSelf(raw []byte, want string) error {
	at := bytes.Index(raw, []byte(selfMark))
	sum, ok := parseHex(want)
	if !ok || at < 0 || at+len(selfMark)+hexDigits > len(raw) {
		return fmt.Errorf("the header's checksum is unreadable")
	}
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(raw)))
	head = append(head, raw...)
	if got := headerSum(head, lengthBytes+at+len(selfMark)); got != sum {
		return fmt.Errorf("the header has CRC-32C %08x, it was written with %08x", got, sum)
	}
	return nil
}

// setSums takes the data's checksums from the metadata into the entries.
func (h *header) setSums(s string) error {
	if len(s) != hexDigits*len(h.entries) {
		return fmt.Errorf("there are %d digits of checksums, want %d for %d tensors", len(s), hexDigits*len(h.entries), len(h.entries))
	}
	for i := range h.entries {
		sum, ok := parseHex(s[i*hexDigits:][:hexDigits])
		if !ok {
			return fmt.Errorf("the checksum of tensor %q is unreadable", h.entries[i].Name)
		}
		h.entries[i].sum = sum
	}
	return nil
}
