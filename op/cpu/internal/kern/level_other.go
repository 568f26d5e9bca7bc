//go:build !amd64 && !(js && simd128)

package kern

// bestLevel is portable Go wherever there is no assembly.
func bestLevel() Level { return Portable }
