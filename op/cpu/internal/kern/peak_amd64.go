package kern

// fmaLoop runs iters iterations of the peak loop and returns how many floating-point operations
// they were; portable Go has no such loop and returns 0.
func (k Kernels) fmaLoop(iters int) (flops float64) {
	switch k.level {
	case AVX512:
		fmaPeakAVX512(iters)
		return float64(iters) * 4 * 24 * 16 * 2
	case AVX2:
		fmaPeakAVX2(iters)
		return float64(iters) * 4 * 12 * 8 * 2
	}
	return portableFMALoop(iters)
}
