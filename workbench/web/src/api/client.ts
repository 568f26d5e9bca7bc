// The requests of docs/api.md as typed functions, over either transport.
import { messages } from "./stream";
import { type Transport } from "./transport";
import type * as T from "./types";

/** An answer that is not 2xx. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly field?: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

interface Options {
  json?: unknown;
  body?: Blob;
  signal?: AbortSignal;
}

const at = encodeURIComponent;

/** Appends what is set of a query. */
function query(values: Record<string, string | number | boolean | undefined>): string {
  const pairs = Object.entries(values).filter(([, v]) => v !== undefined && v !== "");
  return pairs.length === 0 ? "" : "?" + pairs.map(([k, v]) => `${k}=${at(String(v))}`).join("&");
}

export class Client {
  constructor(private readonly transport: Transport) {}

  private async send(method: string, path: string, options: Options = {}) {
    const body = options.json === undefined ? options.body : JSON.stringify(options.json);
    const answer = await this.transport.send({ method, path, body, signal: options.signal });
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw await refusal(answer.status, await new Response(answer.body).text());
  }

  private async json<R>(method: string, path: string, options?: Options): Promise<R> {
    const answer = await this.send(method, path, options);
    const text = await new Response(answer.body).text();
    return (text ? JSON.parse(text) : undefined) as R;
  }

  private async *stream<R>(method: string, path: string, options?: Options): AsyncGenerator<R> {
    const answer = await this.send(method, path, options);
    yield* messages<R>(answer.body);
  }

  status = () => this.json<T.Status>("GET", "/api/status");
  events = (signal: AbortSignal) => this.stream<T.Event>("GET", "/api/events", { signal });

  jobs = () => this.json<T.Job[]>("GET", "/api/jobs");
  cancelJob = (id: string) => this.json<void>("DELETE", `/api/jobs/${at(id)}`);

  texts = () => this.json<T.Text[]>("GET", "/api/texts");
  putText = (name: string, label: string, body: Blob, append: boolean, signal?: AbortSignal) =>
    this.json<T.Text>("PUT", `/api/texts/${at(name)}${query({ label, append: append ? 1 : undefined })}`, { body, signal });
  async previewText(name: string, max: number): Promise<string> {
    const answer = await this.send("GET", `/api/texts/${at(name)}${query({ max })}`);
    return new Response(answer.body).text();
  }
  deleteText = (name: string) => this.json<void>("DELETE", `/api/texts/${at(name)}`);

  tokenizers = () => this.json<T.Tokenizer[]>("GET", "/api/tokenizers");
  trainTokenizer = (request: T.TokenizerRequest) => this.json<T.Job>("POST", "/api/tokenizers", { json: request });
  putTokenizer = (name: string, body: Blob) => this.json<T.Tokenizer>("PUT", `/api/tokenizers/${at(name)}`, { body });
  deleteTokenizer = (name: string) => this.json<void>("DELETE", `/api/tokenizers/${at(name)}`);
  encode = (name: string, text: string, signal?: AbortSignal) =>
    this.json<T.Encoded>("POST", `/api/tokenizers/${at(name)}/encode`, { json: { text }, signal });

  data = () => this.json<T.Data[]>("GET", "/api/data");
  buildData = (request: T.DataRequest) => this.json<T.Job>("POST", "/api/data", { json: request });
  putData = (name: string, body: Blob) => this.json<T.Data>("PUT", `/api/data/${at(name)}`, { body });
  deleteData = (name: string) => this.json<void>("DELETE", `/api/data/${at(name)}`);

  runs = () => this.json<T.Run[]>("GET", "/api/runs");
  run = (name: string) => this.json<T.Run>("GET", `/api/runs/${at(name)}`);
  startRun = (settings: T.RunSettings) => this.json<T.Run>("POST", "/api/runs", { json: settings });
  plan = (settings: T.RunSettings, signal?: AbortSignal) =>
    this.json<T.Plan>("POST", "/api/runs/plan", { json: settings, signal });
  probe = (settings: T.RunSettings) => this.json<T.Job>("POST", "/api/runs/probe", { json: settings });
  pauseRun = (name: string) => this.json<T.Run>("POST", `/api/runs/${at(name)}/pause`);
  resumeRun = (name: string, limits: Partial<T.RunSettings>) =>
    this.json<T.Run>("POST", `/api/runs/${at(name)}/resume`, { json: limits });
  stopRun = (name: string) => this.json<T.Run>("POST", `/api/runs/${at(name)}/stop`);
  forkRun = (name: string, settings: Partial<T.RunSettings> & { name: string; step?: number }) =>
    this.json<T.Run>("POST", `/api/runs/${at(name)}/fork`, { json: settings });
  profileRun = (name: string) => this.json<T.Job>("POST", `/api/runs/${at(name)}/profile`);
  runLog = (name: string, after: number) => this.json<T.LogPage>("GET", `/api/runs/${at(name)}/log${query({ after })}`);
  runEvents = (name: string, after: number, signal: AbortSignal) =>
    this.stream<T.RunMessage>("GET", `/api/runs/${at(name)}/events${query({ after })}`, { signal });
  deleteRun = (name: string) => this.json<void>("DELETE", `/api/runs/${at(name)}`);

  models = () => this.json<T.Model[]>("GET", "/api/models");
  importModel = (name: string, label: string, body: Blob) =>
    this.json<T.Job>("PUT", `/api/models/${at(name)}${query({ label })}`, { body });
  deleteModel = (name: string) => this.json<void>("DELETE", `/api/models/${at(name)}`);

  generate = (request: T.GenerateRequest, signal: AbortSignal) =>
    this.stream<T.GenerateMessage>("POST", "/api/generate", { json: request, signal });
  chat = (request: T.GenerateRequest, signal: AbortSignal) =>
    this.stream<T.GenerateMessage>("POST", "/api/chat", { json: request, signal });

  /** Downloads a file whole; large ones are kept on disk by the browser. */
  async download(path: string, signal?: AbortSignal): Promise<Blob> {
    const answer = await this.send("GET", path, { signal });
    return new Response(answer.body).blob();
  }
}

/** Paths of the files that can be downloaded. */
export const filePaths = {
  tokenizer: (name: string) => `/api/tokenizers/${at(name)}`,
  data: (name: string) => `/api/data/${at(name)}`,
  model: (name: string, format: string, type?: string) => `/api/models/${at(name)}/download${query({ format, type })}`,
};

/** Makes an ApiError of an answer, also of one that is not the engine's. */
async function refusal(status: number, text: string): Promise<ApiError> {
  try {
    const { error } = JSON.parse(text) as { error: T.ErrorBody };
    return new ApiError(status, error.code, error.message, error.field);
  } catch {
    return new ApiError(status, status === 401 ? "unauthorized" : "internal", text.slice(0, 300) || `HTTP ${status}`);
  }
}
