package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"tezgah/tensor"
)

const (
	lengthBytes    = 8           // the header's length, before the header
	maxHeaderBytes = 100_000_000 // the reference reader refuses more
	metadataKey    = "__metadata__"
)

// entry is a tensor and where its bytes lie in the file.
type entry struct {
	Info
	begin, end int64  // relative to the byte buffer after the header
	sum        uint32 // CRC-32C of the data, if the file has checksums
}

// header is the parsed JSON header of a safetensors file. Entries are in the
// order of their data.
type header struct {
	meta    map[string]string
	entries []entry
}

// parseHeader reads the JSON header of a file whose byte buffer is dataBytes
// long. It refuses duplicate keys, unknown fields, unknown types, shapes that
// overflow or disagree with their offsets, holes, overlaps, and data that ends
// before or after the file does.
func parseHeader(raw []byte, dataBytes int64) (*header, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("the header does not begin with '{'")
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("the header is not UTF-8")
	}
	if !json.Valid(raw) { // the walk below then needs to look at types only
		return nil, fmt.Errorf("the header is not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	h := &header{meta: map[string]string{}}
	err := object(d, "the header", func(key string) error {
		if key == metadataKey {
			return parseMetadata(d, h.meta)
		}
		e, err := parseEntry(d, key)
		h.entries = append(h.entries, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, h.checkLayout(dataBytes)
}

// object reads one JSON object and calls each with every key; each must read
// the value. A key that comes twice is an error.
func object(d *json.Decoder, what string, each func(key string) error) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("%s: got %v, want an object", what, t)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("%s: got key %v, want a string", what, t)
		}
		if seen[key] {
			return fmt.Errorf("%s has the key %q twice", what, key)
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing brace
	return err
}

func parseMetadata(d *json.Decoder, meta map[string]string) error {
	return object(d, metadataKey, func(key string) error {
		t, err := d.Token()
		if err != nil {
			return err
		}
		s, ok := t.(string)
		if !ok {
			return fmt.Errorf("%s: the value of %q is %v, want a string", metadataKey, key, t)
		}
		meta[key] = s
		return nil
	})
}

func parseEntry(d *json.Decoder, name string) (entry, error) {
	e := entry{Info: Info{Name: name}}
	var haveType, haveShape, haveOffsets bool
	what := fmt.Sprintf("tensor %q", name)
	err := object(d, what, func(key string) (err error) {
		switch key {
		case "dtype":
			haveType = true
			e.Type, err = parseType(d)
		case "shape":
			haveShape = true
			var dims []int64
			dims, err = parseInts(d)
			for _, v := range dims {
				if v > math.MaxInt {
					return fmt.Errorf("%s: dimension %d is too large for this machine", what, v)
				}
				e.Shape = append(e.Shape, int(v))
			}
		case "data_offsets":
			haveOffsets = true
			var off []int64
			if off, err = parseInts(d); err == nil {
				if len(off) != 2 || off[0] > off[1] {
					return fmt.Errorf("%s: data_offsets are %v, want [begin, end]", what, off)
				}
				e.begin, e.end = off[0], off[1]
			}
		default:
			return fmt.Errorf("%s has an unknown field %q", what, key)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", what, key, err)
		}
		return nil
	})
	if err == nil && !(haveType && haveShape && haveOffsets) {
		err = fmt.Errorf("%s lacks one of dtype, shape, data_offsets", what)
	}
	return e, err
}

func parseType(d *json.Decoder) (tensor.DType, error) {
	t, err := d.Token()
	if err != nil {
		return 0, err
	}
	s, ok := t.(string)
	if !ok {
		return 0, fmt.Errorf("got %v, want a string", t)
	}
	return tensor.ParseDType(s)
}

// parseInts reads an array of integers from 0 to 2^63-1.
func parseInts(d *json.Decoder) ([]int64, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, fmt.Errorf("got %v, want an array", t)
	}
	var xs []int64
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("got %v, want an integer", t)
		}
		x, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("got %v, want an integer from 0 to 2^63-1", n)
		}
		xs = append(xs, int64(x))
	}
	_, err = d.Token() // the closing bracket
	return xs, err
}

// checkLayout sorts the entries by place and checks that they cover the byte
// buffer exactly.
func (h *header) checkLayout(dataBytes int64) error {
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		if a.begin != b.begin {
			return cmp.Compare(a.begin, b.begin)
		}
		return cmp.Compare(a.end, b.end)
	})
	var at int64
	for _, e := range h.entries {
		if err := e.check(); err != nil {
			return err
		}
		switch {
		case e.end > dataBytes:
			return fmt.Errorf("tensor %q ends at byte %d of the data, the file has %d: it was cut short", e.Name, e.end, dataBytes)
		case e.SizeBytes() != e.end-e.begin:
			return fmt.Errorf("tensor %q: %v of shape %v needs %d bytes, data_offsets span %d", e.Name, e.Type, e.Shape, e.SizeBytes(), e.end-e.begin)
		case e.begin < at:
			return fmt.Errorf("tensor %q begins at byte %d inside the tensor before it, which ends at %d", e.Name, e.begin, at)
		case e.begin > at:
			return fmt.Errorf("tensor %q begins at byte %d, bytes from %d on belong to no tensor", e.Name, e.begin, at)
		}
		at = e.end
	}
	if at != dataBytes {
		return fmt.Errorf("the tensors end at byte %d of the data, the file has %d", at, dataBytes)
	}
	return nil
}
