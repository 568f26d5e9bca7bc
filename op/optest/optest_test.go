package optest_test

import (
	"testing"

	"tezgah/op"
	"tezgah/op/optest"
	"tezgah/op/ref"
)

// TestReference runs the suite on the reference in float32: plain loops in the
// obvious order must stay within the bounds.
func TestReference(t *testing.T) {
	optest.Run(t, func() (op.Backend, error) { return ref.New[float32](), nil }, optest.Options{})
}
