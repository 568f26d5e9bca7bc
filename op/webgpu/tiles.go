package webgpu

import (
	"fmt"
	"strings"

	"tezgah/gpu"
)

// Tile is one shape of the matrix kernels of 03_linear.wgsl.
type Tile struct {
	BM, BN, BK int // rows, columns and depth of a workgroup's tile
	MQ, NQ     int // quads of rows and columns per thread
	Bufs       int // slices in workgroup memory
	Pad        int // vec4s between rows there
}

// String names the tile, with what differs from one slice and a pad of one:
// "128x128x16-8x8" or "128x64x16-8x4-b2".
func (t Tile) String() string {
	s := fmt.Sprintf("%dx%dx%d-%dx%d", t.BM, t.BN, t.BK, 4*t.MQ, 4*t.NQ)
	if t.Bufs != 1 {
		s += fmt.Sprintf("-b%d", t.Bufs)
	}
	if t.Pad != 1 {
		s += fmt.Sprintf("-p%d", t.Pad)
	}
	return s
}

func (t Tile) threads() int { return t.BM / 4 / t.MQ * (t.BN / 4 / t.NQ) }

// memory is the workgroup memory that the tile needs, in bytes.
func (t Tile) memory() int { return t.Bufs * t.BK * (t.BM/4 + t.BN/4 + 2*t.Pad) * 16 }

// fits reports whether a device can run the tile.
func (t Tile) fits(l gpu.Limits) bool {
	return t.threads() <= l.Invocations && t.threads() <= l.WorkgroupSizeX && t.memory() <= l.WorkgroupMemory
}

// allTiles are the shapes the tuner knows, large ones first. The last needs the
// least of a device and fits every one.
var allTiles = []Tile{
	{128, 128, 16, 2, 2, 2, 1},
	{128, 128, 16, 2, 2, 1, 1},
	{128, 128, 16, 2, 2, 1, 0},
	{128, 128, 8, 2, 2, 2, 0},
	{128, 128, 8, 2, 2, 1, 1},
	{128, 64, 16, 2, 2, 2, 1},
	{128, 64, 16, 2, 2, 1, 1},
	{64, 128, 16, 2, 2, 1, 1},
	{128, 64, 16, 2, 1, 1, 1},
	{64, 64, 16, 2, 2, 2, 1},
	{64, 64, 16, 2, 2, 1, 1},
	{64, 64, 16, 1, 1, 1, 1},
	{64, 32, 16, 2, 1, 1, 1},
	{32, 32, 16, 1, 1, 1, 1},
}

// Tiles lists the tile shapes that fit the backend's device.
func (b *Backend) Tiles() []Tile { return b.tuner.tiles }

// findTile finds a tile by name among those that fit, by the whole name or its
// beginning.
func findTile(tiles []Tile, name string) (Tile, error) {
	names := make([]string, len(tiles))
	for i, t := range tiles {
		names[i] = t.String()
		if names[i] == name {
			return t, nil
		}
	}
	for i, t := range tiles {
		if strings.HasPrefix(names[i], name) {
			return t, nil
		}
	}
	return Tile{}, fmt.Errorf("webgpu: there is no tile %q on this device; have %s", name, strings.Join(names, ", "))
}
