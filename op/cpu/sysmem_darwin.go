package cpu

import "golang.org/x/sys/unix"

// availableBytes is the machine's whole memory: macOS compresses and drops what
// other programs hold when it is needed, and has no figure for how much it
// could. It refuses what can never fit.
func availableBytes() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

func processorName() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil || name == "" {
		return unnamedProcessor()
	}
	return name
}
