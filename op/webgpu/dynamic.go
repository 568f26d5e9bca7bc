package webgpu

import (
	"math"

	"tezgah/gpu"
)

// Most uniforms are the same in every step, and the device layer keeps them by
// content. Numbers that change with every step (learning rate, β powers, the
// position while decoding) would fill that cache and make a new bind group each
// time. They have places of their own in one small buffer, which is written
// when a number differs from the last one.

const (
	numberStride = 256 // bytes between places, WebGPU's uniform alignment
	numberSlots  = 64
)

// The fixed places; those from slotOptimizer on go to the optimizer's calls.
const (
	slotRoPE = iota
	slotKVAppend
	slotDecode
	slotDecodeSpans
	slotLossScale
	slotMaxNorm
	slotOptimizer
)

// number binds place slot with the given words.
func (b *Backend) number(slot int, words [4]uint32) (gpu.Binding, error) {
	if !b.numbersKnown[slot] || b.numbersNow[slot] != words {
		b.numbersNow[slot], b.numbersKnown[slot] = words, false
		if err := b.dev.Upload(b.numbers, uint64(slot)*numberStride, gpu.Bytes(b.numbersNow[slot][:])); err != nil {
			return gpu.Binding{}, err
		}
		b.numbersKnown[slot] = true
	}
	return gpu.Range(b.numbers, uint64(slot)*numberStride, 16), nil
}

// optimizerKey tells the optimizer's calls of a step apart by what they update.
type optimizerKey struct {
	mem    *gpu.Buffer
	offset int
}

// optimizerSlots returns two places for a call, always the same ones; when
// there are more calls than places some share theirs.
func (b *Backend) optimizerSlots(key optimizerKey) (int, int) {
	slot, ok := b.optimizerSlot[key]
	if !ok {
		const pairs = (numberSlots - slotOptimizer) / 2
		if len(b.optimizerSlot) >= 4*pairs {
			clear(b.optimizerSlot) // buffers that are gone
		}
		slot = slotOptimizer + len(b.optimizerSlot)%pairs*2
		b.optimizerSlot[key] = slot
	}
	return slot, slot + 1
}

// floatBits gives a float as a uniform's word.
func floatBits(x float32) uint32 { return math.Float32bits(x) }
