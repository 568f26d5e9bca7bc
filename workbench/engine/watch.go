package engine

import (
	"math"

	"tezgah/runlog"
)

// Warning is something wrong with a run, as a code and the numbers that a
// sentence about it needs.
type Warning struct {
	Code   string         `json:"code"`
	Step   int64          `json:"step"`
	Values map[string]any `json:"values"`
}

// The codes of warnings.
const (
	warnNonFinite   = "nonfinite"     // count: NaN and infinite gradients
	warnSkipped     = "skipped"       // count: steps in a row that changed nothing
	warnDiverged    = "diverged"      // loss: it is above where it began, or no number
	warnRising      = "loss_rising"   // from, to: smoothed training loss
	warnOverfitting = "overfitting"   // best, now, since: validation loss, and the step of the best
	warnSlowStart   = "slow_start"    // from, to: the loss has hardly moved
	maxWarnings     = 50              // kept of one run, the newest
	firstSteps      = 5               // the loss that a run began with is their mean
	smoothSteps     = 50              // horizon of the smoothed loss
	settleSteps     = 2 * smoothSteps // before that the smoothed loss is not compared
	slowSteps       = 200             // at half the peak rate and above, after which a loss should have moved
	skippedInRow    = 3
	scaledInRow     = 16 // with a loss scale, which halves at each
	overfitEvals    = 3  // evaluations in a row above the best
)

// watcher looks for trouble in the records of a run, which it gets in order.
// Losses of single steps are noisy, so it compares a smoothed loss and asks for
// a rise that is large against its own noise and lasts.
type watcher struct {
	peakLR     float64 // of the schedule
	pretrained bool    // the run began from trained weights, whose loss need not fall at once

	warnings []Warning

	steps, fast int64 // seen; of them with half the peak rate or more
	first       float64
	smooth      ema // of the loss
	noise       ema // of (loss − smooth)²
	best        float64
	above       int64 // steps in a row that the smoothed loss was clearly above the best
	diverged    bool
	slow        bool
	skipped     int64

	evals    int64
	bestVal  float64
	bestStep int64
	bestLoss float64 // smoothed training loss then
	worse    int64   // evaluations in a row above the best
}

// ema is an exponential mean without the bias of its start.
type ema struct{ sum, weight float64 }

func (e *ema) add(x, alpha float64) {
	e.sum += alpha * (x - e.sum)
	e.weight += alpha * (1 - e.weight)
}

func (e *ema) mean() float64 {
	if e.weight == 0 {
		return 0
	}
	return e.sum / e.weight
}

func (w *watcher) warn(code string, step int64, values map[string]any) {
	w.warnings = append(w.warnings, Warning{code, step, values})
	if n := len(w.warnings) - maxWarnings; n > 0 {
		w.warnings = w.warnings[n:]
	}
}

