package runlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// tbEvent is a decoded event.
type tbEvent struct {
	wall    float64
	step    int64
	version string
	values  map[string]float32
	start   bool
}

// decodeEvents reads an event file with the protobuf library and a plain
// reading of the TFRecord format.
func decodeEvents(t *testing.T, path string) []tbEvent {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	masked := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return ((c >> 15) | (c << 17)) + 0xa282ead8
	}
	var events []tbEvent
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		if got, want := binary.LittleEndian.Uint32(b[8:]), masked(b[:8]); got != want {
			t.Fatalf("checksum of the length is %08x, want %08x", got, want)
		}
		data := b[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(b[12+n:]), masked(data); got != want {
			t.Fatalf("checksum of the data is %08x, want %08x", got, want)
		}
		b = b[16+n:]
		events = append(events, decodeEvent(t, data))
	}
	return events
}

func decodeEvent(t *testing.T, b []byte) tbEvent {
	e := tbEvent{values: map[string]float32{}}
	fields(t, b, func(num protowire.Number, v uint64, data []byte) {
		switch num {
		case 1:
			e.wall = math.Float64frombits(v)
		case 2:
			e.step = int64(v)
		case 3:
			e.version = string(data)
		case 5:
			fields(t, data, func(num protowire.Number, _ uint64, value []byte) {
				var tag string
				var x float32
				fields(t, value, func(num protowire.Number, v uint64, data []byte) {
					switch num {
					case 1:
						tag = string(data)
					case 2:
						x = math.Float32frombits(uint32(v))
					}
				})
				e.values[tag] = x
			})
		case 7:
			fields(t, data, func(num protowire.Number, v uint64, _ []byte) { e.start = num == 1 && v == 1 })
		default:
			t.Errorf("unknown field %d", num)
		}
	})
	return e
}

// fields walks the fields of a message.
func fields(t *testing.T, b []byte, each func(num protowire.Number, v uint64, data []byte)) {
	t.Helper()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v32 uint32
			v32, n = protowire.ConsumeFixed32(b)
			v = uint64(v32)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d has wire type %d", num, typ)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		each(num, v, data)
	}
}

// TestTensorBoard writes a run and its resumption and decodes both files.
func TestTensorBoard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tb")
	first, err := OpenTensorBoard(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	check(t, first.Step(step(1)))
	check(t, first.Step(step(3)))
	check(t, first.Scalar("bits_per_byte", 1<<40, 1.5, time.Time{}))
	check(t, first.Close())
	second, err := OpenTensorBoard(dir, 2) // within the same second
	if err != nil {
		t.Fatal(err)
	}
	check(t, second.Scalar("ğ", 3, math.NaN(), noon))
	check(t, second.Close())

	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 || !strings.HasPrefix(files[1], files[0][:len(dir)+30]) {
		t.Fatalf("files %q, %v", files, err)
	}
	a := decodeEvents(t, files[0])
	if len(a) != 4 || a[0].version != "brain.Event:2" || a[0].step != 0 || a[0].wall < 1.7e9 {
		t.Fatalf("first file: %+v", a)
	}
	want := map[string]float32{"loss/train": 2.5, "lr": 3e-4, "grad/norm": 1.5, "grad/clip": 0.5, "grad/nonfinite": 0, "tokens": 1024, "tok_per_s": 5e4}
	if a[1].step != 1 || fmt.Sprint(a[1].values) != fmt.Sprint(want) || math.Abs(a[1].wall-float64(noon.UnixMilli())/1e3) > 1e-6 {
		t.Errorf("first step: %+v, want %v", a[1], want)
	}
	if a[2].values["loss/val"] != 2.25 || a[3].step != 1<<40 || a[3].values["bits_per_byte"] != 1.5 {
		t.Errorf("later events: %+v", a[2:])
	}
	b := decodeEvents(t, files[1])
	if len(b) != 3 || b[0].version != "brain.Event:2" || !b[1].start || b[1].step != 3 {
		t.Fatalf("second file: %+v", b)
	}
	if x := b[2].values["ğ"]; x == x || b[2].step != 3 {
		t.Errorf("last event: %+v", b[2])
	}
}

// TestMaskedSum: the CRC-32C of "123456789" is e3069283 (its check value in
// the catalogues of CRCs); rotated right by 15 bits 2507c60d; plus a282ead8.
func TestMaskedSum(t *testing.T) {
	if got, want := maskedSum([]byte("123456789")), uint32(0xc78ab0e5); got != want {
		t.Errorf("masked sum %08x, want %08x", got, want)
	}
}
