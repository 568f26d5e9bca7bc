package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The roles of a conversation. Others, such as tool, are refused by name.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// UnmarshalJSON reads {"role": R, "content": C}, where C is a string or, as in OpenAI's interface, a list of parts
// {"type":"text","text":S}, whose texts are put together. Other members are ignored, except where training would then do
// something else than the file asks for: tool_calls, function_call, and a weight other than 1 are errors.
func (m *Message) UnmarshalJSON(data []byte) (err error) {
	var raw rawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*m, err = raw.message()
	return err
}

// rawMessage is the JSON of a message.
type rawMessage struct {
	Role         *string         `json:"role"`
	Content      json.RawMessage `json:"content"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	FunctionCall json.RawMessage `json:"function_call"`
	Weight       *float64        `json:"weight"`
}

func (raw *rawMessage) message() (Message, error) {
	switch {
	case raw.Role == nil:
		return Message{}, errors.New(`message without "role"`)
	case holds(raw.ToolCalls) || holds(raw.FunctionCall):
		return Message{}, errors.New("a message calls tools, which is not supported")
	case raw.Weight != nil && *raw.Weight != 1:
		return Message{}, fmt.Errorf("a message has weight %v; only 1, which is also what it is without, is supported", *raw.Weight)
	}
	content, err := parseContent(raw.Content)
	return Message{*raw.Role, content}, err
}

// holds reports whether a member is there and is neither null nor an empty list.
func holds(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "[]"
}

func parseContent(raw json.RawMessage) (string, error) {
	var text string
	switch {
	case len(raw) == 0:
		return "", errors.New(`message without "content"`)
	case raw[0] == '"':
		return text, json.Unmarshal(raw, &text)
	case raw[0] != '[':
		return "", fmt.Errorf("content is %s, want a string or a list of parts", shorten(string(raw)))
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("content: %w", err)
	}
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", fmt.Errorf("content has a part of type %q, only text is supported", shorten(p.Type))
		}
		text += *p.Text
	}
	return text, nil
}

// Validate names the first message that no template can write: an unknown role, an empty content, or invalid UTF-8.
func Validate(msgs []Message) error {
	if len(msgs) == 0 {
		return errors.New("the conversation has no messages")
	}
	for i, m := range msgs {
		if err := m.validate(); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return nil
}

func (m Message) validate() error {
	switch m.Role {
	case System, User, Assistant:
	case "tool", "function":
		return fmt.Errorf("the role %q is not supported: tools are not, only system, user and assistant", m.Role)
	default:
		return fmt.Errorf("the role is %q, want system, user or assistant", shorten(m.Role))
	}
	if trim(m.Content) == "" {
		return fmt.Errorf("the content of the %s is empty", m.Role)
	}
	if !utf8.ValidString(m.Content) {
		return fmt.Errorf("the content of the %s is not valid UTF-8", m.Role)
	}
	return nil
}

// trim removes white space on both sides as Python's str.strip and so Jinja's trim filter do: Unicode's White_Space and
// the four information separators.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r >= 0x1c && r <= 0x1f || unicode.IsSpace(r) })
}

// shorten cuts a text for an error message.
func shorten(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}
