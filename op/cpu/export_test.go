package cpu

import "tezgah/op"

// Address is where a float32 tensor lies in memory.
func Address(t op.Tensor) *float32 { return &floats(t)[0] }
