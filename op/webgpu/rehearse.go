package webgpu

import (
	"maps"
	"sync"

	"tezgah/gpu"
	"tezgah/op"
)

// Rehearse returns a backend of the same launchers on a device that does nothing
// (gpu.NewRehearsal). Every choice that decides how much scratch memory a call
// takes is made by the code that makes it in earnest; nothing is measured, so tiles
// come from the static tables. A rehearsal outlives its device, and may itself be
// rehearsed, by several goroutines at once.
func (b *Backend) Rehearse() (op.Backend, error) {
	r := &Backend{
		dev:           gpu.NewRehearsal(b.dev.Info(), b.dev.Limits(), b.dev.Features()),
		features:      b.features,
		rehearsal:     true,
		kernels:       map[variant]*kernel{},
		optimizerSlot: map[optimizerKey]int{},
		tuner:         b.tuner,
	}
	r.tuner.mode, r.tuner.chosen, r.tuner.disk = TuneOff, map[tileClass]Tile{}, map[string]string{}
	r.matrix.fragments, r.matrix.rounding = maps.Clone(b.matrix.fragments), b.matrix.rounding
	if r.sources = b.sources; r.sources == nil {
		r.sources = new(sync.Map)
	}
	var err error
	if r.none, err = r.dev.NewBuffer("absent operand", b.none.Size()); err != nil {
		return nil, err
	}
	if r.numbers, err = r.dev.NewBuffer("changing numbers", b.numbers.Size()); err != nil {
		return nil, err
	}
	return r, nil
}
