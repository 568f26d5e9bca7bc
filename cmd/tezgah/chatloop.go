package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"tezgah/chat"
	"tezgah/generate"
	"tezgah/internal/nearest"
)

// talk is a conversation on a terminal or through pipes.
type talk struct {
	chat     *generate.Chat
	out      io.Writer        // answers
	notes    io.Writer        // everything else
	signals  <-chan os.Signal // buffered
	terminal bool             // someone sits at the other end
	json     bool
}

// errLeave ends the loop without an error.
var errLeave = errors.New("leave")

// chatCommands are the words that lines may begin with.
var chatCommands = []string{"/help", "/quit", "/reset", "/save", "/system"}

// inputLine is a line of the input, or the error that ended it.
type inputLine struct {
	text string
	err  error
}

// loop takes lines until the input ends, /quit, or a signal. The context of
// the program ends with the first Ctrl-C, which here only stops an answer;
// therefore signals come by a channel of their own.
func (t *talk) loop(in io.Reader) error {
	lines := make(chan inputLine)
	done := make(chan struct{})
	defer close(done)
	go readLines(in, lines, done)
	for n := 1; ; n++ {
		if t.terminal {
			fmt.Fprint(t.notes, "> ")
		}
		line, ok := t.next(lines)
		if !ok {
			return context.Canceled
		}
		if line.err == io.EOF {
			return nil
		}
		err := line.err
		if err == nil {
			err = t.line(line.text)
		}
		switch {
		case err == nil:
		case errors.Is(err, errLeave):
			return nil
		case errors.Is(err, context.Canceled) || line.err != nil:
			return err
		case t.terminal:
			fmt.Fprintln(t.notes, err)
		default:
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// next waits for a line; ok is false when a signal comes, also one that came
// before.
func (t *talk) next(lines <-chan inputLine) (line inputLine, ok bool) {
	if len(t.signals) > 0 {
		return inputLine{}, false
	}
	select {
	case <-t.signals:
		return inputLine{}, false
	case line = <-lines:
		return line, true
	}
}

// readLines sends the lines of in, without their ends, and at last its error
// until done is closed. It may outlive the loop, waiting for input.
func readLines(in io.Reader, lines chan<- inputLine, done <-chan struct{}) {
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadString('\n')
		text = strings.TrimRight(text, "\r\n")
		if text != "" || err == nil {
			select {
			case lines <- inputLine{text: text}:
			case <-done:
				return
			}
		}
		if err != nil {
			select {
			case lines <- inputLine{err: err}:
			case <-done:
			}
			return
		}
	}
}

// line handles one line: a command or a message. Blank lines are nothing.
func (t *talk) line(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return nil
	case strings.HasPrefix(text, "//"):
		return t.say(text[1:])
	case strings.HasPrefix(text, "/"):
		return t.command(text)
	}
	return t.say(text)
}

func (t *talk) command(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	if rest != "" && word != "/system" && word != "/save" {
		return fmt.Errorf("%s takes nothing behind it", word)
	}
	switch word {
	case "/help":
		fmt.Fprintln(t.notes, aboutChat)
	case "/quit":
		return errLeave
	case "/reset":
		t.chat.Reset()
	case "/save":
		return t.save(rest)
	case "/system":
		return t.system(rest)
	default:
		return fmt.Errorf("unknown command %s%s; /help lists them, // begins a message with a slash", word, nearest.Hint(word, chatCommands, ""))
	}
	return nil
}

func (t *talk) system(text string) error {
	if text != "" {
		return t.chat.SetSystem(text)
	}
	shown := "no system message"
	if msgs := t.chat.Messages(); len(msgs) > 0 && msgs[0].Role == chat.System {
		shown = msgs[0].Content
	}
	fmt.Fprintln(t.notes, shown)
	return nil
}

// untilSignal is a context that ends with a signal. It looks for one when it is
// asked, which generation does between any two tokens and while it reads a long
// message, and takes no further one.
type untilSignal struct {
	context.Context
	signals <-chan os.Signal
	got     os.Signal
}

func (u *untilSignal) Err() error {
	if u.got == nil {
		select {
		case u.got = <-u.signals:
		default:
			return nil
		}
	}
	return context.Canceled
}

// say sends a message and shows the answer as it comes. A signal stops the
// answer at its next token; another one is left for the loop, which leaves.
func (t *talk) say(text string) error {
	ctx := &untilSignal{Context: context.Background(), signals: t.signals}
	res, err := t.chat.Ask(ctx, text, func(p generate.Piece) error {
		if t.json {
			return nil
		}
		_, err := io.WriteString(t.out, p.Text)
		return err
	})
	if showErr := t.show(res, err); showErr != nil && err == nil {
		err = showErr
	}
	if errors.Is(err, context.Canceled) && t.terminal && ctx.got == os.Interrupt {
		return nil
	}
	return err
}

// show ends an answer on the screen, or prints it as a line of JSON.
func (t *talk) show(res generate.Result, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return nil
	}
	if t.json {
		e := json.NewEncoder(t.out)
		e.SetEscapeHTML(false)
		return e.Encode(map[string]any{
			"role": chat.Assistant, "content": res.Text, "reason": res.Reason, "prompt_tokens": res.PromptTokens,
			"cached_tokens": res.CachedTokens, "new_tokens": res.NewTokens, "tokens_per_second": res.TokPerSec(), "notes": res.Notes,
		})
	}
	_, werr := fmt.Fprintln(t.out)
	for _, n := range res.Notes {
		fmt.Fprintln(t.notes, "note: "+n)
	}
	if t.terminal && res.Reason != "end" {
		fmt.Fprintf(t.notes, "(ended by %s)\n", res.Reason)
	}
	return werr
}

// save appends the conversation to a jsonl file.
func (t *talk) save(path string) error {
	msgs := t.chat.Messages()
	switch {
	case path == "":
		return errors.New("/save wants a file: /save F.jsonl")
	case strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst"):
		return fmt.Errorf("%s would have to be compressed: name a plain .jsonl file", path)
	case len(msgs) == 0 || msgs[len(msgs)-1].Role != chat.Assistant:
		return errors.New("nothing has been said yet")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	err = appendLine(f, map[string]any{"messages": msgs})
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		fmt.Fprintf(t.notes, "%d messages appended to %s\n", len(msgs), path)
	}
	return err
}

// appendLine writes v as one line, on a line of its own even where the file's
// last one has no end.
func appendLine(f *os.File, v any) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var b strings.Builder
	if end > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			b.WriteByte('\n')
		}
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	return err
}
