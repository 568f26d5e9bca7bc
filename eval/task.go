package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"tezgah/corpus"
	"tezgah/internal/nearest"
)

// maxLineBytes is the longest line of a task file. A context beyond it would
// not fit any model.
const maxLineBytes = 16 << 20

// Item is one multiple-choice task: which of the choices goes on from the
// context?
type Item struct {
	File string // where it stands, for messages and reports
	Line int    // from 1
	ID   string // the file's "id", "" without one
	Task string // the file's "task": the group whose accuracy is reported apart; without one the file's name

	Context string // may be empty: the choice then begins a document
	Choices []string
	Label   int // index of the right choice
}

// at puts the item's place in front of an error.
func (it *Item) at(err error) error {
	return &corpus.BadInputError{Path: it.File, Line: it.Line, Err: err}
}

// LoadTasks reads a task file.
func LoadTasks(path string) ([]Item, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadTasks(f, path)
}

// ReadTasks reads jsonl: on each line an object with "context" (a string),
// "choices" (two strings or more, none empty) and "label" (the index of the
// right one, from 0); optionally "id" (a string or a number) and "task" (a
// string). Other fields and empty lines are passed over. name is the file's, for
// messages and as the default task. A file without any item is an error; an
// error about a line is a *corpus.BadInputError.
func ReadTasks(r io.Reader, name string) ([]Item, error) {
	var items []Item
	task, _, _ := strings.Cut(filepath.Base(name), ".jsonl")
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLineBytes)
	line := 0
	for sc.Scan() {
		line++
		b := sc.Bytes()
		if line == 1 {
			b = bytes.TrimPrefix(b, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		it := Item{File: name, Line: line, Task: task}
		if err := it.parse(b); err != nil {
			return nil, it.at(err)
		}
		items = append(items, it)
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &corpus.BadInputError{Path: name, Line: line + 1, Err: fmt.Errorf("the line is longer than %d MiB", maxLineBytes>>20)}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(items) == 0:
		return nil, fmt.Errorf(`%s: no task in it, want lines like {"context": "…", "choices": ["…", "…"], "label": 0}`, name)
	}
	return items, nil
}

// parse fills the item from its line.
func (it *Item) parse(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("not UTF-8: save the file as UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if err := need(fields, "context", &it.Context); err != nil {
		return err
	}
	if err := need(fields, "choices", &it.Choices); err != nil {
		return err
	}
	if err := need(fields, "label", &it.Label); err != nil {
		return err
	}
	if raw, ok := fields["task"]; ok {
		if err := value("task", raw, &it.Task); err != nil {
			return err
		}
	}
	if raw, ok := fields["id"]; ok {
		if err := it.parseID(raw); err != nil {
			return err
		}
	}
	return it.check(line)
}

// parseID takes a string, or a number as it is written.
func (it *Item) parseID(raw json.RawMessage) error {
	var number json.Number
	if raw[0] != '"' && json.Unmarshal(raw, &number) == nil && number != "" {
		it.ID = number.String()
		return nil
	}
	return value("id", raw, &it.ID)
}

// check says whether the item makes sense. line is what it was read from.
func (it *Item) check(line []byte) error {
	n := len(it.Choices)
	if n < 2 {
		return fmt.Errorf("%d choices, want at least 2", n)
	}
	if it.Label < 0 || it.Label >= n {
		return fmt.Errorf("label %d of %d choices, want 0 to %d", it.Label, n, n-1)
	}
	if i := slices.Index(it.Choices, ""); i >= 0 {
		return fmt.Errorf("choice %d is empty, want some text", i)
	}
	if halfCharacter(line, it.Context+strings.Join(it.Choices, "")) {
		return errors.New(`an escape like \ud83d without its second half, which is no character`)
	}
	return nil
}

// halfCharacter reports whether decoding a line of JSON left U+FFFD in text
// that the line itself does not have: the decoder's mark for half a surrogate
// pair.
func halfCharacter(line []byte, text string) bool {
	return strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(line, utf8.RuneError) &&
		!bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`))
}

// need decodes a field that must be there.
func need[T any](fields map[string]json.RawMessage, name string, dst *T) error {
	raw, ok := fields[name]
	if !ok {
		have := slices.Sorted(maps.Keys(fields))
		return fmt.Errorf("no field %q, the line has %q%s", name, have, nearest.Hint(name, have, ""))
	}
	return value(name, raw, dst)
}

// value decodes a field; null counts for no type.
func value[T any](name string, raw json.RawMessage, dst *T) error {
	var p *T
	if err := json.Unmarshal(raw, &p); err != nil || p == nil {
		return fmt.Errorf("field %q is %.40s, want %s", name, raw, typeName(dst))
	}
	*dst = *p
	return nil
}

func typeName(dst any) string {
	switch dst.(type) {
	case *string:
		return "a string"
	case *[]string:
		return "a list of strings"
	}
	return "a whole number"
}
