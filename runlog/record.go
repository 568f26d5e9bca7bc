package runlog

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Step is the record of one optimizer update.
type Step struct {
	Step      int64     // updates done, from 1
	Loss      float64   // mean training loss of the step, nats a token
	ValLoss   *float64  // loss on held-out text, when it was measured at this step
	LR        float64   // learning rate of the update
	GradNorm  float64   // norm of the gradient before clipping
	Clip      float64   // factor the gradient was multiplied with, 1 for none
	Tokens    int64     // tokens trained on since the run began
	TokPerSec float64   // tokens a second in this step
	NonFinite int64     // NaN and Inf among the gradients; above 0 the step was skipped or repaired
	LossScale float64   // that the next step uses, 0 without loss scaling
	Time      time.Time // when the step ended; zero means now
}

// stepLine is a Step as JSON. Field order is the order in the file.
type stepLine struct {
	Type      string    `json:"type"`
	Step      int64     `json:"step"`
	Loss      number    `json:"loss"`
	ValLoss   *number   `json:"val_loss,omitempty"`
	LR        number    `json:"lr"`
	GradNorm  number    `json:"grad_norm"`
	Clip      number    `json:"clip"`
	Tokens    int64     `json:"tokens"`
	TokPerSec number    `json:"tok_per_s"`
	NonFinite int64     `json:"nonfinite"`
	LossScale number    `json:"loss_scale,omitempty"`
	Time      time.Time `json:"time"`
}

const typeStep = "step"

// MarshalJSON writes the line of the log, without the newline.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(stepLine{
		typeStep, s.Step, number(s.Loss), (*number)(s.ValLoss), number(s.LR), number(s.GradNorm), number(s.Clip),
		s.Tokens, number(s.TokPerSec), s.NonFinite, number(s.LossScale), stamp(s.Time),
	})
}

// UnmarshalJSON reads a line of the log.
func (s *Step) UnmarshalJSON(b []byte) error {
	var l stepLine
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	if l.Type != typeStep {
		return fmt.Errorf("type is %q, want %q", l.Type, typeStep)
	}
	*s = Step{
		l.Step, float64(l.Loss), (*float64)(l.ValLoss), float64(l.LR), float64(l.GradNorm), float64(l.Clip),
		l.Tokens, float64(l.TokPerSec), l.NonFinite, float64(l.LossScale), l.Time,
	}
	return nil
}

// stamp gives a time the form it has in the log: UTC, milliseconds.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		t = time.Now()
	}
	return t.UTC().Truncate(time.Millisecond)
}

// number is a float64 that JSON can hold even when it is not finite: NaN and
// the infinities become the strings "NaN", "+Inf" and "-Inf".
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 0):
		return fmt.Appendf(nil, `"%+f"`, x), nil
	}
	return json.Marshal(float64(n))
}

func (n *number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"NaN"`:
		*n = number(math.NaN())
		return nil
	case `"+Inf"`:
		*n = number(math.Inf(1))
		return nil
	case `"-Inf"`:
		*n = number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// Kind is the type of an event.
type Kind string

// The kinds of events. Readers must expect others from later versions.
const (
	KindStart   Kind = "start"   // a run begins; the data is a Start
	KindResume  Kind = "resume"  // a run goes on after Step steps; the data is a Start
	KindEval    Kind = "eval"    // held-out loss was measured
	KindSave    Kind = "save"    // a checkpoint is on the disk
	KindSample  Kind = "sample"  // text that the model wrote
	KindWarning Kind = "warning" // something to look at: skipped steps, a missing feature
	KindStop    Kind = "stop"    // the run was interrupted and can be resumed
	KindDone    Kind = "done"    // the run reached its end
)

// Event is anything but a step that happens in a run.
type Event struct {
	Type    Kind            `json:"type"`
	Step    int64           `json:"step"` // steps done when it happened
	Time    time.Time       `json:"time"`
	Message string          `json:"message,omitempty"` // one line for people
	Data    json.RawMessage `json:"data,omitempty"`    // the same for programs
}

// Start is the data of the events "start" and "resume": all that is needed to
// do the run again.
type Start struct {
	Version string   `json:"version"` // of this program
	Device  string   `json:"device"`  // what it computes on, in words
	Seed    uint64   `json:"seed"`
	Config  any      `json:"config"` // the whole configuration: model, optimizer, schedule, data
	Args    []string `json:"args,omitempty"`
}

// Record is one line of a log: exactly one of Step and Event is set.
type Record struct {
	Step  *Step
	Event *Event
	Line  int // from 1
}

// at returns the step that the record belongs to.
func (r Record) at() int64 {
	if r.Step != nil {
		return r.Step.Step
	}
	return r.Event.Step
}

// parse reads one line.
func parse(line []byte) (Record, error) {
	var head struct {
		Type *string `json:"type"`
		Step *int64  `json:"step"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return Record{}, err
	}
	switch {
	case head.Type == nil || *head.Type == "":
		return Record{}, fmt.Errorf("it has no type")
	case head.Step == nil || *head.Step < 0:
		return Record{}, fmt.Errorf("it has no step")
	}
	if *head.Type == typeStep {
		r := Record{Step: new(Step)}
		return r, json.Unmarshal(line, r.Step)
	}
	r := Record{Event: new(Event)}
	return r, json.Unmarshal(line, r.Event)
}
