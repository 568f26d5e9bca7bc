package engine

import (
	"encoding/json"
	"time"

	"tezgah/runlog"
	"tezgah/train"
)

// summary is what the lines of a run's log say, in sum. It is made of the lines
// of a log that is already there and of those of one being written alike.
type summary struct {
	step, tokens        int64
	loss, valLoss       number
	lr, norm, tokPerSec float64
	seconds             float64 // of training, without pauses
	config              *train.Config
	device              string
	updated             time.Time
	last                runlog.Kind // of the last event that begins or ends a session
	message             string      // of that event
	notices             []string
	sample              *sampleOut
	watch               watcher
	saves               int // "save" events so far
	nonFinite           int64
	sessionTime         time.Time // of the last record of this session
	hasStep, hasVal     bool
}

// sampleOut is text that a model wrote while it was trained.
type sampleOut struct {
	Step int64  `json:"step"`
	Text string `json:"text"`
}

// keptNotices is how many lines for the user a run keeps.
const keptNotices = 20

// take adds a line and says what it was: the kind of an event, or "step".
func (s *summary) take(b []byte) runlog.Kind {
	if st, ok := parseStep(b); ok {
		s.takeStep(st)
		return "step"
	}
	var head struct {
		Type runlog.Kind `json:"type"`
	}
	if json.Unmarshal(b, &head) != nil {
		return ""
	}
	if head.Type == "step" {
		var st runlog.Step
		if json.Unmarshal(b, &st) != nil {
			return ""
		}
		s.takeStep(st)
		return "step"
	}
	var e runlog.Event
	if json.Unmarshal(b, &e) != nil {
		return ""
	}
	s.takeEvent(e)
	return head.Type
}

func (s *summary) takeStep(r runlog.Step) {
	s.clock(r.Time)
	s.step, s.tokens, s.hasStep = r.Step, r.Tokens, true
	s.loss, s.lr, s.norm, s.tokPerSec = number(r.Loss), r.LR, r.GradNorm, r.TokPerSec
	s.nonFinite += r.NonFinite
	if r.ValLoss != nil {
		s.valLoss, s.hasVal = number(*r.ValLoss), true
	}
	s.watch.step(r)
}

// clock counts the time between the records of one session.
func (s *summary) clock(at time.Time) {
	if !s.sessionTime.IsZero() && at.After(s.sessionTime) {
		s.seconds += at.Sub(s.sessionTime).Seconds()
	}
	s.sessionTime, s.updated = at, at
}

func (s *summary) takeEvent(e runlog.Event) {
	switch e.Type {
	case runlog.KindStart, runlog.KindResume:
		s.takeStart(e)
	case runlog.KindDone, runlog.KindStop:
		s.clock(e.Time)
		s.sessionTime = time.Time{}
		s.last, s.message = e.Type, e.Message
	case runlog.KindWarning:
		s.notices = append(s.notices, e.Message)
		s.notices = s.notices[max(0, len(s.notices)-keptNotices):]
	case runlog.KindSample:
		var of train.Sample
		json.Unmarshal(e.Data, &of) // a log of another program may lack the prompt
		s.sample = &sampleOut{e.Step, of.Prompt + e.Message}
	case runlog.KindSave:
		s.saves++
	}
	s.updated = e.Time
}

// takeStart reads the configuration that a session began with.
func (s *summary) takeStart(e runlog.Event) {
	s.sessionTime, s.last, s.message = e.Time, e.Type, ""
	start := struct {
		Device string        `json:"device"`
		Config *train.Config `json:"config"`
	}{}
	if json.Unmarshal(e.Data, &start) != nil || start.Config == nil {
		return
	}
	s.device, s.config = start.Device, start.Config
	s.watch.peakLR, s.watch.pretrained = start.Config.Schedule.LR, start.Config.InitFrom != ""
}

// lastStep is where the run ends, 0 while it is not known.
func (s *summary) lastStep() int64 {
	if s.config == nil {
		return 0
	}
	return s.config.MaxSteps
}

// etaSeconds is the time to the last step at the present speed, 0 unknown.
func (s *summary) etaSeconds() float64 {
	if s.step == 0 || s.tokPerSec <= 0 || s.lastStep() <= s.step {
		return 0
	}
	return float64(s.lastStep()-s.step) * float64(s.tokens) / float64(s.step) / s.tokPerSec
}
