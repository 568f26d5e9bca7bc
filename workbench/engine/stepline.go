package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"tezgah/runlog"
)

// parseStep reads a line of a step as runlog writes it, about five times as
// fast as encoding/json: a run of a day has hundreds of thousands of them, and
// all are read when its folder is opened. ok is false for any other line, which
// is left to encoding/json.
func parseStep(b []byte) (s runlog.Step, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"type":"step"`))
	for ok && len(rest) > 0 && rest[0] == ',' {
		var key, value []byte
		if key, value, rest, ok = cutMember(rest[1:]); ok {
			ok = setStep(&s, string(key), value)
		}
	}
	return s, ok && len(rest) == 1 && rest[0] == '}'
}

// cutMember cuts "key":value off, where value is a number or a string without
// escapes.
func cutMember(b []byte) (key, value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, nil, false
	}
	key, rest, ok = bytes.Cut(b[1:], []byte(`":`))
	if !ok || len(rest) == 0 {
		return nil, nil, nil, false
	}
	if rest[0] == '"' {
		end := bytes.IndexByte(rest[1:], '"')
		if end < 0 || bytes.IndexByte(rest[1:end+1], '\\') >= 0 {
			return nil, nil, nil, false
		}
		return key, rest[:end+2], rest[end+2:], true
	}
	end := bytes.IndexAny(rest, ",}")
	if end <= 0 {
		return nil, nil, nil, false
	}
	return key, rest[:end], rest[end:], true
}

// setStep stores one member. A line with one that is not known is left to
// encoding/json.
func setStep(s *runlog.Step, key string, value []byte) (ok bool) {
	switch key {
	case "step":
		s.Step, ok = intValue(value)
	case "tokens":
		s.Tokens, ok = intValue(value)
	case "nonfinite":
		s.NonFinite, ok = intValue(value)
	case "loss":
		s.Loss, ok = floatValue(value)
	case "val_loss":
		var v float64
		v, ok = floatValue(value)
		s.ValLoss = &v
	case "lr":
		s.LR, ok = floatValue(value)
	case "grad_norm":
		s.GradNorm, ok = floatValue(value)
	case "clip":
		s.Clip, ok = floatValue(value)
	case "loss_scale":
		s.LossScale, ok = floatValue(value)
	case "tok_per_s":
		s.TokPerSec, ok = floatValue(value)
	case "time":
		ok = s.Time.UnmarshalJSON(value) == nil
	}
	return ok
}

func intValue(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && json.Valid(b)
}

// floatValue reads a number, or the words that stand for those that JSON does
// not have.
func floatValue(b []byte) (float64, bool) {
	switch string(b) {
	case `"NaN"`:
		return math.NaN(), true
	case `"+Inf"`:
		return math.Inf(1), true
	case `"-Inf"`:
		return math.Inf(-1), true
	}
	x, err := strconv.ParseFloat(string(b), 64)
	return x, err == nil && json.Valid(b) // ParseFloat also takes words, hexadecimal and underscores
}
