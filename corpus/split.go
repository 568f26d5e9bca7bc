package corpus

import "fmt"

// SplitTail holds out the last fraction of a dataset for validation. The cut is moved to the next start of a document
// when there is one that leaves at least half of the held-out part, so that no document is on both sides. Both parts
// have at least one window of T tokens and their targets, else it is an error.
func SplitTail(d *Dataset, fraction float64, T int) (train, val Source, err error) {
	if !(fraction > 0 && fraction < 1) {
		return train, val, fmt.Errorf("held-out fraction %v, want more than 0 and less than 1", fraction)
	}
	if T < 1 {
		return train, val, fmt.Errorf("context of %d tokens, want at least 1", T)
	}
	least := int64(T) + 1
	if d.Len() < 2*least {
		return train, val, fmt.Errorf("%s: %d tokens are fewer than a window of %d for training and one for validation (%d): "+
			"give more text or a shorter context", d.Name(), d.Len(), T, 2*least)
	}
	held := int64(float64(d.Len()) * fraction)
	held = min(max(held, least), d.Len()-least)
	cut := d.Len() - held
	if d.Docs() > 0 {
		if next := d.DocStart(d.DocAt(cut-1) + 1); d.Len()-next >= max(least, held/2) {
			cut = next
		}
	}
	return Source{Data: d, Hi: cut}, Source{Data: d, Lo: cut, Hi: d.Len()}, nil
}
