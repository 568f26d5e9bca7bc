package engine

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"tezgah/chat"
	"tezgah/internal/nearest"
	"tezgah/model"
	"tezgah/optim"
	"tezgah/train"
)

// settled is what settings come to.
type settled struct {
	cfg        train.Config
	passTokens int64    // tokens of one pass; 0: not known before the conversations are read
	uses       []string // keys of claims
	init       string   // the model file that training starts from, "" for random weights
}

// settle turns settings into a training configuration. It names every setting
// that is wrong, and comes as far as it can.
func (s *Service) settle(set RunSettings) (settled, []*apiError) {
	b := settling{s: s, set: set}
	b.data()
	b.base()
	b.model()
	b.rates()
	b.limits()
	b.cfg.NoTensorBoard = s.opt.Place == "tab" // nobody could point TensorBoard at the files there
	b.problem(s.checkDevice(set.Device))
	if len(b.problems) == 0 {
		b.validate()
	}
	return b.settled, b.problems
}

// settling is settle's work in progress.
type settling struct {
	s   *Service
	set RunSettings
	settled
	vocab    int
	problems []*apiError
}

func (b *settling) problem(err error) {
	if err != nil {
		b.problems = append(b.problems, asAPI(err))
	}
}

// data looks the token files up, or the texts of conversations.
func (b *settling) data() {
	switch {
	case len(b.set.SFT) > 0 && len(b.set.Data) > 0:
		b.problem(badField("sft", "data and sft exclude each other: train on the text first, then fine-tune what came out with init"))
	case len(b.set.SFT) > 0:
		b.chats()
	case len(b.set.Data) == 0:
		b.problem(badField("data", "no data is chosen, want at least one token file"))
	}
	sha := ""
	for _, share := range b.set.Data {
		d, err := b.s.data(share.Name)
		if err != nil {
			b.problem(err)
			continue
		}
		if sha == "" {
			sha, b.vocab = d.Tokenizer, d.VocabSize
		}
		if sha != d.Tokenizer {
			b.problem(badField("data", "%s and %s were made with different tokenizers: build both with one", b.set.Data[0].Name, share.Name))
		}
		b.cfg.Data = append(b.cfg.Data, train.DataSource{Path: b.s.dataPath(share.Name), Weight: share.Weight})
		b.uses = append(b.uses, "data/"+share.Name)
		fraction := b.set.ValFraction
		if fraction == 0 {
			fraction = 0.05
		}
		b.passTokens += int64(float64(d.Tokens) * (1 - fraction))
	}
	b.cfg.ValFraction = b.set.ValFraction
}

// chats looks the texts of conversations up.
func (b *settling) chats() {
	if b.set.Init == "" {
		b.problem(badField("init", "conversations need a model to start from"))
	}
	for _, name := range b.set.SFT {
		if _, err := b.s.text(name); err != nil {
			e := *asAPI(err)
			e.Code, e.Field = "bad_request", "sft"
			b.problem(&e)
			continue
		}
		if name == sampleName {
			b.problem(badField("sft", "the sample text holds no conversations"))
		}
		b.cfg.Chats = append(b.cfg.Chats, b.s.path("texts", name, textFiles))
		b.uses = append(b.uses, "texts/"+name)
	}
	if b.cfg.Template = b.set.Template; b.cfg.Template != "" {
		if _, err := chat.Lookup(b.cfg.Template); err != nil {
			b.problem(badField("template", "%v", err))
		}
	}
}

// base finds the model that training starts from.
func (b *settling) base() {
	if b.set.Init == "" {
		if b.set.LoRA != nil && b.set.LoRA.Ok() {
			b.problem(badField("lora", "adapters need a model that they belong to: set init"))
		}
		return
	}
	path, err := b.s.initPath(b.set.Init)
	if err != nil {
		e := *asAPI(err)
		e.Code, e.Field = "bad_request", "init"
		b.problem(&e)
		return
	}
	b.init, b.cfg.InitFrom = path, path
	if b.set.LoRA != nil {
		b.cfg.LoRA = *b.set.LoRA
	}
}

// initPath is the model file that the setting init means: a model's name, or
// RUN@STEP for a checkpoint of a run.
func (s *Service) initPath(init string) (string, error) {
	name, step, ok := strings.Cut(init, "@")
	if !ok {
		return s.modelPath(name)
	}
	n, err := strconv.ParseInt(step, 10, 64)
	if err != nil {
		return "", badField("init", "init is %q, want a model's name or RUN@STEP", init)
	}
	return s.checkpointPath(name, n)
}

// model puts the fields that were given over the preset.
func (b *settling) model() {
	if b.init != "" {
		b.initModel()
		return
	}
	name := b.set.Preset
	if name == "" {
		name = "nano"
	}
	m, err := model.Preset(name)
	if err != nil {
		b.problem(badField("preset", "%v", err))
		return
	}
	b.cfg.Preset, b.cfg.Model = name, m
	b.cfg.Model.VocabSize = b.vocab
	if err := overrideModel(&b.cfg.Model, b.set.Model); err != nil {
		b.problem(err)
	}
	if b.set.Context > 0 {
		b.cfg.Model.Context = b.set.Context
	}
}

