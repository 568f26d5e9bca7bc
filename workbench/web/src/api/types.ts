// The types of the workbench's interface, as docs/api.md has them.

export interface ModelConfig {
  vocab_size: number;
  context: number;
  d_model: number;
  layers: number;
  heads: number;
  kv_heads: number;
  head_dim: number;
  ffn: number;
  rope_theta: number;
  norm_eps: number;
  tied: boolean;
  activation: string;
  init_std: number;
}

export interface Preset {
  name: string;
  params: number;
  model: ModelConfig;
}

export interface Device {
  id: string;
  name: string;
  kind: "cpu" | "gpu";
  software: boolean;
}

export interface Status {
  version: string;
  place: "server" | "tab";
  device: string;
  devices: Device[];
  f16: boolean;
  threads: number;
  free_memory: number;
  presets: Preset[];
  storage: { used: number; free: number; persistent: boolean };
  notices: string[];
  /** Folder of everything. */
  dir: string;
  /** What a missing setting device means. */
  default_device: string;
  /** There is a sample text. */
  sample: boolean;
}

export type ListName = "texts" | "tokenizers" | "data" | "runs" | "models";

export type Event =
  | { type: "job"; job: Job }
  | { type: "run"; run: Run }
  | { type: "list"; what: ListName }
  | { type: "notice"; message: string };

export interface Job {
  id: string;
  kind: "tokenizer" | "data" | "probe" | "profile" | "import";
  name: string;
  state: "running" | "done" | "failed" | "canceled";
  stage: string;
  done: number;
  total: number;
  rate: number;
  unit: string;
  eta_s: number;
  error?: string;
  result?: unknown;
}

export interface Text {
  name: string;
  label: string;
  bytes: number;
  files: number;
  documents: number;
  created: string;
  format: "text" | "jsonl" | "parquet";
  sample: boolean;
}

export interface Tokenizer {
  name: string;
  vocab_size: number;
  pattern: string;
  specials: string[];
  nfc: boolean;
  bytes: number;
  created: string;
  sha256: string;
}

export interface TokenizerRequest {
  name: string;
  texts: string[];
  vocab_size: number;
  pattern: string;
  specials?: string[];
  nfc?: boolean;
  skip_bad?: boolean;
}

export interface Token {
  id: number;
  text: string;
  start: number;
  end: number;
  special: boolean;
}

export interface Encoded {
  tokens: Token[];
  bytes: number;
  words: number;
  bytes_per_token: number;
  tokens_per_word: number;
  vocab_used: number;
}

export interface Data {
  name: string;
  tokens: number;
  documents: number;
  bytes: number;
  text_bytes: number;
  vocab_size: number;
  tokenizer_sha256: string;
  created: string;
}

export interface DataRequest {
  name: string;
  texts: string[];
  tokenizer: string;
  split?: boolean;
  dedupe?: boolean;
  skip_bad?: boolean;
}

export interface RunSettings {
  name: string;
  data: { name: string; weight?: number }[];
  sft?: string[];
  template?: string;
  init?: string;
  lora?: { rank: number; alpha: number; targets: string };
  preset?: string;
  model?: Partial<ModelConfig>;
  batch?: number;
  context?: number;
  accum?: number;
  lr?: number;
  min_lr?: number;
  schedule?: string;
  warmup?: number;
  decay_steps?: number;
  beta1?: number;
  beta2?: number;
  eps?: number;
  weight_decay?: number;
  clip?: number;
  nonfinite?: string;
  precision?: string;
  moments8?: boolean;
  recompute?: boolean;
  doc_mask?: boolean;
  label_smoothing?: number;
  z_loss?: number;
  seed?: number;
  val_fraction?: number;
  max_steps?: number;
  max_tokens?: number;
  max_minutes?: number;
  epochs?: number;
  eval_every?: number;
  checkpoint_every?: number;
  keep?: number;
  sample_every?: number;
  sample_prompt?: string;
  sample_tokens?: number;
  device?: string;
}

