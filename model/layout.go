package model

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

const (
	embName  = "tok_emb"
	headName = "lm_head"
	normName = "final_norm"
)

// ParamInfo is one row of the parameter table.
type ParamInfo struct {
	Name  string // tok_emb, layers.0.wq, layers.0.attn_norm, final_norm, lm_head …
	Shape []int  // matrices are (in, out), tok_emb (V, C), gains (C)
	Decay bool   // weight decay applies: all matrices, no gains
	Arena int    // index of the mega-buffer that holds it
	Off   int    // first element within the arena, a multiple of op.AlignElems
}

// Len is the number of elements.
func (p ParamInfo) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Params lists the parameters in their canonical order: decayed matrices
// first (tok_emb, then each layer's, then lm_head when it is not tied), then
// the norm gains. Arena and Off are zero; Params.Infos has them.
func (c Config) Params() []ParamInfo {
	c = c.WithDefaults()
	C, F, q, kv := c.DModel, c.FFN, c.qDim(), c.kvDim()
	table := make([]ParamInfo, 0, 9*c.Layers+3)
	add := func(decay bool, name string, shape ...int) {
		table = append(table, ParamInfo{Name: name, Shape: shape, Decay: decay})
	}
	add(true, embName, c.VocabSize, C)
	for l := range c.Layers {
		add(true, layerName(l, "wq"), C, q)
		add(true, layerName(l, "wk"), C, kv)
		add(true, layerName(l, "wv"), C, kv)
		add(true, layerName(l, "wo"), q, C)
		add(true, layerName(l, "w_gate"), C, F)
		add(true, layerName(l, "w_up"), C, F)
		add(true, layerName(l, "w_down"), F, C)
	}
	if !c.Tied {
		add(true, headName, C, c.VocabSize)
	}
	for l := range c.Layers {
		add(false, layerName(l, "attn_norm"), C)
		add(false, layerName(l, "ffn_norm"), C)
	}
	add(false, normName, C)
	return table
}

func layerName(l int, name string) string { return fmt.Sprintf("layers.%d.%s", l, name) }

// alignUp rounds n up to a multiple of m.
func alignUp(n, m int) int { return (n + m - 1) / m * m }

// arenaLayout says what one arena holds: decayed tensors in elements [0,
// decayed), the others in [decayed, total).
type arenaLayout struct{ decayed, total int }

// place assigns arena and offset to every row of the table, beginning a new
// arena when a tensor would not fit the device's limits.
func place(table []ParamInfo, lim op.Limits) ([]arenaLayout, error) {
	capacity := maxElems(lim, tensor.F32)
	arenas := []arenaLayout{{}}
	for i := range table {
		p := &table[i]
		n := alignUp(p.Len(), op.AlignElems)
		if n > capacity {
			return nil, fmt.Errorf("parameter %s %v needs a buffer of %s, this device's limit is %s: "+
				"use a smaller vocab_size, d_model or ffn, or another device",
				p.Name, p.Shape, FormatBytes(4*int64(n)), FormatBytes(4*int64(capacity)))
		}
		a := &arenas[len(arenas)-1]
		if n > capacity-a.total {
			arenas = append(arenas, arenaLayout{})
			a = &arenas[len(arenas)-1]
		}
		p.Arena, p.Off = len(arenas)-1, a.total
		a.total += n
		if p.Decay {
			a.decayed = a.total
		}
	}
	return arenas, nil
}

// maxElems is the largest buffer of type t, in elements, that can be allocated
// and seen whole by a kernel, rounded down to op.AlignElems.
func maxElems(lim op.Limits, t tensor.DType) int {
	limit := int64(1) << 46 // no limit: far above any memory, far below overflow
	if lim.MaxBufferBytes > 0 {
		limit = min(limit, lim.MaxBufferBytes)
	}
	if lim.MaxBindingBytes > 0 {
		limit = min(limit, lim.MaxBindingBytes)
	}
	return int(min(limit, math.MaxInt)) / t.Size() / op.AlignElems * op.AlignElems
}
