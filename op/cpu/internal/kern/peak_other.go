//go:build !amd64

package kern

func (Kernels) fmaLoop(iters int) (flops float64) { return portableFMALoop(iters) }
