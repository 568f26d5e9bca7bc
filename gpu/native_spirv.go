//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

// The few parts of SPIR-V that dropWorkgroupInit looks at (SPIR-V
// specification 1.3, sections 2.3 and 3.32).
const (
	spirvHeader      = 5 // words before the first instruction
	opConstantNull   = 46
	opVariable       = 59
	opStore          = 62
	storageWorkgroup = 4
)

// dropWorkgroupInit removes the stores of zeros to workgroup variables that the
// shader compiler puts in front of every entry point. It lets one thread write
// all of the workgroup's memory: thousands of stores before a matrix tile
// begins, and code for each of them, which takes LLVM a minute to compile on
// llvmpipe. WebGPU promises these zeros; this project's kernels do not rely on
// them, and other kernels must not either. It can go when the compiler spreads
// the zeros over the workgroup or offers a switch.
func dropWorkgroupInit(words []uint32) []uint32 {
	shared, null := map[uint32]bool{}, map[uint32]bool{}
	out := append([]uint32(nil), words[:min(spirvHeader, len(words))]...)
	for at := spirvHeader; at < len(words); {
		n, op := int(words[at]>>16), words[at]&0xffff
		if n == 0 || at+n > len(words) {
			return words // not an instruction: leave everything as it is
		}
		ins := words[at : at+n]
		at += n
		switch {
		case op == opConstantNull && n >= 3:
			null[ins[2]] = true
		case op == opVariable && n >= 4 && ins[3] == storageWorkgroup:
			shared[ins[2]] = true
		case op == opStore && n >= 3 && shared[ins[1]] && null[ins[2]]:
			continue
		}
		out = append(out, ins...)
	}
	return out
}
