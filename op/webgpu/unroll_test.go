//go:build !js

package webgpu

import (
	"strings"
	"testing"
)

func TestUnroll(t *testing.T) {
	source := `const A: u32 = 2u;
const B: u32 = (A + 4u) / A - 1u;
fn f() {
  for (var i = 0u; i < B; i++) { // unroll
    for (var j = 0u; j < A / 2u; j++) { // unroll
      x[i * A + j] = ij;
    }
  }
  for (var i = 0u; i < B; i++) {
    y(i);
  }
}`
	want := `fn f() {
  {
    {
      x[0u * A + 0u] = ij;
    }
  }
  {
    {
      x[1u * A + 0u] = ij;
    }
  }
  for (var i = 0u; i < B; i++) {
    y(i);
  }
}`
	got, err := unroll(source)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ = strings.Cut(got, "1u;\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnrollErrors(t *testing.T) {
	for body, say := range map[string]string{
		"  for (var i = 0u; i < N; i++) { // unroll\n  }":                                                       "N is not a constant",
		"  for (var i = 0u; j < 2u; i++) { // unroll\n  }":                                                      "several variables",
		"  for (var i = 0u; i < 2u; i++) { // unroll\n    }":                                                    "not closed",
		"  for (var i = 0u; i < 2u / 0u; i++) { // unroll\n  }":                                                 "division by zero",
		"  for (var i = 0u; i < (2u; i++) { // unroll\n  }":                                                     "parenthesis",
		"  for (var i = 0u; i < 2u %; i++) { // unroll\n  }":                                                    "cannot read",
		"const N = N + 1u;\n  for (var i = 0u; i < N; i++) { // unroll\n  }":                                    "refers to itself",
		"  for (var i = 0u; i < 400000u; i++) { // unroll\n    x();\n  }":                                       "more than",
		"  for (var i = 0u; i < 2u; i++) { // unroll\n    for (var k = 0u; k < M; k++) { // unroll\n    }\n  }": "M is not a constant",
	} {
		if _, err := unroll(body); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: got %v, want an error that says %q", body, err, say)
		}
	}
}

func FuzzUnroll(f *testing.F) {
	f.Add("const N: u32 = 2u;\n  for (var i = 0u; i < N * (1u + 1u); i++) { // unroll\n    a[i];\n  }\n")
	f.Fuzz(func(t *testing.T, source string) {
		got, err := unroll(source)
		if err == nil && !strings.Contains(source, "// unroll") && got != source {
			t.Errorf("%q became %q", source, got)
		}
	})
}
