// One request of the page and its answer, as the Go program handles it.

/** What the page sends; see "In the tab" in docs/api.md. */
export interface RequestMessage {
  id: number;
  method: string;
  path: string;
  body?: string | Blob;
  abort?: undefined;
}

export interface AbortMessage {
  id: number;
  abort: true;
}

/** How much of a file is read at a time: the page's file is never in memory as a whole. */
const sliceBytes = 1 << 20;

export class Exchange {
  readonly id: number;
  readonly method: string;
  readonly path: string;
  /** Bytes of the body, −1 for a request without one. */
  readonly size: number;
  /** Set by the program; called when the page gives up. */
  onabort: (() => void) | null = null;
  aborted = false;

  private readonly body: Blob | null;
  private position = 0;
  private started = false;

  /** ended is called when the answer is complete. */
  constructor(request: RequestMessage, private readonly ended: () => void) {
    this.id = request.id;
    this.method = request.method;
    this.path = request.path;
    const { body } = request;
    this.body = body === undefined || body === null ? null : typeof body === "string" ? new Blob([body]) : body;
    this.size = this.body ? this.body.size : -1;
  }

  /** pull hands over the next part of the body; null at its end. */
  pull(done: (error: string | null, part: Uint8Array | null) => void): void {
    if (!this.body || this.position >= this.body.size) return done(null, null);
    const part = this.body.slice(this.position, this.position + sliceBytes);
    part.arrayBuffer().then(
      (buffer) => {
        this.position += buffer.byteLength;
        done(null, new Uint8Array(buffer));
      },
      (error) => done(String(error?.message ?? error), null), // the file was changed or removed meanwhile
    );
  }

  start(status: number, headers: Record<string, string>): void {
    this.started = true;
    postMessage({ id: this.id, status, headers });
  }

  chunk(bytes: Uint8Array<ArrayBuffer>): void {
    postMessage({ id: this.id, chunk: bytes }, { transfer: [bytes.buffer] });
  }

  end(): void {
    this.ended();
    postMessage({ id: this.id, end: true });
  }

  abort(): void {
    this.aborted = true;
    this.onabort?.();
  }

  /** refuse answers in the program's place. */
  refuse(status: number, code: string, message: string): void {
    if (this.started) {
      postMessage({ id: this.id, end: true, error: message });
      return;
    }
    this.start(status, { "Content-Type": "application/json" });
    this.chunk(new TextEncoder().encode(JSON.stringify({ error: { code, message } })));
    this.end();
  }
}
