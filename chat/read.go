package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// ParseLine reads one conversation:
//
//	{"messages": [{"role": "system"|"user"|"assistant", "content": …}, …]}
//	{"prompt": S, "completion": S}    a user's message and the assistant's answer
//
// with contents as in Message.UnmarshalJSON. A system message whose content is empty is left out; many data sets have
// one. Other members of the object are ignored. The messages have passed Validate.
func ParseLine(line []byte) ([]Message, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("the line is not valid UTF-8")
	}
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return nil, fmt.Errorf("the line begins with %q, want a JSON object", shorten(firstRune(line)))
	}
	var record struct {
		Messages   *[]rawMessage   `json:"messages"`
		Prompt     json.RawMessage `json:"prompt"`
		Completion json.RawMessage `json:"completion"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, err
	}
	var msgs []Message
	switch {
	case record.Messages != nil:
		for i := range *record.Messages {
			m, err := (*record.Messages)[i].message()
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i+1, err)
			}
			if m.Role == System && trim(m.Content) == "" {
				continue
			}
			if err := m.validate(); err != nil {
				return nil, fmt.Errorf("message %d: %w", i+1, err)
			}
			msgs = append(msgs, m)
		}
	case record.Prompt != nil && record.Completion != nil:
		var prompt, completion string
		if err := json.Unmarshal(record.Prompt, &prompt); err != nil {
			return nil, fmt.Errorf("prompt is %s, want a string", shorten(string(record.Prompt)))
		}
		if err := json.Unmarshal(record.Completion, &completion); err != nil {
			return nil, fmt.Errorf("completion is %s, want a string", shorten(string(record.Completion)))
		}
		msgs = []Message{{User, prompt}, {Assistant, completion}}
	default:
		return nil, noMessages(line)
	}
	return msgs, Validate(msgs)
}

func firstRune(b []byte) string {
	r, n := utf8.DecodeRune(b)
	if n == 0 {
		return ""
	}
	return string(r)
}

// noMessages names what the object has instead.
func noMessages(line []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(members))
	has := "no members"
	if len(names) > 0 {
		has = shorten(strings.Join(names, ", "))
	}
	hint := ""
	if _, ok := members["conversations"]; ok {
		hint = `; "conversations" with "from" and "value" must become "messages" with "role" and "content" first`
	}
	if _, ok := members["text"]; ok {
		hint = "; plain text is trained on without --sft"
	}
	return fmt.Errorf(`the object has neither "messages" nor "prompt" and "completion", but %s%s`, has, hint)
}
