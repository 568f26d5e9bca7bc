package chat

import (
	"fmt"
	"strings"

	"tezgah/internal/nearest"
)

// Default is the template that fine-tuning takes when none is named.
const Default = "chatml"

// templates are all that there are, the default first.
var templates = []*Template{
	{ // OpenAI's Chat Markup Language, as used by Qwen, SmolLM2 and many others
		name: "chatml", open: "<|im_start|>", gap: "\n", end: "<|im_end|>", tail: "\n",
		jinja: `{% for message in messages %}` +
			`{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}` +
			`{% endfor %}` +
			`{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`,
	},
	{ // Llama 3 (2024), without its tools and dates; it trims contents as Meta's does
		name: "llama3", begin: "<|begin_of_text|>", open: "<|start_header_id|>", close: "<|end_header_id|>", gap: "\n\n",
		end: "<|eot_id|>", trim: true,
		jinja: `{{ '<|begin_of_text|>' }}` +
			`{% for message in messages %}` +
			`{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' + '\n\n' + message['content'] | trim + '<|eot_id|>' }}` +
			`{% endfor %}` +
			`{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>' + '\n\n' }}{% endif %}`,
	},
}

// Names lists the templates, the default first.
func Names() []string {
	var list []string
	for _, t := range templates {
		list = append(list, t.name)
	}
	return list
}

// Lookup returns the template of this name.
func Lookup(name string) (*Template, error) {
	for _, t := range templates {
		if t.name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("unknown chat template %q: there are %s%s", shorten(name), strings.Join(Names(), " and "),
		nearest.Hint(name, Names(), ""))
}

// Detect names the template whose special tokens a chat_template of another model writes. It does not follow the rest:
// a template that adds a system message of its own, or tools, is recognised by its marks and those extras are not kept.
// ok is false when the marks are not those of a template here, or are mixed with others.
func Detect(jinja string) (name string, ok bool) {
	for _, t := range templates {
		fits := !strings.Contains(jinja, "<|im_sep|>") // Phi 4 writes it in place of chatml's line break
		for _, s := range []string{t.open, t.close, t.end} {
			fits = fits && strings.Contains(jinja, s)
		}
		if fits && !ok {
			name, ok = t.name, true
		} else if fits {
			return "", false
		}
	}
	return name, ok
}
