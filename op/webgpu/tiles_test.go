//go:build !js

package webgpu

import (
	"testing"

	"github.com/gogpu/naga"

	"tezgah/gpu"
	"tezgah/op/webgpu/internal/wgsl"
)

func TestTileNames(t *testing.T) {
	limits := gpu.DefaultLimits()
	limits.WorkgroupMemory = 48 << 10
	for _, tile := range allTiles {
		got, ok := parseTile(tile.String())
		if !ok || got != tile {
			t.Errorf("%v is read as %v, %t", tile, got, ok)
		}
		if found, err := findTile(allTiles, limits, tile.String()); err != nil || found != tile {
			t.Errorf("%v is found as %v: %v", tile, found, err)
		}
	}
	for _, bad := range []string{"", "128x128", "0x0x0-0x0-b0-p0-u0", "128x128x16-8x8-b1-p1-u3", "100x128x16-8x8-b1-p1-u4", "128x128x16-8x8-b3-p1-u4",
		"128x128x16-8x8-b1-p1-u4x", "-32x32x16-4x4-b1-p1-u1", "32x32x16-4x4-b1-p-1-u1"} {
		if tile, ok := parseTile(bad); ok {
			t.Errorf("%q is read as %v", bad, tile)
		}
		if tile, err := findTile(allTiles, limits, bad); err == nil && bad != "" && bad != "128x128" {
			t.Errorf("%q is found as %v", bad, tile)
		}
	}
}

// TestSmallestTileFitsEveryDevice holds the last tile against WebGPU's least.
func TestSmallestTileFitsEveryDevice(t *testing.T) {
	if last := allTiles[len(allTiles)-1]; !last.fits(gpu.DefaultLimits()) {
		t.Errorf("%v does not fit WebGPU's default limits", last)
	}
}

// TestTilesCompile compiles every form with every tile.
func TestTilesCompile(t *testing.T) {
	b := &Backend{kernels: map[variant]*kernel{}}
	for _, tile := range allTiles {
		for _, f := range []matmulForm{{vec: true}, {transB: true, check: true}, {transA: true, vec: true, half: true}, {group: true, vec: true, check: true}, {paired: true, gelu: true}} {
			if f.paired && tile.NQ%2 != 0 {
				continue
			}
			k := b.matmulKernel(f, tile)
			source, err := assemble(k.name, wgsl.Features{F16: true}, k.defines, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := naga.Compile(source); err != nil {
				t.Errorf("%s with %v: %v", f.name(), tile, err)
			}
		}
	}
}

// TestSplitK checks that parts cover K, and that only shapes with few tiles and
// a long K are split.
func TestSplitK(t *testing.T) {
	for _, z := range [][3]int{{768, 768, 8192}, {64, 64, 100000}, {768, 2048, 8192}, {1, 1, 1 << 20}, {130, 200, 1603}, {512, 512, 1000}} {
		splits, depth := splitK(z[0], z[1], z[2], 128<<20)
		if splits < 1 || (splits-1)*depth >= z[2] || splits*depth < z[2] {
			t.Errorf("%v: %d parts of %d", z, splits, depth)
		}
		if splits > 1 && depth%64 != 0 {
			t.Errorf("%v: parts of %d, want a multiple of 64", z, depth)
		}
	}
	if splits, _ := splitK(768, 768, 8192, 128<<20); splits < 2 {
		t.Error("a weight gradient of 768×768 over 8192 rows is not split")
	}
	for _, z := range [][3]int{{4096, 4096, 4096}, {768, 32000, 2048}, {64, 64, 500}} {
		if splits, _ := splitK(z[0], z[1], z[2], 128<<20); splits != 1 {
			t.Errorf("%v is split in %d", z, splits)
		}
	}
}
