package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
)

// stepJSON is one normalizer, pre-tokenizer, post-processor or decoder: the fields that any of the supported kinds has.
type stepJSON struct {
	Type string `json:"type"`

	Normalizers   []stepJSON `json:"normalizers"`   // of a Sequence
	PreTokenizers []stepJSON `json:"pretokenizers"` // of a Sequence
	Processors    []stepJSON `json:"processors"`    // of a Sequence
	Decoders      []stepJSON `json:"decoders"`      // of a Sequence

	AddPrefixSpace bool        `json:"add_prefix_space"`  // ByteLevel
	UseRegex       *bool       `json:"use_regex"`         // ByteLevel; absent means true
	Pattern        patternJSON `json:"pattern"`           // Split
	Behavior       string      `json:"behavior"`          // Split
	Invert         bool        `json:"invert"`            // Split
	Individual     bool        `json:"individual_digits"` // Digits

	Single []templateJSON `json:"single"` // TemplateProcessing
}

type patternJSON struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

// templateJSON is one piece of a template: a special token or the text itself.
type templateJSON struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct{} `json:"Sequence"`
}

// maxSteps bounds the nesting and number of steps that a file can make the reader follow.
const maxSteps = 64

// flatten reads a section and unfolds sequences in it; an absent section has no steps.
func flatten(section string, raw json.RawMessage) ([]stepJSON, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var top stepJSON
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("bpe: %s: %w", section, err)
	}
	steps := []stepJSON{top}
	for i := 0; i < len(steps); {
		s := steps[i]
		if s.Type != "Sequence" {
			i++
			continue
		}
		var inner []stepJSON
		for _, list := range [][]stepJSON{s.Normalizers, s.PreTokenizers, s.Processors, s.Decoders} {
			inner = append(inner, list...)
		}
		steps = append(append(append([]stepJSON{}, steps[:i]...), inner...), steps[i+1:]...)
		if len(steps) > maxSteps {
			return nil, fmt.Errorf("bpe: %s has more than %d steps", section, maxSteps)
		}
	}
	return steps, nil
}

func unsupported(section, kind string) error {
	return fmt.Errorf("bpe: %s is of type %q, which is not supported; byte-level BPE tokenizers in the style of GPT-2, "+
		"Llama 3 and Qwen 2 are", section, clip(kind, 60))
}

// parseNormalizer accepts nothing or NFC.
func parseNormalizer(raw json.RawMessage) (nfc bool, err error) {
	steps, err := flatten("normalizer", raw)
	for _, s := range steps {
		if s.Type != "NFC" {
			return false, unsupported("normalizer", s.Type)
		}
		nfc = true
	}
	return nfc, err
}

// parsePreTokenizer accepts ByteLevel with its built-in GPT-2 expression, alone or after individual Digits, or a Split by
// a known expression and then ByteLevel without one.
func parsePreTokenizer(raw json.RawMessage) (rules, error) {
	steps, err := flatten("pre_tokenizer", raw)
	if err != nil {
		return rules{}, err
	}
	for _, s := range steps {
		if s.Type != "ByteLevel" && s.Type != "Split" && !(s.Type == "Digits" && s.Individual) {
			return rules{}, unsupported("pre_tokenizer", s.Type)
		}
		if s.AddPrefixSpace {
			return rules{}, errors.New("bpe: pre_tokenizer: add_prefix_space is true; it is not supported")
		}
	}
	regexOf := func(s stepJSON) bool { return s.UseRegex == nil || *s.UseRegex }
	switch {
	case len(steps) == 1 && steps[0].Type == "ByteLevel" && regexOf(steps[0]):
		return canonical[GPT2].rules, nil
	case len(steps) == 2 && steps[0].Type == "Split" && steps[1].Type == "ByteLevel" && !regexOf(steps[1]):
		return parseSplit(&steps[0])
	case len(steps) == 2 && steps[0].Type == "Digits" && steps[1].Type == "ByteLevel" && regexOf(steps[1]):
		return gpt2DigitsRules, nil
	}
	return rules{}, errors.New("bpe: pre_tokenizer is neither ByteLevel with use_regex, alone or after Digits, nor a Split " +
		"followed by ByteLevel without use_regex; no other arrangement is supported")
}

func parseSplit(s *stepJSON) (rules, error) {
	switch {
	case s.Pattern.Regex == nil:
		return rules{}, errors.New("bpe: pre_tokenizer: Split has no Regex pattern; splitting at a String is not supported")
	case s.Behavior != "Isolated":
		return rules{}, fmt.Errorf("bpe: pre_tokenizer: Split has the behavior %q, want \"Isolated\"", clip(s.Behavior, 40))
	case s.Invert:
		return rules{}, errors.New("bpe: pre_tokenizer: Split has invert true; it is not supported")
	}
	return rulesByRegex(*s.Pattern.Regex)
}

// parsePostProcessor accepts ByteLevel, which only concerns offsets, and TemplateProcessing, of which it returns the
// special token before the text.
func parsePostProcessor(raw json.RawMessage) (bos string, err error) {
	steps, err := flatten("post_processor", raw)
	for _, s := range steps {
		switch s.Type {
		case "ByteLevel":
		case "TemplateProcessing":
			if len(s.Single) > 0 && s.Single[0].SpecialToken != nil {
				bos = s.Single[0].SpecialToken.ID
			}
		default:
			return "", unsupported("post_processor", s.Type)
		}
	}
	return bos, err
}

// checkDecoder accepts ByteLevel, or nothing.
func checkDecoder(raw json.RawMessage) error {
	steps, err := flatten("decoder", raw)
	for _, s := range steps {
		if s.Type != "ByteLevel" {
			return unsupported("decoder", s.Type)
		}
	}
	return err
}
