package engine

import (
	"context"
	"fmt"
	"math/rand/v2"

	"tezgah/chat"
	"tezgah/generate"
)

// generateRequest is the body of POST /api/generate and POST /api/chat. A
// pointer is a setting whose zero means something else than its default.
type generateRequest struct {
	Model             string         `json:"model"`
	Prompt            string         `json:"prompt"`
	Messages          []chat.Message `json:"messages"`
	MaxTokens         int            `json:"max_tokens"`
	Temperature       *float64       `json:"temperature"` // missing: 0.8; 0 always takes the likeliest
	TopK              int            `json:"top_k"`
	TopP              *float64       `json:"top_p"` // missing: 0.95
	MinP              float64        `json:"min_p"`
	RepetitionPenalty float64        `json:"repetition_penalty"`
	Seed              *uint64        `json:"seed"` // missing: drawn, and told in the start message
	Stop              []string       `json:"stop"`
	IgnoreEnd         bool           `json:"ignore_end"`
	Alternatives      int            `json:"alternatives"`
	Device            string         `json:"device"`
	Precision         string         `json:"precision"`
}

// Limits of a generation.
const (
	mostTokens       = 1 << 20
	mostAlternatives = 10
	mostStops        = 16
)

func (q *generateRequest) check() error {
	switch {
	case q.MaxTokens < 0 || q.MaxTokens > mostTokens:
		return badField("max_tokens", "max_tokens is %d, want 0 (256) to %d", q.MaxTokens, mostTokens)
	case q.Alternatives < 0 || q.Alternatives > mostAlternatives:
		return badField("alternatives", "alternatives is %d, want 0 to %d", q.Alternatives, mostAlternatives)
	case len(q.Stop) > mostStops:
		return badField("stop", "%d stop texts are given, at most %d", len(q.Stop), mostStops)
	case q.Precision != "" && q.Precision != "f32" && q.Precision != "mixed":
		return badField("precision", "precision is %q, want f32 or mixed", q.Precision)
	}
	if err := q.sampling(0).Validate(); err != nil {
		return named(err)
	}
	return nil
}

func (q *generateRequest) sampling(seed uint64) generate.Sampling {
	s := generate.Sampling{Temperature: 0.8, TopK: q.TopK, TopP: 0.95, MinP: q.MinP, RepetitionPenalty: q.RepetitionPenalty, Seed: seed}
	if q.Temperature != nil {
		s.Temperature = *q.Temperature
	}
	if q.TopP != nil {
		s.TopP = *q.TopP
	}
	return s
}

// alternative is a token that could have come instead.
type alternative struct {
	ID   int32  `json:"id"`
	Text string `json:"text"`
	Prob number `json:"prob"`
}

// generate is POST /api/generate.
func (s *Service) generate(c *call) error {
	var req generateRequest
	if err := readJSON(c.r, &req); err != nil {
		return err
	}
	if len(req.Messages) > 0 {
		return badField("messages", "messages are for /api/chat, want prompt")
	}
	return s.streamGeneration(c, req)
}

// chat is POST /api/chat.
func (s *Service) chat(c *call) error {
	var req generateRequest
	if err := readJSON(c.r, &req); err != nil {
		return err
	}
	if req.Prompt != "" || len(req.Messages) == 0 {
		return badField("messages", "want messages, at least one, and no prompt")
	}
	return s.streamGeneration(c, req)
}

// streamGeneration answers with the tokens as they come.
func (s *Service) streamGeneration(c *call, req generateRequest) error {
	g, err := s.begin(c.ctx, req)
	if err != nil {
		return err
	}
	defer g.release()
	st := startStream(c)
	if err := st.send(map[string]any{"type": "start", "prompt_tokens": len(g.prompt), "seed": g.opt.Seed}); err != nil {
		return nil
	}
	res, err := g.run(c.ctx, func(p generate.Piece) error {
		return st.send(map[string]any{"type": "piece", "id": p.ID, "text": p.Text, "prob": number(p.Prob), "alternatives": g.alternatives(p)})
	})
	if err != nil && c.ctx.Err() == nil {
		st.send(map[string]any{"type": "error", "error": asAPI(err)})
		return nil
	}
	st.send(map[string]any{
		"type": "end", "reason": res.Reason, "new_tokens": res.NewTokens, "tok_per_s": round(res.TokPerSec()), "notes": append(g.notes, res.Notes...),
	})
	return nil
}

