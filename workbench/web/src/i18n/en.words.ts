// English: settings with a sentence of help each, and words for the engine's
// codes. The keys are the engine's.

/** A name and a sentence about it. */
export const pair = (name: string, text: string): readonly [string, string] => [name, text];

export const settings = {
  layers: pair("Layers", "How often attention and feed-forward follow each other; depth. Memory and time grow with it."),
  d_model: pair("Width", "Numbers that stand for a token between layers. Memory and time grow with its square."),
  heads: pair(
    "Attention heads",
    "How many ways of looking back each layer has; must divide the width unless the head size is set.",
  ),
  kv_heads: pair("Key/value heads", "Heads that keys and values are shared by; fewer save memory when writing."),
  head_dim: pair("Head size", "Width of one head; an even number."),
  ffn: pair("Feed-forward width", "Inner width of the feed-forward part; usually two to four times the width."),
  activation: pair("Activation", "The bend in the feed-forward part; silu is LLaMA's."),
  tied: pair("One table for input and output", "Saves a whole table of tokens; small models are better with it."),
  rope_theta: pair("RoPE base", "How slowly positions turn; larger for long contexts."),
  norm_eps: pair("Norm epsilon", "Keeps the norm from dividing by nothing."),
  init_std: pair("Initial spread", "Spread of the random weights at the start."),
  context: pair("Context", "Tokens that the model sees at once. Memory grows with it, time a little more."),
  batch: pair("Batch", "Rows learned from at once. More are steadier and need more memory."),
  accum: pair(
    "Accumulation",
    "Batches added up to one step: a larger batch for the memory of a small one, and more time a step.",
  ),
  seed: pair("Seed", "Decides the first weights and the order of the data; the same seed gives the same run."),
  val_fraction: pair("Held-out share", "Part of the data that is never learned from and measures the validation loss."),
  doc_mask: pair("Keep documents apart", "Documents in one row do not see each other."),
  max_steps: pair("Steps", "Updates of the weights. Empty: one pass over the data."),
  epochs: pair(
    "Passes",
    "How often the data is read, instead of a number of steps. After about four passes small models begin to memorise.",
  ),
  max_tokens: pair("Tokens", "Ends after so many tokens, instead of a number of steps."),
  max_minutes: pair("Minutes", "Ends after so much training time, whatever the step; the schedule does not bend to it."),
  lr: pair(
    "Learning rate",
    "The largest step of the weights. Empty: one that fits the size. Too large diverges, too small wastes time.",
  ),
  schedule: pair("Schedule", "How the rate falls after the warm-up."),
  warmup: pair("Warm-up", "Steps in which the rate rises from nothing, so that the start does not shake the weights."),
  min_lr: pair("Last rate", "Where the schedule ends; usually a tenth of the peak."),
  decay_steps: pair("Decay steps", "Last phase of wsd, in which the rate falls."),
  weight_decay: pair("Weight decay", "Pulls matrices softly towards zero; 0.1 is usual."),
  clip: pair("Clipping", "Largest norm of the gradient; 0 switches it off."),
  beta1: pair("Beta 1", "How long AdamW remembers the direction."),
  beta2: pair("Beta 2", "How long AdamW remembers the size of gradients."),
  eps: pair("Epsilon", "Keeps AdamW from dividing by nothing."),
  nonfinite: pair("Non-finite gradients", "What happens to a step with NaN or infinities in it."),
  precision: pair(
    "Precision",
    "Mixed reads 16-bit weights in the forward pass: faster on most graphics cards, slower on processors. The 16-bit products need a card's matrix units, reached by the server alone, and are several times as fast; without them training goes on in 32 bits and says so.",
  ),
  moments8: pair(
    "8-bit optimizer",
    "AdamW's memory in 2 bytes a parameter instead of 8; the loss stays within about one percent.",
  ),
  recompute: pair(
    "Recompute activations",
    "Keeps less for the way back and computes it again: much less memory, about a third more time.",
  ),
  label_smoothing: pair("Label smoothing", "Gives a little of the probability to all other tokens."),
  z_loss: pair("Z-loss", "Holds the logits near zero; 0.0001 steadies large runs."),
  eval_every: pair("Evaluate every", "Steps between measurements on held-out text."),
  checkpoint_every: pair("Checkpoint every", "Steps between saves; after a fault training goes on from the last one."),
  keep: pair("Checkpoints kept", "Older ones are deleted; −1 keeps all."),
  sample_every: pair("Sample every", "Steps between short texts that the model writes. Empty: none."),
  sample_prompt: pair("Sample prompt", "What the samples continue."),
  sample_tokens: pair("Sample length", "Tokens of a sample."),
};

