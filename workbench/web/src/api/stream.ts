// Streams of JSON messages out of streams of bytes: server-sent events
// ("data: {…}") or one JSON object a line, whichever the engine sends.

/** Yields the objects of a stream as they arrive. */
export async function* messages<T>(body: ReadableStream<Uint8Array>): AsyncGenerator<T> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new LineParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      for (const text of parser.push(done ? decoder.decode() + "\n" : decoder.decode(value, { stream: true })))
        yield JSON.parse(text) as T;
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Cuts text into the JSON of its messages, across the bounds of chunks. */
export class LineParser {
  private rest = "";

  push(text: string): string[] {
    const lines = (this.rest + text).split(/\r?\n/);
    this.rest = lines.pop()!;
    const found: string[] = [];
    for (const line of lines) {
      const json = line.startsWith("data:") ? line.slice(5).trim() : line.startsWith("{") ? line : "";
      if (json && json !== "[DONE]") found.push(json);
    }
    return found;
  }
}
