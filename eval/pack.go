package eval

import (
	"cmp"
	"slices"

	"tezgah/model"
)

// request asks for the log-probabilities of the last tokens of a sequence.
type request struct {
	seq    []int32 // what the model reads, and after it the last token to score
	scored int     // tokens to score, at the end of seq
}

// inputs is the number of tokens that the model reads: all but the last, which
// is only predicted.
func (r request) inputs() int { return len(r.seq) - 1 }

// shape is a run of requests that go through one graph: batches of rows
// sequences of length tokens.
type shape struct {
	rows, length int
	order        []int // indices of requests; each batch takes the next rows of them
}

// lengths are the row lengths of graphs: steps of a half or a third, so that at
// most a third of a row is padding and a file of tasks needs few graphs.
var lengths = []int{16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192}

// pack sorts requests by length, and equal lengths by their tokens, and cuts
// them into shapes of at most maxTokens tokens a batch. Because of that order
// a request always shares its batch with the same others, wherever it stands
// in the file. No request may read more than context tokens.
func pack(reqs []request, maxTokens, context int) []shape {
	order := make([]int, len(reqs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := reqs[a], reqs[b]
		return cmp.Or(cmp.Compare(len(x.seq), len(y.seq)), slices.Compare(x.seq, y.seq), cmp.Compare(x.scored, y.scored))
	})
	var shapes []shape
	for len(order) > 0 {
		length := roundUp(reqs[order[0]].inputs(), context)
		n := 0
		for n < len(order) && reqs[order[n]].inputs() <= length {
			n++
		}
		batches := ceil(n, max(1, maxTokens/length))
		shapes = append(shapes, shape{rows: ceil(n, batches), length: length, order: order[:n]})
		order = order[n:]
	}
	return shapes
}

// roundUp is the shortest row length that holds n tokens.
func roundUp(n, context int) int {
	for _, l := range lengths {
		if l >= n {
			return min(l, context)
		}
	}
	return context
}

func ceil(a, b int) int { return (a + b - 1) / b }

// fill lays requests out as a batch, (rows, length) row-major. Padding stands
// behind a sequence, where causal attention keeps it from being seen, and has
// no target.
func fill(tokens, targets []int32, length int, reqs []request, which []int) {
	clear(tokens)
	for i := range targets {
		targets[i] = model.IgnoreIndex
	}
	for row, i := range which {
		r := reqs[i]
		n := r.inputs()
		copy(tokens[row*length:], r.seq[:n])
		copy(targets[row*length+n-r.scored:], r.seq[len(r.seq)-r.scored:])
	}
}

// sumScored adds up a row's losses as a log-likelihood. losses is (length),
// which fill has laid out.
func (r request) sumScored(losses []float32) float64 {
	n := r.inputs()
	sum := 0.0
	for _, l := range losses[n-r.scored : n] {
		sum -= float64(l)
	}
	return sum
}
