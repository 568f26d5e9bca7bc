"""Renders the templates and conversations of ../jinja_golden.json and writes the texts into it.

The environment is the one that transformers' apply_chat_template sets up. Pinned: jinja2 3.1.6.

    pip install jinja2==3.1.6 && python render.py

The test in Go fails when a template's Jinja text differs from the file's: run `go test ./chat -run Jinja -jinja` to
write it there, then this script.
"""
import json
import pathlib

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

assert jinja2.__version__ == "3.1.6", jinja2.__version__
path = pathlib.Path(__file__).parent.parent / "jinja_golden.json"
golden = json.loads(path.read_text(encoding="utf-8"))
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
for template in golden["templates"]:
    compiled = environment.from_string(template["jinja"])
    template["texts"] = [
        [compiled.render(messages=messages, add_generation_prompt=prompt) for prompt in (False, True)]
        for messages in golden["conversations"]
    ]
path.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
