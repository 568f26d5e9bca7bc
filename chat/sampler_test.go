package chat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// testSet is a set of n conversations of very different lengths.
func testSet(t testing.TB, seed uint64, n int) *Set {
	t.Helper()
	return mustLoad(t, lines(rand.New(rand.NewPCG(seed, 9)), n), nil).Train
}

// piece is a conversation as it lies in a row: inputs, and targets with −1.
type piece struct{ tokens, targets []int32 }

func (p piece) key() string { return fmt.Sprint(p.tokens, p.targets) }

// wanted are the pieces that an epoch must have, computed from the encodings alone, and the numbers of a Packing that
// follow from them.
func wanted(set *Set, T int) (pieces []string, p Packing) {
	for i := range set.Len() {
		ids, learn := set.Conversation(i)
		last, lastInside, targets := 0, 0, int64(0)
		for k, l := range learn {
			if !l {
				continue
			}
			last = k
			if k <= T {
				lastInside = k
				targets++
			} else {
				p.Lost++
			}
		}
		if lastInside == 0 {
			p.Skipped++
			continue
		}
		n := last
		if n > T {
			n = T
			p.Truncated++
		}
		w := piece{ids[:n], make([]int32, n)}
		for k := range n {
			w.targets[k] = -1
			if learn[k+1] {
				w.targets[k] = ids[k+1]
			}
		}
		pieces = append(pieces, w.key())
		p.Conversations++
		p.Targets += targets
		p.Positions += int64(n)
	}
	slices.Sort(pieces)
	return pieces, p
}

// split takes a row apart at the starts that docStart names, checks docStart, and returns the conversations without the
// padding.
func split(t *testing.T, tokens, targets, docStart []int32) (pieces []string) {
	t.Helper()
	any := false
	for at := 0; at < len(tokens); {
		if int(docStart[at]) != at {
			t.Fatalf("position %d sees from %d on, which is another conversation", at, docStart[at])
		}
		end := at + 1
		for end < len(tokens) && int(docStart[end]) == at {
			end++
		}
		counted := slices.ContainsFunc(targets[at:end], func(x int32) bool { return x != -1 })
		any = any || counted
		if !counted && (end != at+1 || tokens[at] != 0) {
			t.Fatalf("positions %d to %d teach nothing and are no padding", at, end)
		}
		if counted {
			pieces = append(pieces, piece{tokens[at:end], targets[at:end]}.key())
		}
		at = end
	}
	if !any {
		t.Fatal("a row teaches nothing")
	}
	return pieces
}

var contexts = []int{15, 24, 33, 64, 129, 1000}

// TestEpochHasEveryConversationOnce, for short and odd and long rows: what the rows of an epoch hold is each
// conversation, cut to T, once, with every learned token as a target once, and the same again in the next epoch in
// another order. The counts are right.
func TestEpochHasEveryConversationOnce(t *testing.T) {
	set := testSet(t, 1, 150)
	for _, T := range contexts {
		want, counts := wanted(set, T)
		s, err := NewSampler(set, T, 3)
		if err != nil {
			t.Fatal(err)
		}
		if T == contexts[0] && (counts.Skipped == 0 || counts.Truncated == 0) {
			t.Errorf("T %d cuts %d conversations and leaves out %d: the test shows too little", T, counts.Truncated, counts.Skipped)
		}
		counts.Rows = s.WindowsPerEpoch()
		if s.Packing() != counts {
			t.Errorf("T %d: packing %+v, want %+v", T, s.Packing(), counts)
		}
		tokens, targets, docStart := make([]int32, T), make([]int32, T), make([]int32, T)
		var order [2][]string
		for epoch := range order {
			var got []string
			for range s.WindowsPerEpoch() {
				for i := range tokens {
					tokens[i], targets[i], docStart[i] = -99, -99, -99
				}
				if err := s.Next(tokens, targets, docStart); err != nil {
					t.Fatal(err)
				}
				got = append(got, split(t, tokens, targets, docStart)...)
			}
			if s.Epoch() != float64(epoch+1) {
				t.Errorf("T %d: epoch %v after %d epochs", T, s.Epoch(), epoch+1)
			}
			order[epoch] = slices.Clone(got)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("T %d, epoch %d: %d conversations, want %d, or not the same", T, epoch, len(got), len(want))
			}
		}
		if slices.Equal(order[0], order[1]) {
			t.Errorf("T %d: two epochs have one order", T)
		}
	}
}

