package matrix

import "fmt"

// AttentionTile is how the attention kernels divide their work. A workgroup has
// Subgroups subgroups that own Own fragments of rows each; Other rows of the other
// side lie in workgroup memory at a time, and Strip of them are multiplied at once.
type AttentionTile struct {
	Subgroups, Own, Other, Strip int
	Early                        bool // fetch a tile while the one before is in use
	Convert                      bool // sums become factors in registers (VK_NV_cooperative_matrix2)
}

// String names the tile.
func (t AttentionTile) String() string {
	s := fmt.Sprintf("%dx%d-%d-%d", t.Subgroups, t.Own, t.Other, t.Strip)
	if t.Early {
		s += "-early"
	}
	if t.Convert {
		s += "-convert"
	}
	return s
}

// Kernel is the name of the tile's module for one of "attention_forward",
// "attention_dq" and "attention_dkdv".
func (t AttentionTile) Kernel(name string) string {
	if t.Convert {
		return name + "_nv"
	}
	return name
}

// Rows is how many rows a workgroup owns.
func (t AttentionTile) Rows(f Fragment) int { return t.Subgroups * t.Own * f.M }

// Threads of a workgroup.
func (t AttentionTile) Threads(f Fragment) int { return t.Subgroups * f.Threads }

// Memory is at least the workgroup memory that a kernel takes for heads of d, in
// bytes: the two tiles and a fragment of float32 for each subgroup, in their place or
// beside them, the left factors, and a few numbers for each row.
func (t AttentionTile) Memory(f Fragment, d int) int {
	tiles := 2 * t.Other * (d + 8) * 2
	spare := t.Subgroups * f.M * (f.N + 4) * 4
	few := 12*max(t.Rows(f), t.Other) + 4*max(f.M, f.N)
	if t.Convert {
		return max(tiles, spare) + few
	}
	return tiles + spare + t.Subgroups*2*t.Own*f.M*(max(t.Strip, f.K)+8)*2 + few
}

// Fits reports whether a device can run the tile for heads of d, at most 16 fragments,
// with such fragments and limits, in threads and bytes.
func (t AttentionTile) Fits(f Fragment, d, threads, memory int) bool {
	return f.Threads > 0 && f.M*f.N%f.Threads == 0 && f.N%8 == 0 && f.K%8 == 0 && d%f.N == 0 && d%f.K == 0 &&
		d/f.N <= 16 && t.Strip%f.N == 0 && t.Strip%f.K == 0 && t.Other%t.Strip == 0 && t.Other%f.M == 0 &&
		(!t.Convert || f.N == f.K) && t.Threads(f) <= threads && t.Memory(f, d) <= memory
}

// AttentionForm is what the attention kernels are compiled for, apart from the tile.
type AttentionForm struct {
	D        int
	Doc      bool
	Lockstep bool // a subgroup's threads always go together
	Half     bool // out, or dv and what is turned, has 16 bits
	Turned   bool // dq and dk are turned back by RoPE's angles
}

// Constants are the specialization constants of attention.glsl, by number.
func (t AttentionTile) Constants(f Fragment, a AttentionForm) []uint32 {
	return []uint32{uint32(t.Threads(f)), uint32(f.Threads), uint32(f.M), uint32(f.N), uint32(f.K), uint32(a.D),
		uint32(t.Own), uint32(t.Other), uint32(t.Strip), number(a.Doc), number(t.Early), number(a.Lockstep), number(a.Half), number(a.Turned)}
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
