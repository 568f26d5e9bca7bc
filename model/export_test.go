package model

import "tezgah/op"

// For tests outside the package.

// Logits are those of the last chunk; complete after Evaluate when one chunk
// holds all rows.
func (g *Graph) Logits() op.Tensor { return g.head.logits }

// LossSumTensor is where the losses are summed.
func (g *Graph) LossSumTensor() op.Tensor { return g.head.sum }
