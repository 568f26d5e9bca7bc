package kern

import (
	"slices"
	"strings"
	"testing"
)

func TestSelectLevel(t *testing.T) {
	for _, l := range []Level{Portable, AVX2, AVX512, SIMD128, SIMD128FMA} {
		t.Setenv(EnvLevel, l.String())
		k, err := Select()
		if slices.Contains(Available(), l) {
			if err != nil || k.Level() != l {
				t.Errorf("%s: got level %s, error %v", l, k.Level(), err)
			}
		} else if err == nil || !strings.Contains(err.Error(), EnvLevel) {
			t.Errorf("%s is not available: got error %v, want one that names %s", l, err, EnvLevel)
		}
	}
	t.Setenv(EnvLevel, "sse9")
	if _, err := Select(); err == nil || !strings.Contains(err.Error(), "portable, avx2, avx512") {
		t.Errorf("sse9: got error %v, want the list of levels", err)
	}
	t.Setenv(EnvLevel, "")
	k, err := Select()
	if av := Available(); err != nil || k.Level() != av[len(av)-1] {
		t.Errorf("unset: got level %s, error %v, want the best of %v", k.Level(), err, av)
	}
}

func TestForUnknownLevel(t *testing.T) {
	for _, l := range []Level{-1, SIMD128FMA + 1} {
		if _, err := For(l); err == nil {
			t.Errorf("For(%d): got no error", l)
		}
	}
}
