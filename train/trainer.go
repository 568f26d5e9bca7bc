package train

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/runlog"
	"tezgah/tensor"
)

// OpenBackend opens the device that training runs on. The trainer calls it at
// the start and once more after a device was lost.
type OpenBackend func() (op.Backend, error)

// Options are what a run needs beside its Config.
type Options struct {
	Dir      string      // the run folder
	Open     OpenBackend // required
	Version  string      // of the program, for the record
	Args     []string    // the command line, for the record
	Observer Observer
	JSON     io.Writer // run-log lines are copied here; may be nil
	// Context ends New and Resume while they read conversations, which can take
	// minutes; nil never does. It does not end Run, which has one of its own.
	Context context.Context
}

// Observer hears what happens, on the trainer's goroutine. Any field may be nil.
type Observer struct {
	Memory func(plan model.Plan, freeBytes int64) // before anything is allocated; free is 0 where it is not known
	Start  func(Info)                             // once, before the first step
	Step   func(runlog.Step, Pace)                // after every step
	Eval   func(int64, EvalResult)                // after every evaluation
	Sample func(step int64, prompt, text string)  // when the model has written a text
	Save   func(step int64, path string)
	Notice func(string) // something the user should know
}

// Info describes a run at its start.
type Info struct {
	Config      Config
	Device      string
	Params      int
	Trained     int        // parameters that training changes: fewer with adapters
	Plan        model.Plan // memory, by label
	TrainTokens int64      // tokens to draw from
	ValTokens   int64
	Chats       *ChatInfo // nil for token files; then the two above count positions
	FirstStep   int64     // steps already done
	LastStep    int64
}

// Pace is how far a run is.
type Pace struct {
	Step, LastStep int64
	TokPerSec      float64       // over about the last ten seconds
	Elapsed, ETA   time.Duration // of this process
}

// Result is how a run ended.
type Result struct {
	Steps     int64      `json:"steps"`
	Tokens    int64      `json:"tokens"`
	Seconds   float64    `json:"seconds"` // training time, resumed runs counted together
	TokPerSec float64    `json:"tokens_per_second"`
	Loss      float64    `json:"loss"` // of the last step, nats per token
	Val       EvalResult `json:"val"`
	Reason    string     `json:"reason"` // "steps", "time" or "target"
	ModelPath string     `json:"model_path"`
}

// Trainer is one run in one process. It is made by New or Resume, used by one
// goroutine, and must be closed.
type Trainer struct {
	cfg  Config
	opt  Options
	lock *checkpoint.RunLock
	log  *runlog.Log
	tb   *runlog.TensorBoard // nil without event files
	data *data

	noSamples bool     // one has failed
	settled   bool     // the last step is in the log, and no update has begun since
	tbLate    bool     // earlier steps were logged without event files
	early     []string // notices from before the log was open

	// What the device holds; replaced as a whole after a lost device.
	backend op.Backend
	rounds  bool        // products round their inputs to 16 bits
	told    int         // bytes of the device's notices that the user knows
	planned *model.Plan // see plan
	runner  *op.Runner
	params  *model.Params
	graph   *model.Graph
	adam    *optim.AdamW
	eval    *Evaluator

	state   state
	lastVal evaluated

	tokens, targets, docStart []int32 // one step's batches, (accum, B, T)
}

// state is what decides the next step beside weights, moments and Config.
type state struct {
	Step     int64   `json:"step"`    // optimizer steps done, skipped ones counted
	Updates  int64   `json:"updates"` // steps that changed the weights: Adam's t
	Tokens   int64   `json:"tokens"`  // counted targets so far
	Cursor   []int64 `json:"cursor"`  // windows drawn per source
	Seconds  float64 `json:"seconds"` // training time so far
	LastLoss float64 `json:"last_loss"`
	LastVal  float64 `json:"last_val"` // nats per token; 0 before the first evaluation
	// LossScale is that of products in float16; zero without them.
	LossScale optim.LossScale `json:"loss_scale,omitzero"`
}

// evaluated is a result and the step it was measured after.
type evaluated struct {
	EvalResult
	step int64
}

