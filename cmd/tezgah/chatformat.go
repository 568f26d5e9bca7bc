package main

import (
	"strings"

	"tezgah/checkpoint"
)

// chatFormats are the chat templates that can be written to other formats, by
// name.
var chatFormats = map[string]checkpoint.ChatFormat{"chatml": {
	Jinja: "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
		"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
	End: "<|im_end|>",
}}

// chatNames lists the templates.
func chatNames() []string { return []string{"chatml"} }

// detectChat names the template that a model's Jinja text is, "" for another.
func detectChat(jinja string) string {
	if strings.Contains(jinja, "<|im_start|>") && strings.Contains(jinja, "<|im_end|>") {
		return "chatml"
	}
	return ""
}
