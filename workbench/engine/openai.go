package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"tezgah/chat"
	"tezgah/generate"
)

// This file answers the requests of OpenAI's interface that programs use most:
// completions, chat completions and the list of models, streamed or whole.

// openAIRequest is what both completions take. Fields with a meaning here are
// decoded; harmless ones are known and ignored; the rest is refused by name.
type openAIRequest struct {
	Model       string          `json:"model"`
	Prompt      json.RawMessage `json:"prompt"`
	Messages    []chat.Message  `json:"messages"`
	MaxTokens   *int            `json:"max_tokens"`
	MaxComplete *int            `json:"max_completion_tokens"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	Seed        *uint64         `json:"seed"`
	Stop        json.RawMessage `json:"stop"`
	Stream      bool            `json:"stream"`
	StreamOpt   struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	// Settings of other engines that are known here too.
	TopK              int     `json:"top_k"`
	MinP              float64 `json:"min_p"`
	RepetitionPenalty float64 `json:"repetition_penalty"`
}

// harmless are fields that change no answer here.
var harmless = []string{
	"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls", "verbosity", "reasoning_effort",
}

// neutral are fields that change nothing with these values and are refused with
// others.
var neutral = map[string][]string{
	"n": {"1"}, "best_of": {"1"}, "echo": {"false"}, "suffix": {`""`}, "logprobs": {"false"}, "top_logprobs": {"0"}, "logit_bias": {"{}"},
	"presence_penalty": {"0", "0.0"}, "frequency_penalty": {"0", "0.0"}, "tools": {"[]"}, "functions": {"[]"}, "tool_choice": {`"none"`, `"auto"`},
	"function_call": {`"none"`, `"auto"`}, "response_format": {`{"type":"text"}`}, "modalities": {`["text"]`},
}

// readOpenAI decodes the body.
func readOpenAI(r Request) (req openAIRequest, err error) {
	var all map[string]json.RawMessage
	if err := readJSON(r, &all); err != nil {
		return req, err
	}
	for key, raw := range all {
		value := compact(raw)
		if values, ok := neutral[key]; ok {
			if value != "null" && !slices.Contains(values, value) {
				return req, badField(key, "%s is not supported here, leave it out or set it to %s", key, values[0])
			}
			delete(all, key)
		} else if slices.Contains(harmless, key) || value == "null" {
			delete(all, key)
		}
	}
	rest, err := json.Marshal(all)
	if err != nil {
		return req, err
	}
	dec := json.NewDecoder(strings.NewReader(string(rest)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil && err != io.EOF {
		return req, jsonError(err)
	}
	return req, nil
}

// compact is a JSON value without white space.
func compact(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// oneOrMany reads a string or a list of strings.
func oneOrMany(field string, raw json.RawMessage) ([]string, error) {
	var one string
	var many []string
	switch {
	case len(raw) == 0:
		return nil, nil
	case json.Unmarshal(raw, &one) == nil:
		return []string{one}, nil
	case json.Unmarshal(raw, &many) == nil:
		return many, nil
	}
	return nil, badField(field, "%s is %.80s, want a string or a list of strings", field, raw)
}

// common turns the request into ours. The defaults are OpenAI's: temperature
// and top_p 1.
func (q openAIRequest) common(defaultTokens int) (g generateRequest, err error) {
	one := 1.0
	g = generateRequest{
		Model: q.Model, MaxTokens: defaultTokens, Temperature: &one, TopP: &one, TopK: q.TopK, MinP: q.MinP,
		RepetitionPenalty: q.RepetitionPenalty, Seed: q.Seed,
	}
	if q.Temperature != nil {
		g.Temperature = q.Temperature
	}
	if q.TopP != nil {
		g.TopP = q.TopP
	}
	for _, n := range []*int{q.MaxTokens, q.MaxComplete} {
		if n == nil {
			continue
		}
		if *n < 1 {
			return g, badField("max_tokens", "max_tokens is %d, want a positive number", *n)
		}
		g.MaxTokens = *n
	}
	g.Stop, err = oneOrMany("stop", q.Stop)
	return g, err
}

// completions is POST /v1/completions.
func (s *Service) completions(c *call) error {
	req, err := readOpenAI(c.r)
	if err != nil {
		return err
	}
	g, err := req.common(16)
	if err != nil {
		return err
	}
	prompts, err := oneOrMany("prompt", req.Prompt)
	if err != nil {
		return err
	}
	switch {
	case len(req.Messages) > 0:
		return badField("messages", "messages are for /v1/chat/completions, want prompt")
	case len(prompts) > 1:
		return badField("prompt", "%d prompts are given, want one a request", len(prompts))
	case len(prompts) == 1:
		g.Prompt = prompts[0]
	}
	return s.complete(c, req, g, completionShape{id: "cmpl", object: "text_completion", chunk: "text_completion",
		choice: func(text string, _, _ bool) map[string]any { return map[string]any{"text": text, "logprobs": nil} },
	})
}

// chatCompletions is POST /v1/chat/completions.
func (s *Service) chatCompletions(c *call) error {
	req, err := readOpenAI(c.r)
	if err != nil {
		return err
	}
	g, err := req.common(512)
	if err != nil {
		return err
	}
	if g.Messages = req.Messages; len(g.Messages) == 0 || len(req.Prompt) > 0 {
		return badField("messages", "want messages, at least one, and no prompt")
	}
	return s.complete(c, req, g, completionShape{id: "chatcmpl", object: "chat.completion", chunk: "chat.completion.chunk",
		choice: func(text string, first, streamed bool) map[string]any {
			message := map[string]any{"role": "assistant", "content": text}
			if !streamed {
				return map[string]any{"message": message}
			}
			if !first {
				delete(message, "role")
				if text == "" {
					delete(message, "content")
				}
			}
			return map[string]any{"delta": message}
		},
	})
}

// completionShape is what the two kinds of completion differ in.
type completionShape struct {
	id, object, chunk string
	choice            func(text string, first, streamed bool) map[string]any
}

// finishReasons are OpenAI's words for how a text ended.
var finishReasons = map[string]string{"end": "stop", "stop": "stop", "length": "length"}

// complete generates and answers in one of the two shapes.
func (s *Service) complete(c *call, req openAIRequest, g generateRequest, shape completionShape) error {
	gen, err := s.begin(c.ctx, g)
	if err != nil {
		return err
	}
	defer gen.release()
	base := map[string]any{"id": fmt.Sprintf("%s-%016x", shape.id, rand.Uint64()), "created": now().Unix(), "model": req.Model}
	usage := func(res generate.Result) map[string]any {
		return map[string]any{"prompt_tokens": res.PromptTokens, "completion_tokens": res.NewTokens, "total_tokens": res.PromptTokens + res.NewTokens}
	}
	answer := func(object, text string, first, streamed bool, reason any) map[string]any {
		choice := shape.choice(text, first, streamed)
		choice["index"], choice["finish_reason"] = 0, reason
		out := map[string]any{"object": object, "choices": []any{choice}}
		for k, v := range base {
			out[k] = v
		}
		return out
	}
	if !req.Stream {
		res, err := gen.run(c.ctx, func(generate.Piece) error { return nil })
		if err != nil {
			return err
		}
		out := answer(shape.object, res.Text, true, false, finishReasons[res.Reason])
		out["usage"] = usage(res)
		return c.json(out)
	}
	st := startStream(c)
	first := true
	res, err := gen.run(c.ctx, func(p generate.Piece) error {
		if p.Text == "" {
			return nil
		}
		begin := first
		first = false
		return st.send(answer(shape.chunk, p.Text, begin, true, nil))
	})
	if err != nil {
		if c.ctx.Err() == nil {
			st.send(map[string]any{"error": openAIError(asAPI(err))})
		}
		return nil
	}
	if st.send(answer(shape.chunk, "", first, true, finishReasons[res.Reason])) != nil {
		return nil
	}
	if req.StreamOpt.IncludeUsage {
		last := answer(shape.chunk, "", false, true, nil)
		last["choices"], last["usage"] = []any{}, usage(res)
		if st.send(last) != nil {
			return nil
		}
	}
	st.raw([]byte("[DONE]"))
	return nil
}

// openAIError is an error in OpenAI's shape, with our code and field in it.
func openAIError(e *apiError) map[string]any {
	typ := "invalid_request_error"
	if statusOf[e.Code] >= 500 {
		typ = "server_error"
	}
	var param any
	if e.Field != "" {
		param = e.Field
	}
	return map[string]any{"message": e.Message, "type": typ, "param": param, "code": e.Code}
}

// openAIModels is GET /v1/models.
func (s *Service) openAIModels(c *call) error {
	models, err := s.allModels()
	if err != nil {
		return err
	}
	list := []any{}
	for _, m := range models {
		if m.Tokenizer {
			list = append(list, map[string]any{"id": m.Name, "object": "model", "created": m.Created.Unix(), "owned_by": "tezgah"})
		}
	}
	return c.json(map[string]any{"object": "list", "data": list})
}
