// Package matrix holds the kernels for GPUs' matrix units: GLSL sources with
// cooperative matrices (GL_KHR_cooperative_matrix), which WGSL cannot say, and
// the SPIR-V that glslang makes of them. Both are in the repository, so that
// nobody needs the compiler; gen.sh makes the SPIR-V anew, byte for byte.
//
// The launchers are in op/webgpu (matrix.go). A product rounds its inputs to 16
// bits; its sums are float32.
package matrix

import (
	"encoding/binary"
	"fmt"
)

//go:generate ./gen.sh

// Module returns the SPIR-V of a kernel, such as "matmul", for inputs of "f16" or
// "bf16".
func Module(kernel, input string) ([]uint32, error) {
	code, err := modules.ReadFile(kernel + "_" + input + ".spv")
	if err != nil {
		return nil, fmt.Errorf("matrix: there is no kernel %s for %s", kernel, input)
	}
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	return words, nil
}

// Tile is one shape of the product: BM × BN of a workgroup, WM × WN of a
// subgroup, in slices of BK along K.
type Tile struct{ BM, BN, BK, WM, WN int }

// Tiles are the shapes that are worth trying, in the order of their speed on
// large products (measured on an NVIDIA H200).
var Tiles = []Tile{
	{128, 128, 32, 64, 64},
	{128, 256, 32, 64, 64},
	{128, 128, 64, 64, 64},
	{128, 128, 64, 64, 32},
	{128, 192, 32, 64, 48},
	{128, 128, 32, 64, 32},
	{128, 96, 32, 64, 48},
	{128, 64, 32, 64, 32},
	{64, 128, 32, 32, 64},
	{64, 64, 32, 32, 32},
	{32, 32, 32, 16, 16},
}

// String names the tile.
func (t Tile) String() string {
	return fmt.Sprintf("%dx%dx%d-%dx%d", t.BM, t.BN, t.BK, t.WM, t.WN)
}

// Fragment is the shape that a subgroup's units multiply: (M, K) × (K, N), by so
// many threads.
type Fragment struct{ M, N, K, Threads int }

// Threads of a workgroup.
func (t Tile) Threads(f Fragment) int { return t.BM / t.WM * (t.BN / t.WN) * f.Threads }

// Memory is the workgroup memory that the tile takes, in bytes: slices of A and B, as
// they are or turned, with 16 bytes between rows, or at the end a row of fragments for
// each subgroup with 32 bytes between rows.
func (t Tile) Memory(f Fragment) int {
	slice := func(n int) int { return max(n*(2*t.BK+16), t.BK*(2*n+16)) }
	return max(slice(t.BM)+slice(t.BN), t.Threads(f)/f.Threads*f.M*(4*t.WN+32))
}

// maxFragments is how many fragments along M of a subgroup matmul.comp writes out.
const maxFragments = 8

// Fits reports whether the tile can be made of such fragments by a device with
// these limits, in threads and bytes.
func (t Tile) Fits(f Fragment, threads, memory int) bool {
	n := t.Threads(f)
	return t.WM%f.M == 0 && t.WM/f.M <= maxFragments && t.WN%f.N == 0 && t.BK%f.K == 0 && n <= threads && t.Memory(f) <= memory &&
		t.BM*t.BK%(8*n) == 0 && t.BN*t.BK%(8*n) == 0 && f.M*t.WN%(4*f.Threads) == 0
}

// Gates reports whether a tile that fits can be shared by two products whose columns
// lie side by side in each subgroup's part.
func (t Tile) Gates(f Fragment) bool {
	return t.WN/2%max(f.N, 8) == 0 && t.BN/2*t.BK%(8*t.Threads(f)) == 0 && f.M*t.WN%(8*f.Threads) == 0
}

// Constants are the specialization constants of matmul.comp that say how the tile is
// made, the first ones.
func (t Tile) Constants(f Fragment) []uint32 {
	return []uint32{uint32(t.Threads(f)), uint32(t.BM), uint32(t.BN), uint32(t.BK), uint32(t.WM), uint32(t.WN), uint32(f.M), uint32(f.N), uint32(f.K)}
}
