package kern

import "golang.org/x/sys/cpu"

// bestLevel asks the processor (and, through the XCR0 check of package cpu, the operating system).
// Every processor with AVX2 and FMA also has the half-precision conversions of F16C, which package
// cpu does not report.
func bestLevel() Level {
	x := &cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX2 && x.HasFMA:
		return AVX512
	case x.HasAVX2 && x.HasFMA:
		return AVX2
	}
	return Portable
}
