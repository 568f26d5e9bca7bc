package model

import "tezgah/op"

// For tests outside the package.

// LogitsChunk are the logits of the last chunk; complete after Evaluate when one chunk
// holds all rows.
func (g *Graph) LogitsChunk() op.Tensor { return g.head.logits }

// LossSumTensor is where the losses are summed.
func (g *Graph) LossSumTensor() op.Tensor { return g.head.sum }
