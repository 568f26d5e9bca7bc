package kern

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Level names an instruction set that the kernels are written for.
type Level int

// The levels, from the one every machine has to the fastest.
const (
	Portable   Level = iota // plain Go
	AVX2                    // 256-bit vectors with fused multiply-add
	AVX512                  // 512-bit vectors (F, BW, DQ, VL)
	SIMD128                 // WebAssembly's 128-bit vectors, in programs built with the tag simd128
	SIMD128FMA              // the same with the multiply-adds of relaxed SIMD in products
)

// EnvLevel is the environment variable that forces a level by its name.
const EnvLevel = "TEZGAH_CPU"

var levelNames = [...]string{Portable: "portable", AVX2: "avx2", AVX512: "avx512", SIMD128: "simd128", SIMD128FMA: "simd128-fma"}

// String returns the level's name as EnvLevel spells it.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

// ParseLevel is the inverse of Level.String.
func ParseLevel(name string) (Level, error) {
	for l, s := range levelNames {
		if strings.EqualFold(strings.TrimSpace(name), s) {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("cpu level %q is unknown, want one of %s", name, strings.Join(levelNames[:], ", "))
}

// Kernels runs every kernel at one level. The zero value is the portable level. It is a small
// value, safe to copy and to use from any number of goroutines.
type Kernels struct {
	level Level
}

// Level returns the level that the kernels run at.
func (k Kernels) Level() Level { return k.level }

// Available lists the levels this machine can run, the fastest last.
func Available() []Level {
	best := bestLevel()
	ls := []Level{Portable}
	first := AVX2
	if best >= SIMD128 {
		first = SIMD128
	}
	for l := first; l <= best; l++ {
		ls = append(ls, l)
	}
	return ls
}

// For returns the kernels of one level, or an error if this machine cannot run it.
func For(l Level) (Kernels, error) {
	if all := Available(); !slices.Contains(all, l) {
		return Kernels{}, fmt.Errorf("cpu level %s is not available on this machine, whose best is %s", l, all[len(all)-1])
	}
	return Kernels{level: l}, nil
}

// Select returns the kernels that the environment variable TEZGAH_CPU asks for, or the machine's
// fastest when it is unset or empty.
func Select() (Kernels, error) {
	name := os.Getenv(EnvLevel)
	if name == "" {
		return For(bestLevel())
	}
	l, err := ParseLevel(name)
	if err != nil {
		return Kernels{}, fmt.Errorf("environment variable %s: %w", EnvLevel, err)
	}
	k, err := For(l)
	if err != nil {
		return Kernels{}, fmt.Errorf("environment variable %s: %w; unset it to use that", EnvLevel, err)
	}
	return k, nil
}
