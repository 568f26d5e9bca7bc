package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/generate"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/train"
)

// chatModel trains a little with ChatML's tokens in the vocabulary and returns
// the model, whose file names no template, and one whose file names chatml.
func chatModel(t *testing.T) (plain, named string) {
	t.Helper()
	text, dir := writeCorpus(t), t.TempDir()
	tok, bin, runDir := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--special", "<|endoftext|>,<|im_start|>,<|im_end|>", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	must(t, smallTrain(bin, runDir, "--context", "128", "--batch", "2")...)
	plain, named = filepath.Join(runDir, train.ModelName), filepath.Join(dir, "chat.llm")
	withHeader(t, plain, named, func(h *checkpoint.Header) { h.ChatTemplate = "chatml" })
	return plain, named
}

// withHeader copies a model with another header.
func withHeader(t *testing.T, from, to string, change func(*checkpoint.Header)) {
	t.Helper()
	m, err := checkpoint.OpenLLM(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var weights []checkpoint.Tensor
	for _, w := range m.Weights() {
		weights = append(weights, checkpoint.Tensor{Info: w, Read: func(p []byte, off int64) error { return m.ReadAt(w.Name, p, off) }})
	}
	h := m.Header
	change(&h)
	if err := checkpoint.SaveLLM(to, h, weights, nil); err != nil {
		t.Fatal(err)
	}
}

// withStdin lets f read text from standard input.
func withStdin(t *testing.T, text string, f func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	old := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = old }()
	f()
}

// TestChatCommand talks through pipes: only answers come out, the same for the
// same seed, and /save writes what fine-tuning reads.
func TestChatCommand(t *testing.T) {
	plain, named := chatModel(t)
	saved := filepath.Join(t.TempDir(), "talk.jsonl")
	if err := os.WriteFile(saved, []byte("{}"), 0o666); err != nil { // without a line's end
		t.Fatal(err)
	}
	input := "the loom?\n\n//a thread\r\n/save " + saved + "\n/reset\n/system be brief\nand now?\n/save " + saved + "\n/quit\nnever said\n"
	args := []string{"chat", named, "--device", "cpu", "--max-tokens", "12", "--ignore-case"}
	talkAs := func(args ...string) (out, errOut string, code int) {
		withStdin(t, input, func() { out, errOut, code = invoke(t, context.Background(), args...) })
		return out, errOut, code
	}
	if _, errOut, code := talkAs(args...); code != exitUsage || !strings.Contains(errOut, "--ignore-case") {
		t.Errorf("an unknown flag: exit code %d, %s", code, errOut)
	}
	args = args[:len(args)-1]
	a, errOut, code := talkAs(append(args, "--system", "be a loom")...)
	if code != exitDone || strings.Contains(a, ">") && strings.Contains(a, "/help") || strings.Contains(a, "the loom?") {
		t.Fatalf("exit code %d, printed %q and %q", code, a, errOut)
	}
	data, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 3 || lines[0] != "{}" {
		t.Fatalf("/save wrote %q", data)
	}
	first, err1 := chat.ParseLine([]byte(lines[1]))
	second, err2 := chat.ParseLine([]byte(lines[2]))
	if err1 != nil || err2 != nil || len(first) != 5 || len(second) != 3 || first[0].Content != "be a loom" || second[0].Content != "be brief" {
		t.Fatalf("saved %v (%v) and %v (%v)", first, err1, second, err2)
	}
	if first[1].Content != "the loom?" || first[3].Content != "/a thread" {
		t.Errorf("the messages are %v", first)
	}
	if want := first[2].Content + "\n" + first[4].Content + "\n" + second[2].Content + "\n"; a != want {
		t.Errorf("printed %q, want the answers %q", a, want)
	}
	b, _, _ := talkAs(append([]string{"chat", plain, "--template", "chatml"}, append(args[2:], "--system", "be a loom")...)...)
	if a != b {
		t.Errorf("with the file's template %q, with the flag's %q", a, b)
	}
	checkChatJSON(t, named, []string{first[2].Content, first[4].Content, second[2].Content}, talkAs)
	checkChatErrors(t, plain, named, talkAs)
}

