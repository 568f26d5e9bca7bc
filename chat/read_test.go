package chat

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/corpus"
)

func TestParseLine(t *testing.T) {
	two := []Message{{User, "a"}, {Assistant, "b"}}
	for line, want := range map[string][]Message{
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`:                                                                               two,
		"\t{\"id\":7,\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"x\"},{\"content\":\"b\",\"role\":\"assistant\",\"weight\":1,\"tool_calls\":null}]} ": two,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"\ny"}]}]}`:                                                            {{User, "x\ny"}},
		`{"messages":[{"role":"system","content":""},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`:                                                two,
		`{"prompt":"a","completion":"b"}`:                                      two,
		`{"messages":[{"role":"system","content":"İ 🧵 \u0000 \ud83e\uddf5"}]}`: {{System, "İ 🧵 \x00 🧵"}},
	} {
		if got, err := ParseLine([]byte(line)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s\ngot %v, %v\nwant %v", line, got, err, want)
		}
	}
}

func TestParseLineRefuses(t *testing.T) {
	long := strings.Repeat("lange", 30)
	for line, want := range map[string]string{
		"":                               `begins with ""`,
		"[1]":                            `begins with "["`,
		"\xff{}":                         "not valid UTF-8",
		`{"messages":[}`:                 "invalid character",
		`{"messages":[]} x`:              "invalid character",
		`{"messages":null}`:              "but messages",
		`{"messages":[]}`:                "no messages",
		`{"messages":{}}`:                "cannot unmarshal",
		`{"messages":["a"]}`:             "cannot unmarshal",
		`{"messages":[{"content":""}]}`:  `without "role"`,
		`{"messages":[{"role":"user"}]}`: `without "content"`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]}`:   "calls tools",
		`{"messages":[{"role":"assistant","content":"x","function_call":{"name":"f"}}]}`: "calls tools",
		`{"messages":[{"role":"assistant","content":"x","weight":0}]}`:                   "weight 0",
		`{"messages":[{"role":"user","content":null}]}`:                                  "content is null",
		`{"messages":[{"role":"user","content":7}]}`:                                     "content is 7",
		`{"messages":[{"role":"user","content":{"a":"` + long + `"}}]}`:                  "langelang…, want a string",
		`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`:                `type "image_url"`,
		`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`:                     `type "text"`,
		`{"messages":[{"role":"user","content":[7]}]}`:                                   "content: json",
		`{"messages":[{"role":"tool","content":"x"}]}`:                                   `the role "tool"`,
		`{"messages":[{"role":"developer","content":"x"}]}`:                              `"developer"`,
		`{"messages":[{"role":"user","content":" "}]}`:                                   "user is empty",
		`{"messages":[{"role":"system","content":""}]}`:                                  "no messages",
		`{"prompt":"a"}`:                                            "but prompt",
		`{"prompt":["a"],"completion":"b"}`:                         `prompt is ["a"]`,
		`{"prompt":"a","completion":3}`:                             "completion is 3",
		`{"prompt":"a","completion":""}`:                            "assistant is empty",
		`{"conversations":[{"from":"human","value":"x"}],"id":"1"}`: `"conversations" with "from"`,
		`{"text":"x"}`:                                              "without --sft",
		`{}`:                                                        "no members",
	} {
		got, err := ParseLine([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, %v\nwant an error with %q", line, got, err, want)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes", line, len(err.Error()))
		}
	}
}

// FuzzParseLine: no line panics, and what is read can be written and read again.
func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}]}`,
		`{"prompt":"a","completion":"\ud83d"}`, `{"messages":[{"role":"system","content":""}]}`, `{"text":1}`, `[`, `{"messages":[[]]}`,
		`{"messages":[{"role":"user","content":"a","weight":1e999}]}`} {
		f.Add([]byte(seed))
	}
	tpl, _ := Lookup(Default)
	f.Fuzz(func(t *testing.T, line []byte) {
		msgs, err := ParseLine(slices.Clone(line))
		if err != nil {
			return
		}
		if _, err := tpl.Text(msgs, true); err != nil {
			t.Fatalf("%q gives messages that no template takes: %v", line, err)
		}
		out, err := json.Marshal(map[string]any{"messages": msgs})
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseLine(out)
		if err != nil || !slices.Equal(again, msgs) {
			t.Fatalf("%q is read as %v, which is written and read as %v, %v", line, msgs, again, err)
		}
	})
}

// writeFile writes a file in dir, packed when its name ends in .gz.
func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if strings.HasSuffix(name, ".gz") {
		z := gzip.NewWriter(f)
		z.Write([]byte(content))
		err = z.Close()
	} else {
		_, err = f.WriteString(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	good       = `{"messages":[{"role":"user","content":"hums?"},{"role":"assistant","content":"The loom."}]}` + "\n"
	onlyAsking = `{"messages":[{"role":"user","content":"hums?"}]}` + "\n"
)

// TestLoadNamesPlace: files of a folder, packed or not; errors name file and line, and SkipBad counts.
func TestLoadNamesPlace(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.jsonl", good+"\n"+good)
	writeFile(t, dir, "b.jsonl.gz", good+`{"messages":[{"role":"tool","content":"x"}]}`+"\n"+good)
	writeFile(t, dir, "c.txt", "not read")
	from := func(o *LoadOptions) { o.Input = corpus.InputOptions{Paths: []string{dir}} }
	if _, err := load(t, "", from); err == nil || !strings.Contains(err.Error(), `b.jsonl.gz:2: message 1: the role "tool"`) {
		t.Errorf("got %v", err)
	}
	l, err := load(t, "", func(o *LoadOptions) { from(o); o.Input.SkipBad = true })
	if err != nil || l.Train.Len() != 4 || l.Files.Bad != 1 || l.Files.Documents != 4 || l.Files.Files != 2 {
		t.Errorf("loaded %+v, %v", l, err)
	}
}