// New starts a run in an empty or new folder. When that fails the folder is as
// it was.
func New(cfg Config, opt Options) (*Trainer, error) {
	cfg, notices, err := cfg.withBase()
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(opt.Dir, configName)); err == nil {
		return nil, fmt.Errorf("%s already holds a run: go on with --resume %s, or choose another folder", opt.Dir, opt.Dir)
	}
	t := &Trainer{cfg: cfg, opt: opt}
	for _, s := range notices {
		t.notice(s)
	}
	if err := t.start(false); err != nil {
		t.abandon()
		return nil, err
	}
	return t, nil
}

// Resume goes on with the run in opt.Dir from its newest whole checkpoint, or
// from its beginning when none was saved. change may alter limits (MaxSteps,
// MaxTime, TargetLoss, Keep, EvalEvery, CheckpointEvery, NoTensorBoard, samples); nil changes nothing.
// What decides the weights, the schedule's Total included, stays as it was.
func Resume(opt Options, change func(*Config)) (*Trainer, error) {
	cfg, err := LoadConfig(opt.Dir)
	if err != nil {
		return nil, err
	}
	late := cfg.NoTensorBoard
	if change != nil {
		change(&cfg)
	}
	t := &Trainer{cfg: cfg.withDefaults(), opt: opt, tbLate: late}
	if err := t.start(true); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// start opens everything in an order that leaves nothing behind when a step of
// it fails: data first, then the device, and the run folder's files last.
func (t *Trainer) start(resume bool) error {
	lock, err := checkpoint.Lock(t.opt.Dir)
	if err != nil {
		return err
	}
	t.lock = lock
	if err := t.openData(); err != nil {
		return err
	}
	if err := t.openDevice(); err != nil {
		return err
	}
	if err := t.restore(); err != nil {
		return err
	}
	if err := saveConfig(t.opt.Dir, t.cfg); err != nil { // on resume for limits that changed
		return err
	}
	return t.openLog(resume)
}

// openData opens the training data and settles what depends on it.
func (t *Trainer) openData() error {
	base, err := t.findBase()
	if err != nil {
		return err
	}
	ctx := t.opt.Context
	if ctx == nil {
		ctx = context.Background()
	}
	if t.data, err = openData(ctx, t.cfg, base); err != nil {
		return err
	}
	for _, s := range t.data.notices {
		t.notice(s)
	}
	if err := t.settleModel(); err != nil {
		return err
	}
	perStep := t.cfg.tokensPerStep()
	t.cfg = t.cfg.withSteps(t.cfg.steps(t.data.passTokens))
	if err := t.cfg.Schedule.Validate(); err != nil {
		return err
	}
	t.tokens, t.targets = make([]int32, perStep), make([]int32, perStep)
	if t.cfg.DocMask {
		t.docStart = make([]int32, perStep)
	}
	return nil
}

// settleModel makes the model's vocabulary that of the data. Only the tokens
// of a chat template may make it grow.
func (t *Trainer) settleModel() error {
	m, d := &t.cfg.Model, t.data
	if m.VocabSize == 0 {
		m.VocabSize = d.vocab
	}
	if d.chats != nil {
		t.cfg.Template, t.cfg.ChatsHash = d.template, d.hash
		if len(d.chats.Added) > 0 && t.cfg.InitFrom != "" {
			t.notice(fmt.Sprintf("the tokenizer gets %s for the chat template %s: %d ids, the model has %d",
				strings.Join(d.chats.Added, ", "), d.template, d.vocab, m.VocabSize))
			if t.cfg.LoRA.Ok() {
				t.notice("their vectors are drawn at random and stay so, because --lora trains the adapters alone, and a model that has " +
					"read little learns conversations badly around them: fine-tune all weights first (without --lora), then adapters on what comes out")
			}
		}
		m.VocabSize = max(m.VocabSize, d.vocab)
	}
	if m.VocabSize < d.vocab {
		return fmt.Errorf("the data has ids up to %d but the model has a vocabulary of %d: use the token files that the model was made for",
			d.vocab-1, m.VocabSize)
	}
	return m.Validate()
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// graphOptions are the training graph's shape and loss.
func (c Config) graphOptions() model.TrainOptions {
	return model.TrainOptions{
		Batch: c.Batch, Context: c.Context,
		LabelSmoothing: c.LabelSmoothing, ZLoss: c.ZLoss,
		DocMask: c.DocMask, Recompute: c.Recompute,
	}
}

// paramOptions are the parameter buffers, as far as the device can serve them, while its
// products round to operands.
func (c Config) paramOptions(lim op.Limits, operands tensor.DType) model.ParamOptions {
	return model.ParamOptions{
		Grads: true, Moments: !c.Moments8, Moments8: c.Moments8,
		Mirror: c.Precision == Mixed && lim.F16, Rounded: model.RoundedOn(lim, operands), LoRA: c.LoRA,
	}
}

// openDevice opens the backend and allocates everything that training needs.
func (t *Trainer) openDevice() (err error) {
	if t.backend, err = t.opt.Open(); err != nil {
		return err
	}
	t.runner = op.NewRunner(t.backend)
	if n, ok := t.backend.(op.Noticer); ok {
		t.told = len(n.Notice()) // by Open
	}
	if err = t.setPrecision(); err != nil {
		return err
	}
	if err = t.checkMemory(); err != nil {
		return err
	}
	if t.params, err = model.NewParams(t.runner, t.cfg.Model, t.cfg.paramOptions(t.backend.Limits(), op.OperandType(t.backend))); err != nil {
		return t.tooLarge(err)
	}
	if t.graph, err = model.NewGraph(t.runner, t.params, t.cfg.graphOptions()); err != nil {
		return t.tooLarge(err)
	}
	if t.adam, err = optim.New(t.runner, t.params, t.cfg.Optim); err != nil {
		return err
	}
	t.eval = NewWindowsEvaluator(t.graph, t.data.held, t.data.byteLens)
	return nil
}

// lessMemory is the advice for a run that does not fit.
const lessMemory = "take a smaller --batch or --context, --recompute, --moments8, or a smaller --preset"

// checkMemory predicts what the run needs and refuses one that cannot fit.
func (t *Trainer) checkMemory() error {
	plan, err := t.plan()
	if err != nil {
		return err
	}
	free := t.backend.Limits().FreeBytes
	if t.opt.Observer.Memory != nil {
		t.opt.Observer.Memory(plan, free)
	}
	if free > 0 && plan.Total() > free {
		return fmt.Errorf("the run needs %s and %s has %s free: %s", model.FormatBytes(plan.Total()), t.backend.Device(), model.FormatBytes(free), lessMemory)
	}
	return nil
}

// tooLarge adds what to change to an allocation that failed.
func (t *Trainer) tooLarge(err error) error {
	plan, planErr := t.plan()
	if planErr != nil {
		return err
	}
	return fmt.Errorf("%w (the run needs %s in all: %s)", err, model.FormatBytes(plan.Total()), lessMemory)
}

// closeDevice releases what openDevice made.
func (t *Trainer) closeDevice() {
	if t.graph != nil {
		t.graph.Close()
	}
	if t.params != nil {
		t.params.Close()
	}
	if t.backend != nil {
		t.backend.Close()
	}
	t.backend, t.runner, t.params, t.graph, t.adam, t.eval, t.planned = nil, nil, nil, nil, nil, nil, nil
}

// Info describes the run.
func (t *Trainer) Info() (Info, error) {
	plan, err := t.plan()
	info := Info{
		Config: t.cfg, Device: t.backend.Device(), Params: t.cfg.Model.NumParams(), Trained: t.params.Trainable().NumParams(), Plan: plan,
		TrainTokens: t.data.passTokens, ValTokens: t.data.heldTokens, Chats: t.data.chats, FirstStep: t.state.Step, LastStep: t.cfg.MaxSteps,
	}
	return info, err
}

// abandon is Close for a run that did not start.
func (t *Trainer) abandon() {
	lock := t.lock
	t.lock = nil
	t.Close()
	if lock != nil {
		lock.Discard()
	}
}

// Close releases the device, the files and the run folder. It is safe to call
// more than once.
func (t *Trainer) Close() error {
	t.closeDevice()
	if t.data != nil {
		t.data.close()
	}
	err := t.closeLog()
	if t.lock != nil {
		t.lock.Unlock()
	}
	t.data, t.lock = nil, nil
	return err
}