// step takes the next record.
func (w *watcher) step(r runlog.Step) {
	w.nonFinite(r)
	if isFinite(r.Loss) {
		w.loss(r)
	} else if !w.diverged {
		w.diverged = true
		w.warn(warnDiverged, r.Step, map[string]any{"loss": number(r.Loss)})
	}
	if r.ValLoss != nil && isFinite(*r.ValLoss) {
		w.validation(r.Step, *r.ValLoss)
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// nonFinite counts gradients that are no numbers. Those of steps close together
// are one warning, which grows.
func (w *watcher) nonFinite(r runlog.Step) {
	if r.NonFinite == 0 {
		w.skipped = 0
		return
	}
	w.skipped++
	if r.LossScale > 0 && w.skipped < scaledInRow {
		return // how a loss scale finds its height
	}
	if last := w.last(warnNonFinite); last != nil && r.Step-last.Step <= smoothSteps {
		last.Step = r.Step
		last.Values["count"] = last.Values["count"].(int64) + r.NonFinite
		last.Values["steps"] = last.Values["steps"].(int64) + 1
	} else {
		w.warn(warnNonFinite, r.Step, map[string]any{"count": r.NonFinite, "steps": int64(1)})
	}
	limit := int64(skippedInRow)
	if r.LossScale > 0 {
		limit = scaledInRow
	}
	switch last := w.last(warnSkipped); {
	case w.skipped == limit:
		w.warn(warnSkipped, r.Step, map[string]any{"count": w.skipped})
	case w.skipped > limit && last != nil:
		last.Step, last.Values["count"] = r.Step, w.skipped
	}
}

// last is the newest warning with a code.
func (w *watcher) last(code string) *Warning {
	for i := len(w.warnings) - 1; i >= 0; i-- {
		if w.warnings[i].Code == code {
			return &w.warnings[i]
		}
	}
	return nil
}

// loss follows the training loss.
func (w *watcher) loss(r runlog.Step) {
	const alpha = 1.0 / smoothSteps
	w.steps++
	if w.steps <= firstSteps {
		w.first += (r.Loss - w.first) / float64(w.steps)
	}
	if w.steps > 1 {
		d := r.Loss - w.smooth.mean()
		w.noise.add(d*d, alpha)
	}
	w.smooth.add(r.Loss, alpha)
	if r.LR >= w.peakLR/2 {
		w.fast++
	}
	now := w.smooth.mean()
	w.divergence(r.Step, now)
	if w.fast == slowSteps && !w.slow && !w.pretrained && now > 0.98*w.first {
		w.slow = true
		w.warn(warnSlowStart, r.Step, map[string]any{"from": number(w.first), "to": number(now)})
	}
	if w.steps < settleSteps {
		return
	}
	if w.steps == settleSteps || now < w.best {
		w.best = now
	}
	// The smoothed loss of a flat, noisy curve strays by this much; its lowest
	// point in thousands of steps lies about four times as far down.
	stray := math.Sqrt(w.noise.mean() * alpha / (2 - alpha))
	if now <= w.best+10*stray+0.02*math.Abs(w.best) {
		w.above = 0
		return
	}
	if w.above++; w.above == smoothSteps {
		w.warn(warnRising, r.Step, map[string]any{"from": number(w.best), "to": number(now)})
		w.best, w.above = now, 0 // a further warning needs a further rise
	}
}

// divergence compares with where the run began.
func (w *watcher) divergence(step int64, now float64) {
	if w.steps < smoothSteps {
		return
	}
	switch limit := w.first + max(0.5, 0.1*w.first); {
	case now > limit && !w.diverged:
		w.diverged = true
		w.warn(warnDiverged, step, map[string]any{"loss": number(now), "from": number(w.first)})
	case now < w.first:
		w.diverged = false
	}
}

// validation follows the loss on held-out text, which is measured on the same
// text each time: it rises while the training loss goes on falling when a model
// learns its text by heart.
func (w *watcher) validation(step int64, val float64) {
	if w.evals++; w.evals == 1 || val < w.bestVal {
		w.bestVal, w.bestStep, w.bestLoss, w.worse = val, step, w.smooth.mean(), 0
		return
	}
	if val <= w.bestVal*1.003 {
		w.worse = 0
		return
	}
	w.worse++
	if w.worse < overfitEvals || val < w.bestVal*1.01 || w.smooth.mean() >= w.bestLoss {
		return
	}
	values := map[string]any{"best": number(w.bestVal), "now": number(val), "since": w.bestStep}
	if last := w.last(warnOverfitting); last != nil && last.Values["since"] == w.bestStep {
		last.Step, last.Values = step, values
		return
	}
	w.warn(warnOverfitting, step, values)
}

// list is a copy that does not change any more.
func (w *watcher) list() []Warning {
	out := make([]Warning, len(w.warnings))
	for i, x := range w.warnings {
		values := make(map[string]any, len(x.Values))
		for k, v := range x.Values {
			values[k] = v
		}
		out[i] = Warning{x.Code, x.Step, values}
	}
	return out
}