// checkChatJSON: --json prints the same answers, one object a line.
func checkChatJSON(t *testing.T, model string, want []string, talkAs func(...string) (string, string, int)) {
	t.Helper()
	out, errOut, code := talkAs("chat", model, "--device", "cpu", "--max-tokens", "12", "--system", "be a loom", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitDone || len(lines) != len(want) {
		t.Fatalf("exit code %d, printed %q and %q", code, out, errOut)
	}
	for i, line := range lines {
		var got struct {
			Role, Content, Reason string
			NewTokens             int `json:"new_tokens"`
			PromptTokens          int `json:"prompt_tokens"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Content != want[i] || got.Role != "assistant" || got.NewTokens < 1 || got.PromptTokens < 5 || got.Reason == "" {
			t.Errorf("line %d is %s (%v), want %q", i, line, err, want[i])
		}
	}
}

func checkChatErrors(t *testing.T, plain, named string, talkAs func(...string) (string, string, int)) {
	t.Helper()
	for want, args := range map[string][]string{
		"llama3 lacks <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>": {"chat", plain, "--device", "cpu"},
		"chatml has all of its tokens":         {"chat", plain, "--device", "cpu"},
		"which the chat template llama3 needs": {"chat", named, "--device", "cpu", "--template", "llama3"},
		`did you mean "chatml"`:                {"chat", named, "--template", "chatnl"},
		"no such run folder or .llm file":      {"chat", named + "x"},
		"--max-tokens is 0":                    {"chat", named, "--max-tokens", "0"},
		"want a run folder or a .llm file":     {"chat"},
	} {
		if _, errOut, code := talkAs(args...); code == exitDone || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %s\nwant %q", args, code, errOut, want)
		}
	}
	var errOut string
	var code int
	withStdin(t, "/rest\n", func() { _, errOut, code = invoke(t, context.Background(), "chat", named, "--device", "cpu") })
	if code != exitFailed || !strings.Contains(errOut, `line 1: unknown command /rest; did you mean "/reset"?`) {
		t.Errorf("an unknown command: exit code %d, %s", code, errOut)
	}
}

// newTalk is a terminal conversation with an untrained model, and the writing
// end of its keyboard.
func newTalk(t *testing.T, file string, opt generate.Options) (s *talk, out, notes *bytes.Buffer, keys *io.PipeWriter, in *io.PipeReader, signals chan os.Signal) {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := op.NewRunner(b)
	m, err := train.LoadModel(r, file, false)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := model.NewDecoder(r, m.Params, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	tpl, err := chat.Lookup("chatml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := generate.NewChat(generate.Generator{Decoder: dec, Tokenizer: m.Tokenizer}, tpl, opt)
	if err != nil {
		t.Fatal(err)
	}
	reader, keys := io.Pipe()
	t.Cleanup(func() { keys.Close(); dec.Close(); m.Params.Close(); b.Close() })
	out, notes, signals = new(bytes.Buffer), new(bytes.Buffer), make(chan os.Signal, 4)
	return &talk{chat: c, out: out, notes: notes, signals: signals, terminal: true}, out, notes, keys, reader, signals
}

// onWrite calls f at the n-th write.
type onWrite struct {
	io.Writer
	n int
	f func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.f()
	}
	return w.Writer.Write(p)
}

// TestChatInterrupt: on a terminal the first Ctrl-C stops the answer, which
// stays in the conversation; another one, or a first while nothing is being
// answered, leaves.
func TestChatInterrupt(t *testing.T) {
	_, named := chatModel(t)
	opt := generate.Options{MaxTokens: 60, IgnoreEnd: true, Sampling: generate.Sampling{Temperature: 1.5, Seed: 3}}
	// talkTo types, runs the loop to its end, and returns its error.
	talkTo := func(s *talk, keys *io.PipeWriter, in *io.PipeReader, lines ...string) error {
		end := make(chan error)
		go func() {
			err := s.loop(in)
			in.Close() // so that nobody types into the void
			end <- err
		}()
		for _, line := range lines {
			io.WriteString(keys, line+"\n")
		}
		return <-end
	}
	s, out, notes, keys, in, signals := newTalk(t, named, opt)
	s.out = &onWrite{out, 3, func() { signals <- os.Interrupt }}
	s.notes = &onWrite{notes, 6, func() { signals <- os.Interrupt }} // three prompts, the end of the answer, two notes
	if err := talkTo(s, keys, in, "the loom?", "/nonsense", "/system", "never read", "nor this"); !errors.Is(err, context.Canceled) {
		t.Errorf("the loop ended with %v", err)
	}
	msgs := s.chat.Messages()
	if len(msgs) != 2 || strings.TrimRight(out.String(), "\n") != strings.TrimRight(msgs[1].Content, "\n") {
		t.Errorf("shown %q, conversation %v", out, msgs)
	}
	for _, want := range []string{"(ended by canceled)", "unknown command /nonsense", "no system message", "> "} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("the notes %q lack %q", notes, want)
		}
	}

	s, out, _, keys, in, signals = newTalk(t, named, opt)
	s.out = &onWrite{out, 3, func() { signals <- os.Interrupt; signals <- os.Interrupt }}
	if err := talkTo(s, keys, in, "the loom?", "never answered"); !errors.Is(err, context.Canceled) || len(s.chat.Messages()) != 2 {
		t.Errorf("after two Ctrl-C the loop ended with %v, conversation %v", err, s.chat.Messages())
	}

	s, out, _, _, _, signals = newTalk(t, named, opt)
	signals <- os.Interrupt // while the message is read, before any token
	if err := s.say("the loom?"); err != nil || len(s.chat.Messages()) != 0 || strings.TrimSpace(out.String()) != "" {
		t.Errorf("stopped before the answer: %v, shown %q, conversation %v", err, out, s.chat.Messages())
	}

	s, _, notes, keys, in, _ = newTalk(t, named, opt)
	if err := talkTo(s, keys, in, strings.Repeat("far too long ", 60), "/quit"); err != nil || !strings.Contains(notes.String(), "context holds 128") {
		t.Errorf("a message that is too long: %v, notes %q", err, notes)
	}
}
