package corpus

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestJSONText(t *testing.T) {
	for _, c := range []struct{ line, column, want string }{
		{`{"text":"a"}`, "", "a"},
		{` { "id" : 1 , "text" : "x\ty\u00e9\ud83d\ude00\/\"\\" , "z":[1,{"text":"no"}]} `, "", "x\tyé😀/\"\\"},
		{`{"text":"a","text":"b"}`, "", "b"},
		{`{"te\u0078t":"key with an escape"}`, "", "key with an escape"},
		{`{"text":null}`, "", ""},
		{"{\"text\":\"kept \xff\xc0 bytes\"}", "", "kept \xff\xc0 bytes"},
		{`{"text":"\ud800x\udc00\ud800\ud83d\ude00"}`, "", "\ufffdx\ufffd\ufffd😀"},
		{`{"body":"b","text":"a"}`, "body", "b"},
		{`{"messages":[{"role":"user","content":"Hi"},{"content":"Hello","role":"assistant","x":[]}]}`, "",
			"user: Hi\n\nassistant: Hello"},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"one "},{"text":"two"}]}]}`, "", "user: one two"},
		{`{"messages":[]}`, "", ""},
		{`{"prompt":"2+2=","completion":"4"}`, "", "2+2=\n4"},
		{`{"prompt":"2+2=","completion":" 4"}`, "", "2+2= 4"},
		{`{"prompt":"","completion":"4"}`, "", "4"},
		{`{"text":"first","messages":[]}`, "", "first"},
	} {
		got, err := jsonText([]byte(c.line), c.column)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.line, got, err, c.want)
		}
	}
}

func TestJSONTextErrors(t *testing.T) {
	for line, want := range map[string]string{
		``:                       "not a JSON object",
		`[1]`:                    "not a JSON object",
		`"text"`:                 "not a JSON object",
		`{"text":1}`:             "is a number, want a string",
		`{"body":"a","x":1}`:     "it has body x: name the field",
		`{}`:                     "no fields",
		`{"text":"a"`:            "broken JSON at byte 12",
		`{"text":"a"} x`:         "text after the object",
		`{"text":"a\x"}`:         "bad escape",
		`{"text":"a\u12g4"}`:     "bad escape",
		`{"text":"a}`:            "does not end",
		"{\"text\":\"a\nb\"}":    "control character",
		`{"text":"a","n":01}`:    "broken JSON",
		`{"text":"a",}`:          "broken JSON",
		`{"messages":[1]}`:       "want objects",
		`{"messages":"x"}`:       "want a list",
		`{"messages":[{}]}`:      "lacks role or content",
		`{"prompt":"only"}`:      "no field text",
		`{"text":"a","b":truee}`: "broken JSON",
	} {
		if got, err := jsonText([]byte(line), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want an error with %q", line, got, err, want)
		}
	}
	if _, err := jsonText([]byte(`{"text":"a"}`), "body"); err == nil || !strings.Contains(err.Error(), `no field "body"`) {
		t.Errorf("wrong column: %v", err)
	}
	for at := range 40 { // every place in the words of eight bytes
		for _, bad := range []string{"\x01", "\x1f", "\n", `\x`} {
			text := strings.Repeat("x", at) + bad + strings.Repeat("y", 40-at)
			if got, err := jsonText([]byte(`{"text":"`+text+`"}`), ""); err == nil {
				t.Errorf("%q was accepted as %q", text, got)
			}
		}
		text := strings.Repeat("ş", at) + "\x7f\xff " + strings.Repeat("y", 40-at)
		if got, err := jsonText([]byte(`{"text":"`+text+`"}`), ""); err != nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	deep := `{"text":"a","x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`
	if _, err := jsonText([]byte(deep), ""); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("deep nesting: %v", err)
	}
}

// FuzzJSONText compares with encoding/json, which agrees on everything that is valid UTF-8.
func FuzzJSONText(f *testing.F) {
	for _, s := range []string{`{"text":"a\u00e9\ud83d\ude00"}`, `{"a":[1.5e3,null,true,{"text":"x"}],"text":"y"}`,
		`{"messages":[{"role":"user","content":"Hi"}]}`, `{"prompt":"a","completion":"b"}`, `{"text":"\ud800\ud800"}`, `{"text":`,
		`{"Text":"x","text":null}`, `{"":0}`, `{"messages":[{"role":"u","content":[{"text":"t"}]}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := jsonText(append([]byte(nil), line...), "")
		if !utf8.Valid(line) {
			return
		}
		var fields map[string]json.RawMessage
		stdErr := json.Unmarshal(line, &fields)
		if stdErr != nil || fields == nil {
			if err == nil {
				t.Fatalf("%q: got %q, encoding/json says %v", line, got, stdErr)
			}
			return
		}
		if strings.Contains(string(line), "[[") || strings.Count(string(line), "[")+strings.Count(string(line), "{") > 100 {
			return // nesting limits differ
		}
		raw, ok := fields["text"]
		if !ok {
			return
		}
		var want *string
		if stdErr := json.Unmarshal(raw, &want); (stdErr == nil) != (err == nil) {
			t.Fatalf("%q: got %q, %v, encoding/json says %v", line, got, err, stdErr)
		}
		if err == nil && (want != nil && string(got) != *want || want == nil && len(got) != 0) {
			t.Fatalf("%q: got %q, want %q", line, got, *want)
		}
	})
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 600<<10)
	text := "\xef\xbb\xbfone\r\n\n  \ntwo\n" + long + "\nlast"
	for _, r := range []*lineReader{newLineReader(strings.NewReader(text), "f"),
		newLineReader(iotest.HalfReader(strings.NewReader(text)), "f")} {
		var got []string
		var lines []int
		for {
			b, line, _, _, err := r.next()
			if err != nil {
				break
			}
			got, lines = append(got, string(b)), append(lines, line)
		}
		if len(got) != 4 || got[0] != "one" || got[1] != "two" || got[2] != long || got[3] != "last" {
			t.Fatalf("got %d lines", len(got))
		}
		if lines[0] != 1 || lines[1] != 4 || lines[2] != 5 || lines[3] != 6 {
			t.Fatalf("line numbers %v, want 1 4 5 6", lines)
		}
	}
}

func TestSkipBadLines(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.jsonl": "{\"text\":\"one\"}\n{broken\n{\"text\":\"three\"}\n{\"other\":1}\n"})
	opt := InputOptions{Paths: []string{dir}}
	_, err := Walk(context.Background(), opt, func(Document) error { return nil })
	var bad *BadInputError
	if !errors.As(err, &bad) || bad.Line != 2 || !strings.Contains(err.Error(), "a.jsonl:2: ") {
		t.Fatalf("got %v, want an error at line 2", err)
	}
	opt.SkipBad = true
	docs, stats := walkAll(t, opt)
	if len(docs) != 2 || docs[1] != "three" || stats.Bad != 2 {
		t.Fatalf("got %q, %+v", docs, stats)
	}
}