export type RunState = "running" | "starting" | "pausing" | "paused" | "done" | "failed" | "stopped";

export interface Warning {
  code: string;
  step: number;
  values: Record<string, number | string | null>;
}

export interface Checkpoint {
  step: number;
  bytes: number;
  created: string;
}

export interface Run {
  name: string;
  state: RunState;
  step: number;
  last_step: number;
  /** Losses and norms are null when they are no finite number. */
  loss: number | null;
  val_loss: number | null;
  lr: number;
  grad_norm: number | null;
  tokens: number;
  tok_per_s: number;
  elapsed_s: number;
  eta_s: number;
  params: number;
  context: number;
  bytes: number;
  created: string;
  updated: string;
  device: string;
  settings: RunSettings;
  warnings: Warning[];
  error?: string;
  notices: string[];
  sample?: { step: number; text: string };
  checkpoints: Checkpoint[];
}

export interface Plan {
  params: number;
  model: ModelConfig;
  memory: { label: string; bytes: number }[];
  total: number;
  free: number;
  fits: boolean;
  tokens_per_step: number;
  steps: number;
  epochs: number;
  flops_per_token: number;
  lr: number;
  min_lr: number;
  warmup: number;
  tok_per_s: number;
  seconds: number;
  /** What the device lacks, and what the plan does not know. */
  notices: string[];
  problems: { field: string; message: string }[];
}

export interface ProbeResult {
  tok_per_s: number;
  step_ms: number;
  total_s: number;
}

export interface ProfileRow {
  name: string;
  calls: number;
  ms: number;
  share: number;
  gb_per_s: number;
  tflops: number;
  of_peak: number;
  /** Of a copy of as many bytes; 0 where arithmetic is the bound. */
  of_copy: number;
  bound_by_memory: boolean;
}

export interface ProfileResult {
  method: string;
  device: string;
  peak_tflops: number;
  peak_gb_per_s: number;
  step_ms: number;
  rows: ProfileRow[];
}

/** A line of log.jsonl; see docs/runlog.md. Numbers that are not finite are strings. */
export interface LogRecord {
  type: string;
  step: number;
  time?: string;
  message?: string;
  data?: unknown;
  loss?: number | string;
  val_loss?: number | string;
  lr?: number | string;
  grad_norm?: number | string;
  tokens?: number;
  tok_per_s?: number | string;
  nonfinite?: number;
}

export interface LogPage {
  records: LogRecord[];
  next: number;
  total: number;
  state: RunState;
}

/** A message of a run's stream; restart: lines were taken back, all follow again. */
export interface RunMessage {
  record?: LogRecord;
  line?: number;
  run?: Run;
  restart?: boolean;
}

export interface Model {
  name: string;
  run?: string;
  step?: number;
  params: number;
  loss: number | null;
  val_loss: number | null;
  bytes: number;
  created: string;
  context: number;
  vocab_size: number;
  chat_template: string;
  trained_tokens: number;
  /** It can be prompted with text. */
  tokenizer: boolean;
  /** A checkpoint of adapters: no download before the run has ended. */
  adapters: boolean;
}

export interface GenerateRequest {
  model: string;
  prompt?: string;
  messages?: { role: string; content: string }[];
  max_tokens?: number;
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repetition_penalty?: number;
  seed?: number;
  stop?: string[];
  ignore_end?: boolean;
  alternatives?: number;
  device?: string;
  precision?: string;
}

export interface Alternative {
  id: number;
  text: string;
  prob: number;
}

export type Piece = { type: "piece"; id: number; text: string; prob: number; alternatives?: Alternative[] };

export type GenerateMessage =
  | { type: "start"; prompt_tokens: number; seed: number }
  | Piece
  | { type: "end"; reason: "end" | "stop" | "length" | "canceled"; new_tokens: number; tok_per_s: number; notes?: string[] }
  | { type: "error"; error: ErrorBody };

export interface ErrorBody {
  code: string;
  message: string;
  field?: string;
}
