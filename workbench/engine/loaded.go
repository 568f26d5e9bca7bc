package engine

import (
	"context"
	"sync"
	"time"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/model"
	"tezgah/op"
	"tezgah/train"
)

// loadedModel is a model on a device, ready to generate.
type loadedModel struct {
	from     stamp
	device   string
	mixed    bool
	runner   *op.Runner
	params   *model.Params
	dec      *model.Decoder
	tok      *bpe.Tokenizer
	ends     []int32 // tokens that end what the model writes
	template string
	broken   bool
}

func (m *loadedModel) close() {
	m.dec.Close()
	m.params.Close()
	m.runner.Backend().Close()
}

// chatTemplate is the template that the model was trained with.
func (m *loadedModel) chatTemplate() (*chat.Template, error) {
	if m.template == "" {
		return nil, badField("model", "the model was not trained on conversations: it has no chat template, use /api/generate")
	}
	t, err := chat.Lookup(m.template)
	if err == nil {
		err = t.Check(m.tok)
	}
	if err != nil {
		return nil, badField("model", "%v", err)
	}
	return t, nil
}

// loaded keeps the last model that generated on its device. One generation goes
// on at a time; others wait for it.
type loaded struct {
	turn chan struct{} // holds one token while nobody generates
	last *loadedModel
	idle *time.Timer
	once sync.Once
}

// keepLoaded is how long a model that nobody uses keeps its memory.
const keepLoaded = 10 * time.Minute

func (l *loaded) init() {
	l.once.Do(func() {
		l.turn = make(chan struct{}, 1)
		l.turn <- struct{}{}
	})
}

// use waits for its turn and loads a model, unless it is the one that is there.
func (l *loaded) use(ctx context.Context, s *Service, path, device string, mixed bool) (m *loadedModel, release func(), err error) {
	l.init()
	select {
	case <-l.turn:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	release = sync.OnceFunc(func() {
		if l.last != nil && l.last.broken {
			l.drop()
		}
		if l.idle != nil {
			l.idle.Stop()
		}
		l.idle = time.AfterFunc(keepLoaded, l.unload)
		l.turn <- struct{}{}
	})
	from, err := stampOf(path)
	if err == nil && (l.last == nil || l.last.from != from || l.last.device != device || l.last.mixed != mixed) {
		l.drop()
		if l.last, err = s.loadModel(path, device, mixed); err == nil {
			l.last.from = from
		}
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return l.last, release, nil
}

// drop frees the model. The caller has the turn.
func (l *loaded) drop() {
	if l.last != nil {
		l.last.close()
		l.last = nil
	}
}

// close waits for the generation that goes on, which has been told to end, and
// frees the model.
func (l *loaded) close(ctx context.Context) error {
	l.init()
	select {
	case <-l.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.drop()
	if l.idle != nil {
		l.idle.Stop()
	}
	l.turn <- struct{}{}
	return nil
}

// unload frees the model if nobody is generating with it.
func (l *loaded) unload() {
	l.init()
	select {
	case <-l.turn:
		l.drop()
		l.turn <- struct{}{}
	default:
	}
}

// loadModel opens a device and puts a model on it.
func (s *Service) loadModel(path, device string, mixed bool) (*loadedModel, error) {
	b, _, err := s.open(device)
	if err != nil {
		return nil, err
	}
	r := op.NewRunner(b)
	if err := fits(path, r, mixed); err != nil {
		b.Close()
		return nil, err
	}
	m, err := train.LoadModel(r, path, mixed)
	if err != nil {
		b.Close()
		return nil, err
	}
	dec, err := model.NewDecoder(r, m.Params, 1, 0)
	if err != nil {
		m.Params.Close()
		b.Close()
		return nil, err
	}
	return &loadedModel{device: device, mixed: mixed, runner: r, params: m.Params, dec: dec, tok: m.Tokenizer, ends: m.EndIDs(), template: m.ChatTemplate}, nil
}

// fits refuses a model that the device has no memory for, beside a run that may
// be training on it.
func fits(path string, r *op.Runner, mixed bool) error {
	cfg, err := train.ModelOf(path)
	if err != nil {
		return err
	}
	lim := r.Backend().Limits()
	need, err := model.PredictDecoder(cfg, model.ParamOptions{Mirror: mixed && lim.F16}, 1, 0, lim)
	if err != nil {
		return err
	}
	if lim.FreeBytes > 0 && need.Total() > lim.FreeBytes {
		return fail("device", "the model needs %s and %s has %s free: pause a run that trains on it, or choose another device",
			model.FormatBytes(need.Total()), r.Backend().Device(), model.FormatBytes(lim.FreeBytes))
	}
	return nil
}
