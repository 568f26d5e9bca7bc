package train

import (
	"math"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// idRange is a run of ids, [lo, hi).
type idRange struct{ lo, hi int }

func (r idRange) empty() bool { return r.hi <= r.lo }

// vocabStates splits a model's weights into those with a row or a column for
// every id and the others.
func vocabStates(states []model.State) (vocab, others []model.State) {
	for _, s := range states {
		if s.Name == "tok_emb" || s.Name == "lm_head" {
			vocab = append(vocab, s)
		} else {
			others = append(others, s)
		}
	}
	return vocab, others
}

// loadVocab reads a vocabulary matrix of a file whose model has old ids into s,
// which may have more, and draws the fresh ids anew. The ids of the file that
// are not fresh keep their weights.
func loadVocab(r *op.Runner, f *checkpoint.LLM, s model.State, old int, fresh idRange, seed uint64) error {
	m := vocabMatrix{byID: s.Name == "tok_emb"}
	shape := []int{old, s.Shape[1]}
	m.ids, m.channels = s.Shape[0], s.Shape[1]
	if !m.byID {
		shape, m.ids, m.channels = []int{s.Shape[0], old}, s.Shape[1], s.Shape[0]
	}
	if err := sameShape(f, s.Name, tensor.F32, shape); err != nil {
		return err
	}
	was := vocabMatrix{byID: m.byID, ids: old, channels: m.channels, x: make([]float32, old*m.channels)}
	if err := f.ReadFloat32(s.Name, was.x); err != nil {
		return err
	}
	m.x = make([]float32, m.ids*m.channels)
	for id := range min(old, m.ids) {
		for c := range m.channels {
			*m.at(id, c) = *was.at(id, c)
		}
	}
	m.draw(fresh, tensor.NewRNG(seed, freshStream))
	op.WriteSlice(r, s.T, m.x)
	return r.Err()
}

// freshStream keeps the draws of new ids apart from the seed's other uses.
const freshStream = 0x66726573_68696473

// vocabMatrix is a matrix with one vector of channels for every id.
type vocabMatrix struct {
	byID          bool // (ids, channels), as tok_emb; else (channels, ids), as lm_head
	ids, channels int
	x             []float32
}

func (m *vocabMatrix) at(id, channel int) *float32 {
	if m.byID {
		return &m.x[id*m.channels+channel]
	}
	return &m.x[channel*m.ids+id]
}

// draw gives every fresh id a vector from the normal distribution that has, in
// each channel, mean and variance of the ids before them. A token that means
// nothing yet then gets an average token's logit (Hewitt, "Initializing New Word
// Embeddings for Pretrained Language Models", 2021), and two of them differ,
// which matters where they stay frozen.
func (m *vocabMatrix) draw(fresh idRange, rng tensor.RNG) {
	mean, dev := m.moments(fresh.lo)
	noise := make([]float32, m.channels)
	for id := fresh.lo; id < fresh.hi; id++ {
		rng.Normal(noise, uint64(id)*uint64(m.channels), 1)
		for c := range m.channels {
			*m.at(id, c) = float32(mean[c] + dev[c]*float64(noise[c]))
		}
	}
}

// moments are mean and standard deviation of each channel over the first n ids.
func (m *vocabMatrix) moments(n int) (mean, dev []float64) {
	mean, dev = make([]float64, m.channels), make([]float64, m.channels)
	scale := 1 / float64(max(1, n))
	for id := range n {
		for c := range mean {
			mean[c] += scale * float64(*m.at(id, c))
		}
	}
	for id := range n {
		for c := range dev {
			d := float64(*m.at(id, c)) - mean[c]
			dev[c] += scale * d * d
		}
	}
	for c := range dev {
		dev[c] = math.Sqrt(dev[c])
	}
	return mean, dev
}
