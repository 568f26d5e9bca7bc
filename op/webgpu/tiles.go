package webgpu

import (
	"fmt"
	"strconv"
	"strings"

	"tezgah/gpu"
)

// Tile is one shape of the matrix kernels of 03_linear.wgsl.
type Tile struct {
	BM, BN, BK int // rows, columns and depth of a workgroup's tile
	MQ, NQ     int // quads of rows and columns per thread
	Bufs       int // slices in workgroup memory
	Pad        int // vec4s between rows there
	Unroll     int // steps along k that are written out
}

// String names the tile: rows × columns × depth, the same per thread, slices,
// pad, unrolled steps: "128x128x16-8x8-b1-p1-u4".
func (t Tile) String() string {
	return fmt.Sprintf("%dx%dx%d-%dx%d-b%d-p%d-u%d", t.BM, t.BN, t.BK, 4*t.MQ, 4*t.NQ, t.Bufs, t.Pad, t.Unroll)
}

// parseTile reads what String writes: the numbers between its signs.
func parseTile(name string) (t Tile, ok bool) {
	numbers := strings.FieldsFunc(name, func(c rune) bool { return c < '0' || c > '9' })
	fields := []*int{&t.BM, &t.BN, &t.BK, &t.MQ, &t.NQ, &t.Bufs, &t.Pad, &t.Unroll}
	if len(numbers) != len(fields) {
		return Tile{}, false
	}
	for i, n := range numbers {
		*fields[i], _ = strconv.Atoi(n) // what is no number leaves 0, and String finds it
	}
	t.MQ, t.NQ = t.MQ/4, t.NQ/4
	if t.BM < 1 || t.BN < 1 || t.MQ < 1 || t.NQ < 1 || t.Bufs < 1 || t.Bufs > 2 || t.Pad < 0 || t.BK < 8 || t.BK%8 != 0 ||
		t.Unroll < 1 || t.BK%t.Unroll != 0 || t.BM%(16*t.MQ) != 0 || t.BN%(32*t.NQ) != 0 || t.String() != name {
		return Tile{}, false
	}
	return t, true
}

func (t Tile) threads() int { return t.BM / 4 / t.MQ * (t.BN / 4 / t.NQ) }

// exact reports whether every thread copies as many blocks of 4×4 from A, and
// from B, so that no copy needs a condition.
func (t Tile) exact() bool {
	return t.BM*t.BK/16%t.threads() == 0 && t.BN*t.BK/16%t.threads() == 0
}

// kLow is how many quads along k neighbouring threads copy.
func (t Tile) kLow() int {
	if t.BK%16 == 0 {
		return 4
	}
	return 2
}

// memory is the workgroup memory that the tile needs, in bytes.
func (t Tile) memory() int { return t.Bufs * t.BK * (t.BM/4 + t.BN/4 + 2*t.Pad) * 16 }

// fits reports whether a device can run the tile.
func (t Tile) fits(l gpu.Limits) bool {
	return t.threads() <= l.Invocations && t.threads() <= l.WorkgroupSizeX && t.memory() <= l.WorkgroupMemory
}

// allTiles are the shapes the tuner knows, large ones first. The last needs the
// least of a device and fits every one.
var allTiles = []Tile{
	{128, 128, 16, 2, 2, 2, 1, 16},
	{128, 128, 16, 2, 2, 1, 1, 16},
	{128, 128, 16, 2, 2, 1, 0, 16},
	{128, 64, 16, 2, 2, 1, 1, 16},
	{64, 64, 16, 2, 2, 1, 1, 16},
	{64, 64, 16, 1, 1, 1, 1, 16},
	{32, 32, 16, 1, 1, 1, 1, 1},
}

// Tiles lists the tile shapes that fit the backend's device.
func (b *Backend) Tiles() []Tile { return b.tuner.tiles }

// findTile finds a shape by its name, one of the list or any other that the
// device can run.
func findTile(tiles []Tile, l gpu.Limits, name string) (Tile, error) {
	if t, ok := parseTile(name); ok && t.fits(l) {
		return t, nil
	}
	names := make([]string, len(tiles))
	for i, t := range tiles {
		names[i] = t.String()
		if names[i] == name || strings.HasPrefix(names[i], name+"-") {
			return t, nil
		}
	}
	return Tile{}, fmt.Errorf("webgpu: there is no tile %q on this device; have %s", name, strings.Join(names, ", "))
}
