// Package tbtest reads TensorBoard event files for tests, with the protobuf
// library and a plain reading of the TFRecord format: nothing here is shared
// with the writer in package runlog.
package tbtest

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Event is a decoded event.
type Event struct {
	Wall    float64 // seconds since 1970
	Step    int64
	Version string
	Values  map[string]float32
	Start   bool // a SessionLog START
}

// Point is one value of a scalar.
type Point struct {
	Step  int64
	Value float32
}

// Scalars reads all event files of a folder as TensorBoard does, in the order
// of their names; a START at step s drops what came before of s and later
// steps. It returns the values of every tag in the order in which they stand.
func Scalars(t testing.TB, dir string) map[string][]Point {
	t.Helper()
	out := map[string][]Point{}
	for _, path := range Files(t, dir) {
		for _, e := range Read(t, path) {
			if e.Start {
				for tag, points := range out {
					out[tag] = slices.DeleteFunc(points, func(p Point) bool { return p.Step >= e.Step })
				}
			}
			for tag, v := range e.Values {
				out[tag] = append(out[tag], Point{e.Step, v})
			}
		}
	}
	return out
}

// Files lists the event files of a folder by name.
func Files(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// Read decodes one event file and checks its checksums. A record cut short at
// the end, which a kill may leave, is passed over as TensorBoard does.
func Read(t testing.TB, path string) []Event {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	for len(b) >= 16 {
		n := binary.LittleEndian.Uint64(b)
		if n > uint64(len(b)-16) {
			break
		}
		if got, want := binary.LittleEndian.Uint32(b[8:]), masked(b[:8]); got != want {
			t.Fatalf("%s: checksum of the length is %08x, want %08x", path, got, want)
		}
		data := b[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(b[12+n:]), masked(data); got != want {
			t.Fatalf("%s: checksum of the data is %08x, want %08x", path, got, want)
		}
		b = b[16+n:]
		events = append(events, decode(t, data))
	}
	return events
}

// masked is the checksum of TFRecords.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return ((c >> 15) | (c << 17)) + 0xa282ead8
}

func decode(t testing.TB, b []byte) Event {
	e := Event{Values: map[string]float32{}}
	fields(t, b, func(num protowire.Number, v uint64, data []byte) {
		switch num {
		case 1:
			e.Wall = math.Float64frombits(v)
		case 2:
			e.Step = int64(v)
		case 3:
			e.Version = string(data)
		case 5:
			fields(t, data, func(_ protowire.Number, _ uint64, value []byte) {
				tag, x := decodeValue(t, value)
				e.Values[tag] = x
			})
		case 7:
			fields(t, data, func(num protowire.Number, v uint64, _ []byte) { e.Start = num == 1 && v == 1 })
		default:
			t.Errorf("unknown field %d", num)
		}
	})
	return e
}

func decodeValue(t testing.TB, b []byte) (tag string, x float32) {
	fields(t, b, func(num protowire.Number, v uint64, data []byte) {
		switch num {
		case 1:
			tag = string(data)
		case 2:
			x = math.Float32frombits(uint32(v))
		}
	})
	return tag, x
}

// fields walks the fields of a message.
func fields(t testing.TB, b []byte, each func(num protowire.Number, v uint64, data []byte)) {
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
