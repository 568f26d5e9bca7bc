// How a request reaches the engine: over HTTP to `tezgah serve`, or as messages
// to a Web Worker in this tab. Both answer with a stream of bytes, so that
// nothing above this file knows where the engine is.

export interface EngineRequest {
  method: string;
  /** Path with query, from "/api/…". */
  path: string;
  body?: string | Blob;
  signal?: AbortSignal;
}

export interface EngineResponse {
  status: number;
  headers: Headers;
  body: ReadableStream<Uint8Array>;
}

export interface Transport {
  send(request: EngineRequest): Promise<EngineResponse>;
}

/** The engine cannot be reached: the server is gone or the worker has ended. */
export class Unreachable extends Error {
  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause));
    this.name = "Unreachable";
  }
}

/** HTTP to the server that the page came from. */
export class HttpTransport implements Transport {
  constructor(
    private readonly base: string,
    private readonly token: string | null,
  ) {}

  async send(request: EngineRequest): Promise<EngineResponse> {
    const headers: Record<string, string> = {};
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (typeof request.body === "string") headers["Content-Type"] = "application/json";
    try {
      const answer = await fetch(new URL(request.path.replace(/^\//, ""), this.base), {
        method: request.method,
        body: request.body,
        headers,
        signal: request.signal,
        cache: "no-store",
      });
      return { status: answer.status, headers: answer.headers, body: answer.body ?? emptyBody() };
    } catch (error) {
      if (request.signal?.aborted) throw new DOMException("canceled", "AbortError");
      throw new Unreachable(error);
    }
  }
}

function emptyBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}

/** What the worker sends back; see "In the tab" in docs/api.md. */
type WorkerMessage =
  | { id: number; status: number; headers?: Record<string, string> }
  | { id: number; chunk: Uint8Array }
  | { id: number; end: true; error?: string };

interface Pending {
  resolve(response: EngineResponse): void;
  reject(error: unknown): void;
  controller?: ReadableStreamDefaultController<Uint8Array>;
}

/** Messages to a worker that speaks the protocol of docs/api.md. */
export class WorkerTransport implements Transport {
  private next = 1;
  private readonly pending = new Map<number, Pending>();
  private broken: unknown;

  constructor(private readonly worker: Worker) {
    worker.addEventListener("message", (event: MessageEvent<WorkerMessage>) => this.receive(event.data));
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.fail(event.message || "the worker could not start");
    });
  }

  send(request: EngineRequest): Promise<EngineResponse> {
    if (this.broken) return Promise.reject(new Unreachable(this.broken));
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      request.signal?.addEventListener("abort", () => this.abort(id), { once: true });
      this.worker.postMessage({ id, method: request.method, path: request.path, body: request.body });
    });
  }

  private receive(message: WorkerMessage): void {
    const entry = this.pending.get(message?.id);
    if (!entry) return;
    if ("status" in message) this.open(message.id, entry, message.status, message.headers);
    else if ("chunk" in message) entry.controller?.enqueue(message.chunk);
    else this.close(message.id, entry, message.error);
  }

  private open(id: number, entry: Pending, status: number, headers?: Record<string, string>): void {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (entry.controller = controller),
      cancel: () => this.abort(id),
    });
    entry.resolve({ status, headers: new Headers(headers), body });
  }

  private close(id: number, entry: Pending, error?: string): void {
    this.pending.delete(id);
    if (error) {
      const reason = new Unreachable(error);
      entry.controller ? entry.controller.error(reason) : entry.reject(reason);
    } else entry.controller?.close();
  }

  private abort(id: number): void {
    const entry = this.pending.get(id);
    if (!entry) return;
    this.pending.delete(id);
    this.worker.postMessage({ id, abort: true });
    const reason = new DOMException("canceled", "AbortError");
    try {
      entry.controller ? entry.controller.error(reason) : entry.reject(reason);
    } catch {
      // The stream was canceled by its reader and is closed already.
    }
  }

  private fail(reason: unknown): void {
    this.broken = reason;
    for (const entry of this.pending.values()) {
      const error = new Unreachable(reason);
      entry.controller ? entry.controller.error(error) : entry.reject(error);
    }
    this.pending.clear();
  }
}
