package corpus

import "fmt"

// Windows reads a source front to back in windows of T tokens that do not overlap, so that every target counts exactly
// once: what evaluation needs. It has no state; any window can be read at any time.
type Windows struct {
	src     Source
	T       int
	docMask bool
}

// NewWindows prepares to read src in windows of T tokens. docMask is as in SamplerOptions. A source shorter than one
// window is an error only when it has no target at all (fewer than 2 tokens).
func NewWindows(src Source, T int, docMask bool) (*Windows, error) {
	if T < 1 {
		return nil, fmt.Errorf("windows: context of %d tokens, want at least 1", T)
	}
	if err := src.check(1); err != nil {
		return nil, fmt.Errorf("windows: %w", err)
	}
	return &Windows{src, T, docMask}, nil
}

// Count is the number of windows, the last of which may be partial.
func (w *Windows) Count() int64 {
	return (w.src.Len() - 1 + int64(w.T) - 1) / int64(w.T)
}

// Targets is the number of targets in all windows when none is ignored.
func (w *Windows) Targets() int64 { return w.src.Len() - 1 }

// Read fills tokens and targets, both (B, T), with the B = len(tokens)/T windows from number first on, and docStart,
// which may be nil, as Sampler.Next does. Behind the end of the source tokens are 0 and targets IgnoreTarget.
func (w *Windows) Read(first int64, tokens, targets, docStart []int32) error {
	if err := checkRows(w.T, tokens, targets, docStart); err != nil {
		return fmt.Errorf("windows: %w", err)
	}
	if first < 0 {
		return fmt.Errorf("windows: window %d, want one from 0 on", first)
	}
	row := make([]int32, w.T+1)
	for b := 0; b < len(tokens)/w.T; b++ {
		at := b * w.T
		var starts []int32
		if docStart != nil {
			starts = docStart[at : at+w.T]
		}
		if err := w.readRow(first+int64(b), row, tokens[at:at+w.T], targets[at:at+w.T], starts); err != nil {
			return fmt.Errorf("windows: %w", err)
		}
	}
	return nil
}

func (w *Windows) readRow(i int64, row, tokens, targets, docStart []int32) error {
	clear(row)
	n := int64(0) // tokens of the row that exist
	if i < w.Count() {
		off := w.src.Lo + i*int64(w.T)
		n = min(w.src.Hi-off, int64(len(row)))
		if err := w.src.Data.Read(row[:n], off); err != nil {
			return err
		}
	}
	fillRow(w.src.Data, row, tokens, targets, docStart, w.docMask)
	for t := max(0, n-1); t < int64(w.T); t++ {
		targets[t] = IgnoreTarget
	}
	return nil
}