// generation is one that is about to begin: the loaded model is its own until
// release.
type generation struct {
	s       *Service
	m       *loadedModel
	prompt  []int32
	opt     generate.Options
	notes   []string
	release func()
}

// begin checks a request, loads its model and encodes its prompt.
func (s *Service) begin(ctx context.Context, req generateRequest) (*generation, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if err := s.checkDevice(req.Device); err != nil {
		return nil, err
	}
	path, err := s.modelPath(req.Model)
	if err != nil {
		return nil, err
	}
	m, release, err := s.loaded.use(ctx, s, path, req.Device, req.Precision == "mixed")
	if err != nil {
		return nil, err
	}
	seed := uint64(rand.Uint32())
	if req.Seed != nil {
		seed = *req.Seed
	}
	g := &generation{s: s, m: m, release: release, notes: []string{}}
	g.opt = generate.Options{Sampling: req.sampling(seed), MaxTokens: req.MaxTokens, Stop: req.Stop, IgnoreEnd: req.IgnoreEnd, Alternatives: req.Alternatives}
	if len(req.Messages) > 0 {
		err = g.conversation(req.Messages)
	} else {
		err = g.text(req.Prompt)
	}
	if err != nil {
		release()
		return nil, err
	}
	return g, nil
}

// text makes a prompt of plain text. An empty one starts a new document.
func (g *generation) text(prompt string) error {
	if len(prompt) > maxJSON {
		return badField("prompt", "the prompt has %d bytes, at most %d", len(prompt), maxJSON)
	}
	g.prompt = g.m.tok.EncodeWithSpecials(nil, []byte(prompt))
	if len(g.prompt) == 0 {
		end := g.m.tok.EndOfDocument()
		if end < 0 {
			return badField("prompt", "the prompt is empty, and the model has no end-of-document token to start from")
		}
		g.prompt = []int32{end}
	}
	return nil
}

// conversation makes a prompt of messages. When they do not fit the context
// with room for an answer, the oldest after the system message are left out.
func (g *generation) conversation(messages []chat.Message) error {
	t, err := g.m.chatTemplate()
	if err != nil {
		return err
	}
	if err := chat.Validate(messages); err != nil {
		return badField("messages", "%v", err)
	}
	slots := g.m.dec.Slots()
	room := max(1, min(g.opt.MaxTokens, slots/4))
	first := 0
	if messages[0].Role == chat.System {
		first = 1
	}
	dropped := 0
	for {
		if g.prompt, err = t.Prompt(g.m.tok, messages); err != nil {
			return badField("messages", "%v", err)
		}
		if len(g.prompt)+room <= slots || len(messages)-first <= 1 {
			break
		}
		n := min(2, len(messages)-first-1) // a question with its answer
		messages = append(append([]chat.Message{}, messages[:first]...), messages[first+n:]...)
		dropped += n
	}
	if dropped > 0 {
		g.notes = append(g.notes, fmt.Sprintf("the context of %d tokens is full: the model does not see the first %d messages", slots, dropped))
	}
	for _, content := range t.Specials() {
		if id, ok := g.m.tok.SpecialID(content); ok {
			g.opt.StopIDs = append(g.opt.StopIDs, id)
		}
	}
	return nil
}

// run generates.
func (g *generation) run(ctx context.Context, emit func(generate.Piece) error) (generate.Result, error) {
	gen := generate.Generator{Decoder: g.m.dec, Tokenizer: g.m.tok}
	g.opt.StopIDs = append(g.opt.StopIDs, g.m.ends...)
	res, err := gen.GenerateIDs(ctx, g.prompt, g.opt, func(p generate.Piece) error {
		g.s.yield(ctx)
		return emit(p)
	})
	g.s.generated.Add(int64(res.NewTokens))
	if err != nil && ctx.Err() == nil && g.m.runner.Err() != nil {
		g.m.broken = true // the next request opens the device anew
		err = fail("device", "the device failed: %v", err)
	}
	return res, err
}

func (g *generation) alternatives(p generate.Piece) []alternative {
	list := make([]alternative, len(p.Alternatives))
	for i, a := range p.Alternatives {
		list[i] = alternative{a.ID, string(g.m.tok.Token(a.ID)), number(a.Prob)}
	}
	return list
}