export const choices = {
  silu: "silu (SwiGLU)",
  gelu_tanh: "gelu",
  cosine: "cosine: falls as half a wave",
  linear: "linear: falls in a straight line",
  wsd: "wsd: stays, then falls at the end",
  constant: "constant",
  skip: "skip the step",
  zero: "take them as zero",
  stop: "stop the run",
  f32: "32-bit",
  mixed: "mixed, 16-bit weights",
  bf16: "bfloat16 products, on matrix units",
  f16: "float16 products, on matrix units",
};

export const sampling = {
  max_tokens: pair("Length", "New tokens at most."),
  temperature: pair("Temperature", "0 always takes the likeliest; higher dares more."),
  top_k: pair("Top k", "Only the k likeliest tokens; 0: all."),
  top_p: pair("Top p", "Only the likeliest tokens that together have this probability; 1: all."),
  min_p: pair("Min p", "Only tokens with at least this share of the likeliest one's probability; 0: all."),
  repetition_penalty: pair("Repetition penalty", "Above 1 makes what was said already less likely."),
  seed: pair("Seed", "The same seed gives the same text. Empty: a new one each time."),
};

export const states = {
  running: "training",
  starting: "starting",
  pausing: "pausing",
  paused: "paused",
  done: "done",
  failed: "failed",
  stopped: "stopped",
};

export const warnings = {
  nonfinite: (count: string) =>
    `${count} gradients were NaN or infinite; the step was handled as the settings say. If it comes back, lower the learning rate.`,
  lossRising: (from: string, to: string) =>
    `The loss is rising, from ${from} to ${to}. A lower learning rate or a longer warm-up usually helps.`,
  overfitting: (best: string, now: string, since: string) =>
    `The validation loss was best at step ${since} with ${best} and is ${now} now: the model begins to learn its data by heart. More data, or stopping here, is better.`,
  diverged: (loss: string) =>
    `The run has diverged: the loss is ${loss}, worse than guessing. Start again with a smaller learning rate.`,
  slowStart: "The loss has hardly moved so far. The learning rate may be too small, or the warm-up too long.",
  skipped: (count: string) => `${count} steps in a row were skipped because of non-finite gradients.`,
};

export const errors = {
  bad_request: "The engine does not accept this",
  unauthorized: "The token is not right any more; open the address that the server printed",
  forbidden: "The server refuses this page",
  not_found: "This is not there any more",
  exists: "This name is taken",
  busy: "This is in use just now",
  too_large: "This is too large",
  no_space: "There is no space left; delete runs or files that you no longer need",
  device: "The device has failed",
  internal: "Something went wrong",
  unreachable: "The engine cannot be reached",
};

export const stages = {
  read: "reading",
  count: "counting words",
  merge: "joining pieces",
  encode: "encoding",
  write: "writing",
  steps: "taking steps",
  load: "loading",
  check: "checking",
  convert: "converting",
  copy: "copying",
};

export const units = {
  "merges/s": "merges/s",
  "tokens/s": "tokens/s",
  "documents/s": "documents/s",
  "steps/s": "steps/s",
  "MB/s": "MB/s",
  "B/s": "/s",
  merges: "merges",
};

export const memory = {
  weights: "weights",
  adapter: "adapter",
  gradients: "gradients",
  moments: "optimizer",
  "moments (8-bit)": "optimizer, 8-bit",
  "float16 mirror": "16-bit copy of the weights",
  "bfloat16 mirror": "16-bit copy of the weights",
  activations: "activations",
  "logits chunk": "logits",
  "backward scratch": "work space of the way back",
  "kernel scratch": "work space of kernels",
  "optimizer work space": "work space of the optimizer",
  "batch and positions": "batch",
  decoder: "decoder",
  "KV cache": "keys and values",
};
