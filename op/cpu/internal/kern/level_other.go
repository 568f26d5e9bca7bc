//go:build !amd64

package kern

// bestLevel is portable Go wherever there is no assembly.
func bestLevel() Level { return Portable }
