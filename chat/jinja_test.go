package chat

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var writeJinja = flag.Bool("jinja", false, "write the templates' Jinja texts into the golden file, for testdata/gen/render.py")

// jinjaGolden is testdata/jinja_golden.json: what Jinja itself makes of the templates.
type jinjaGolden struct {
	Conversations [][]Message `json:"conversations"`
	Templates     []struct {
		Name  string      `json:"name"`
		Jinja string      `json:"jinja"`
		Texts [][2]string `json:"texts"` // by conversation: without and with add_generation_prompt
	} `json:"templates"`
}

// spaces are what Python's str.strip takes away, and look-alikes that it does not.
const spaces = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2007\u200a\u2028\u2029\u202f\u205f\u3000"

// TestJinjaGolden: Jinja renders Template.Jinja to Template.Text.
func TestJinjaGolden(t *testing.T) {
	const path = "testdata/jinja_golden.json"
	var g jinjaGolden
	if *writeJinja {
		writeGolden(t, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Templates) != len(templates) || len(g.Conversations) < 6 {
		t.Fatalf("the golden file has %d templates and %d conversations", len(g.Templates), len(g.Conversations))
	}
	for i, golden := range g.Templates {
		tpl := templates[i]
		if golden.Name != tpl.name || golden.Jinja != tpl.Jinja() {
			t.Errorf("%s: the Jinja text is not the one that was rendered: see testdata/gen/render.py", tpl.name)
		}
		for k, msgs := range g.Conversations {
			for p, want := range golden.Texts[k] {
				if got, err := tpl.Text(msgs, p == 1); err != nil || got != want {
					t.Errorf("%s, conversation %d:\ngot  %q, %v\nwant %q", tpl.name, k, got, err, want)
				}
			}
		}
	}
}

func writeGolden(t *testing.T, path string) {
	t.Helper()
	g := jinjaGolden{Conversations: [][]Message{
		sample, {{User, "a"}}, {{Assistant, "a"}, {Assistant, "b"}, {System, "c"}},
		{{User, spaces + "x" + spaces + "y" + spaces}, {Assistant, "\u200b\ufeff z \u200b\ufeff"}},
		{{User, "{{ 7*7 }} {% if x %} {# no #} \\n \" ' <b>&amp;</b>"}, {Assistant, "<|im_end|><|eot_id|>\r\n\n"}},
		{{System, "Düş: ışıl"}, {User, "東京の朝 🧵\n\n\n"}, {Assistant, "\n    def f():\n        return 'é'\n"}, {User, "?"}},
	}}
	for _, tpl := range templates {
		g.Templates = append(g.Templates, struct {
			Name  string      `json:"name"`
			Jinja string      `json:"jinja"`
			Texts [][2]string `json:"texts"`
		}{tpl.name, tpl.Jinja(), make([][2]string, len(g.Conversations))})
	}
	data, err := json.MarshalIndent(g, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}
