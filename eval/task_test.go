package eval

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tezgah/corpus"
)

func TestReadTasks(t *testing.T) {
	text := "\ufeff" + `{"context": "a b", "choices": [" c", " ü\n"], "label": 1}` + "\r\n\n" +
		`{"label":0,"choices":["\ud83d\ude00","\ufffd","x"],"context":"","id":17,"task":"emoji","source":{"x":[1]}}` + "\n" +
		` { "context" : "q" , "choices" : ["y","n"] , "label" : 0 , "id" : "first" } `
	got, err := ReadTasks(strings.NewReader(text), "dir/mine.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want := []Item{
		{File: "dir/mine.jsonl", Line: 1, Task: "mine", Context: "a b", Choices: []string{" c", " ü\n"}, Label: 1},
		{File: "dir/mine.jsonl", Line: 3, ID: "17", Task: "emoji", Choices: []string{"😀", "\ufffd", "x"}},
		{File: "dir/mine.jsonl", Line: 4, ID: "first", Task: "mine", Context: "q", Choices: []string{"y", "n"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBadTasks(t *testing.T) {
	good := `{"context":"a","choices":["b","c"],"label":0}` + "\n"
	for _, c := range []struct{ line, want string }{
		{`{"context":"a","choices":["b","c"]}`, `no field "label"`},
		{`{"choices":["b","c"],"label":0}`, `no field "context"`},
		{`{"contxt":"a","choices":["b","c"],"label":0}`, `did you mean "contxt"?`},
		{`{"context":"a","label":0}`, `no field "choices"`},
		{`{"context":null,"choices":["b","c"],"label":0}`, `field "context" is null, want a string`},
		{`{"context":"a","choices":["b","c"],"label":null}`, `field "label" is null, want a whole number`},
		{`{"context":"a","choices":["b","c"],"label":1.5}`, `field "label" is 1.5`},
		{`{"context":"a","choices":["b","c"],"label":"B"}`, `field "label" is "B"`},
		{`{"context":"a","choices":["b","c"],"label":99999999999999999999}`, `field "label"`},
		{`{"context":"a","choices":["b","c"],"label":2}`, "label 2 of 2 choices, want 0 to 1"},
		{`{"context":"a","choices":["b","c"],"label":-1}`, "label -1 of 2 choices"},
		{`{"context":"a","choices":["b"],"label":0}`, "1 choices, want at least 2"},
		{`{"context":"a","choices":[],"label":0}`, "0 choices"},
		{`{"context":"a","choices":["b",""],"label":0}`, "choice 1 is empty"},
		{`{"context":"a","choices":["b",null],"label":0}`, "choice 1 is empty"},
		{`{"context":"a","choices":"b","label":0}`, "want a list of strings"},
		{`{"context":7,"choices":["b","c"],"label":0}`, `field "context" is 7`},
		{`{"context":"a","choices":["b","c"],"label":0,"task":3}`, `field "task" is 3`},
		{`{"context":"a","choices":["b","c"],"label":0,"id":["x"]}`, `field "id"`},
		{`{"context":"a","choices":["b","c"],"label":0,"id":null}`, `field "id"`},
		{`{"context":"\ud83d","choices":["b","c"],"label":0}`, "without its second half"},
		{"{\"context\":\"\xff\",\"choices\":[\"b\",\"c\"],\"label\":0}", "not UTF-8"},
		{`[1]`, "not a JSON object"},
		{`null`, `no field "context"`},
		{`{"context":"a"`, "not a JSON object"},
		{`{"context":"a","choices":["b","c"],"label":0} x`, "not a JSON object"},
		{strings.Repeat("x", maxLineBytes+1), "longer than 16 MiB"},
	} {
		_, err := ReadTasks(strings.NewReader(good+"\n"+c.line+"\n"), "f.jsonl")
		var bad *corpus.BadInputError
		if !errors.As(err, &bad) || bad.Line != 3 || !strings.HasPrefix(err.Error(), "f.jsonl:3: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, want f.jsonl:3: … %s", c.line, err, c.want)
		}
	}
	if _, err := ReadTasks(strings.NewReader("\n  \n"), "f.jsonl"); err == nil || !strings.Contains(err.Error(), "no task") {
		t.Errorf("empty file: %v", err)
	}
}

func TestLoadTasks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(path, []byte(`{"context":"a","choices":["b","c"],"label":1}`), 0o666); err != nil {
		t.Fatal(err)
	}
	items := must[[]Item](t)(LoadTasks(path))
	if len(items) != 1 || items[0].Task != "a" || items[0].File != path {
		t.Errorf("got %+v", items)
	}
	if _, err := LoadTasks(path + ".no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// FuzzReadTasks: whatever the bytes, what is accepted makes sense.
func FuzzReadTasks(f *testing.F) {
	f.Add([]byte(`{"context":"a","choices":["b","c"],"label":1,"id":1e5,"task":"x"}`))
	f.Add([]byte("\ufeff{\"context\":\"\",\"choices\":[\"\\ud83d\\ude00\",\"\\ufffd\"],\"label\":0}\r\n\r\n"))
	f.Add([]byte(`{"context":"\ud800","choices":["b",null],"label":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := ReadTasks(strings.NewReader(string(b)), "f")
		if (err == nil) != (len(items) > 0) {
			t.Fatalf("%d items with error %v", len(items), err)
		}
		for _, it := range items {
			if len(it.Choices) < 2 || it.Label < 0 || it.Label >= len(it.Choices) || it.Line < 1 {
				t.Fatalf("accepted %+v", it)
			}
			for _, c := range it.Choices {
				if c == "" {
					t.Fatalf("accepted %+v", it)
				}
			}
		}
	})
}