// TestWindowsReadAll: Windows has the same conversations, in a fixed order, from any place, and nothing behind them.
func TestWindowsReadAll(t *testing.T) {
	set := testSet(t, 2, 60)
	for _, T := range contexts {
		want, counts := wanted(set, T)
		w, err := NewWindows(set, T)
		if err != nil {
			t.Fatal(err)
		}
		if w.Targets() != counts.Targets || w.Packing().Conversations != counts.Conversations {
			t.Errorf("T %d: %d targets, want %d", T, w.Targets(), counts.Targets)
		}
		B := int(w.Count()) + 2
		tokens, targets, docStart := make([]int32, B*T), make([]int32, B*T), make([]int32, B*T)
		if err := w.Read(0, tokens, targets, docStart); err != nil {
			t.Fatal(err)
		}
		var got []string
		for r := range int(w.Count()) {
			lo, hi := r*T, (r+1)*T
			got = append(got, split(t, tokens[lo:hi], targets[lo:hi], docStart[lo:hi])...)
			one, tg, ds := make([]int32, T), make([]int32, T), make([]int32, T)
			if err := w.Read(int64(r), one, tg, ds); err != nil || !slices.Equal(one, tokens[lo:hi]) || !slices.Equal(tg, targets[lo:hi]) || !slices.Equal(ds, docStart[lo:hi]) {
				t.Fatalf("T %d: row %d read alone differs (%v)", T, r, err)
			}
		}
		for i, x := range targets[int(w.Count())*T:] {
			if x != -1 || tokens[int(w.Count())*T+i] != 0 {
				t.Fatalf("T %d: a target behind the last row", T)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("T %d: %d conversations, want %d, or not the same", T, len(got), len(want))
		}
	}
}

// TestResumeIsUnbroken: from any cursor a new sampler goes on as the first one did, across epochs.
func TestResumeIsUnbroken(t *testing.T) {
	const T, B = 65, 3
	set := testSet(t, 3, 40)
	draw := func(s *Sampler, steps int) (all []int32) {
		tokens, targets, docStart := make([]int32, B*T), make([]int32, B*T), make([]int32, B*T)
		for range steps {
			if err := s.Next(tokens, targets, docStart); err != nil {
				t.Fatal(err)
			}
			all = append(append(append(all, tokens...), targets...), docStart...)
		}
		return all
	}
	fresh := func(seed uint64) *Sampler {
		s, err := NewSampler(set, T, seed)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	steps := 3*int(fresh(5).WindowsPerEpoch())/B + 2
	whole := draw(fresh(5), steps)
	for _, done := range []int{0, 1, steps / 3, steps / 2, steps - 1} {
		a, b := fresh(5), fresh(5)
		draw(a, done)
		if err := b.SetCursor(a.Cursor()); err != nil {
			t.Fatal(err)
		}
		if got := draw(b, steps-done); !slices.Equal(got, whole[3*B*T*done:]) {
			t.Errorf("after %d steps a resumed sampler draws something else", done)
		}
	}
	if slices.Equal(whole, draw(fresh(6), steps)) {
		t.Error("two seeds give one order")
	}
}

// TestPackingIsTight: no two rows could be one, as first-fit guarantees, and on these lengths little is padding.
func TestPackingIsTight(t *testing.T) {
	set := testSet(t, 4, 500)
	for _, T := range contexts {
		r, err := newRows(set, T, 1)
		if err != nil {
			t.Fatal(err)
		}
		free := make([]int, r.Rows)
		for row := range free {
			free[row] = T
			for _, c := range r.order[r.first[row]:r.first[row+1]] {
				free[row] -= r.need(c)
			}
			if free[row] < 0 || free[row] == T {
				t.Fatalf("T %d: row %d has %d positions left", T, row, free[row])
			}
		}
		slices.Sort(free)
		if n := len(free); n > 1 && free[n-1]+free[n-2] >= T {
			t.Errorf("T %d: two rows with %d and %d positions left could be one", T, free[n-1], free[n-2])
		}
		if fill := float64(r.Positions) / float64(r.Rows*int64(T)); T >= 129 && fill < 0.98 {
			t.Errorf("T %d: %.3f of the positions are used", T, fill)
		}
	}
}

// TestLongest compares the search in words of bits with a plain one.
func TestLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		n := 1 + rng.IntN(300)
		lists := make([][]int32, n+1)
		for range rng.IntN(6) {
			lists[1+rng.IntN(n)] = []int32{1}
		}
		l := newLengths(lists)
		for most := 0; most <= n; most++ {
			want := most
			for want > 0 && len(lists[want]) == 0 {
				want--
			}
			if got := l.longest(most); got != want {
				t.Fatalf("longest up to %d of %v is %d, want %d", most, l, got, want)
			}
		}
	}
}

func TestBatchesRefuse(t *testing.T) {
	set := testSet(t, 5, 5)
	if _, err := NewSampler(set, 0, 1); err == nil || !strings.Contains(err.Error(), "context of 0") {
		t.Errorf("a context of 0: %v", err)
	}
	if _, err := NewSampler(set, 2, 1); err == nil || !strings.Contains(err.Error(), "none of the 5") {
		t.Errorf("a context too short for any answer: %v", err)
	}
	if _, err := NewWindows(newSet(set.store, nil), 8); err == nil || !strings.Contains(err.Error(), "no conversations") {
		t.Errorf("an empty set: %v", err)
	}
	s, err := NewSampler(set, 40, 1)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWindows(set, 40)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]int32, 40)
	for want, batch := range map[string][3][]int32{
		"tokens has 39":   {row[:39], row[:39], row[:39]},
		"tokens has 0":    {nil, nil, nil},
		"targets has 39":  {row, row[:39], row},
		"docStart is nil": {row, row, nil},
		"docStart has 1":  {row, row, row[:1]},
	} {
		for _, err := range []error{s.Next(batch[0], batch[1], batch[2]), w.Read(0, batch[0], batch[1], batch[2])} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	if err := w.Read(-1, row, row, row); err == nil {
		t.Error("row -1 was read")
	}
	for _, c := range [][]int64{nil, {1, 2}, {-1}} {
		if err := s.SetCursor(c); err == nil || s.Cursor()[0] != 0 {
			t.Errorf("cursor %v: %v, then %v", c, err, s.Cursor())
		}
	}
}