// initModel takes the architecture from the model that training starts from.
func (b *settling) initModel() {
	if b.set.Preset != "" || len(b.set.Model) > 0 {
		b.problem(badField("preset", "preset and model cannot go with init: the architecture is that of the model"))
	}
	m, err := train.ModelOf(b.init)
	if err != nil {
		b.problem(badField("init", "%v", err))
		return
	}
	b.cfg.Model = m
	if b.vocab > m.VocabSize {
		b.problem(badField("data", "the token file has ids up to %d but the model a vocabulary of %d: build it with the model's tokenizer, model:%s",
			b.vocab-1, m.VocabSize, b.set.Init))
	}
}

// overrideModel decodes fields of a model's configuration over m. What follows
// from a field that is given follows anew.
func overrideModel(m *model.Config, raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return badField("model", "model is no JSON object: %v", err)
	}
	has := func(key string) bool { _, ok := given[key]; return ok }
	if has("d_model") || has("heads") {
		m.HeadDim = 0
	}
	if has("heads") {
		m.KVHeads = 0
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	vocab := m.VocabSize
	if err := dec.Decode(m); err != nil {
		return jsonError(err)
	}
	if m.VocabSize == 0 {
		m.VocabSize = vocab
	}
	if m.VocabSize < vocab {
		return badField("vocab_size", "vocab_size is %d but the token file has %d ids", m.VocabSize, vocab)
	}
	*m = m.WithDefaults()
	return nil
}

// rates copies what is about optimization.
func (b *settling) rates() {
	c, set := &b.cfg, b.set
	c.Batch, c.Context, c.Accum = set.Batch, set.Context, set.Accum
	c.Optim = optim.Defaults()
	pick(&c.Optim.Beta1, set.Beta1)
	pick(&c.Optim.Beta2, set.Beta2)
	pick(&c.Optim.Eps, set.Eps)
	pick(&c.Optim.NonFinite, set.NonFinite)
	if set.WeightDecay != nil {
		c.Optim.WeightDecay = *set.WeightDecay
	}
	if set.Clip != nil {
		c.Optim.Clip = *set.Clip
	}
	c.Schedule = optim.Schedule{Kind: "cosine", LR: set.LR, Warmup: -1, DecaySteps: set.DecaySteps}
	pick(&c.Schedule.Kind, set.Schedule)
	if kinds := []string{"constant", "cosine", "linear", "wsd"}; set.Schedule != "" {
		b.problem(checkWord("schedule", set.Schedule, kinds))
	}
	if c.Schedule.LR == 0 {
		c.Schedule.LR = train.DefaultRate(*c)
	}
	c.Schedule.MinLR = c.Schedule.LR / 10
	if set.MinLR != nil {
		c.Schedule.MinLR = *set.MinLR
	}
	if set.Warmup != nil {
		if c.Schedule.Warmup = *set.Warmup; *set.Warmup < 0 {
			b.problem(badField("warmup", "warmup is %d steps, want at least 0", *set.Warmup))
		}
	}
	c.Precision, c.Moments8, c.Recompute, c.DocMask = set.Precision, set.Moments8, set.Recompute, set.DocMask
	c.LabelSmoothing, c.ZLoss, c.Seed = set.LabelSmoothing, set.ZLoss, set.Seed
}

func pick[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

func checkWord(field, word string, known []string) error {
	for _, k := range known {
		if k == word {
			return nil
		}
	}
	return badField(field, "%s is %q, want one of %s%s", field, word, strings.Join(known, ", "), nearest.Hint(word, known, ""))
}

// limits copies how long the run is and what is kept of it.
func (b *settling) limits() {
	c, set := &b.cfg, b.set
	c.MaxSteps, c.MaxTokens, c.Epochs = set.MaxSteps, set.MaxTokens, set.Epochs
	if !(set.MaxMinutes >= 0 && set.MaxMinutes < 1e7) {
		b.problem(badField("max_minutes", "max_minutes is %v, want a positive number", set.MaxMinutes))
	} else {
		c.MaxTime = time.Duration(set.MaxMinutes * float64(time.Minute))
	}
	c.EvalEvery, c.CheckpointEvery, c.Keep = set.EvalEvery, set.CheckpointEvery, set.Keep
	c.SampleEvery, c.SamplePrompt, c.SampleTokens = set.SampleEvery, set.SamplePrompt, set.SampleTokens
}

// validate asks the packages that know the settings.
func (b *settling) validate() {
	if err := b.cfg.Validate(); err != nil {
		b.problem(named(err))
		return
	}
	b.cfg = b.cfg.Settle(b.passTokens)
	if b.cfg.Model.VocabSize > 0 {
		if err := b.cfg.Model.Validate(); err != nil {
			b.problem(named(err))
		}
	}
	if b.passTokens == 0 && b.set.MaxSteps == 0 { // conversations that nobody has counted yet
		return
	}
	if err := b.cfg.Schedule.Validate(); err != nil {
		b.problem(named(err))
	}
}
