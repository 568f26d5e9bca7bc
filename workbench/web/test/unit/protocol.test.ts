import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, Client, filePaths } from "../../src/api/client";
import { LineParser, messages } from "../../src/api/stream";
import { type EngineRequest, Unreachable, WorkerTransport } from "../../src/api/transport";
import { link, parseRoute } from "../../src/util/route";
import { freeName, isName, toName } from "../../src/util/names";

test("messages are cut the same wherever a chunk ends", async () => {
  const text = 'data: {"a":1}\n\n: comment\ndata: {"b":"ğüş\\n"}\r\n\r\n{"c":3}\ndata: [DONE]\ndata: {"d":4}';
  const want = [{ a: 1 }, { b: "ğüş\n" }, { c: 3 }, { d: 4 }];
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
        controller.close();
      },
    });
    const got: unknown[] = [];
    for await (const message of messages(body)) got.push(message);
    assert.deepEqual(got, want, `chunks of ${size}`);
  }
});

test("a line waits for its end", () => {
  const parser = new LineParser();
  assert.deepEqual(parser.push('data: {"a"'), []);
  assert.deepEqual(parser.push(":1}"), []);
  assert.deepEqual(parser.push("\n"), ['{"a":1}']);
});

/** A worker that is told what to say. */
class FakeWorker extends EventTarget {
  sent: { id: number; method?: string; path?: string; abort?: boolean }[] = [];
  postMessage(message: { id: number }): void {
    this.sent.push(message);
  }
  say(data: unknown): void {
    this.dispatchEvent(Object.assign(new Event("message"), { data }));
  }
}

const encode = (text: string) => new TextEncoder().encode(text);

test("the worker's answers come back by their number, in any order", async () => {
  const worker = new FakeWorker();
  const transport = new WorkerTransport(worker as unknown as Worker);
  const first = transport.send({ method: "GET", path: "/api/a" });
  const second = transport.send({ method: "GET", path: "/api/b" });
  worker.say({ id: 2, status: 200, headers: { "Content-Type": "text/plain" } });
  worker.say({ id: 1, status: 404 });
  worker.say({ id: 2, chunk: encode("tw") });
  worker.say({ id: 1, chunk: encode("one") });
  worker.say({ id: 2, chunk: encode("o") });
  worker.say({ id: 1, end: true });
  worker.say({ id: 2, end: true });
  assert.equal((await first).status, 404);
  assert.equal(await new Response((await first).body).text(), "one");
  assert.equal(await new Response((await second).body).text(), "two");
  assert.equal((await second).headers.get("content-type"), "text/plain");
});

test("giving up tells the worker, and what it says afterwards is not heard", async () => {
  const worker = new FakeWorker();
  const transport = new WorkerTransport(worker as unknown as Worker);
  const stop = new AbortController();
  const answer = transport.send({ method: "POST", path: "/api/generate", signal: stop.signal });
  worker.say({ id: 1, status: 200 });
  const { body } = await answer;
  stop.abort();
  assert.deepEqual(worker.sent[1], { id: 1, abort: true });
  await assert.rejects(new Response(body).text());
  worker.say({ id: 1, chunk: encode("late") });
});

test("a worker that dies ends every request, and later ones at once", async () => {
  const worker = new FakeWorker();
  const transport = new WorkerTransport(worker as unknown as Worker);
  const waiting = transport.send({ method: "GET", path: "/api/a" });
  worker.dispatchEvent(Object.assign(new Event("error"), { message: "out of memory" }));
  await assert.rejects(waiting, (error: Error) => error instanceof Unreachable && /out of memory/.test(error.message));
  await assert.rejects(transport.send({ method: "GET", path: "/api/b" }), Unreachable);
});

/** A client whose engine answers what it is given. */
function clientOf(answer: (request: EngineRequest) => { status: number; text: string }) {
  const requests: EngineRequest[] = [];
  const client = new Client({
    send: async (request) => {
      requests.push(request);
      const { status, text } = answer(request);
      return { status, headers: new Headers(), body: new Response(text).body ?? new ReadableStream() };
    },
  });
  return { client, requests };
}

test("refusals carry code, message and field", async () => {
  const { client } = clientOf(() => ({
    status: 400,
    text: '{"error":{"code":"bad_request","message":"lr is −1","field":"lr"}}',
  }));
  await assert.rejects(
    client.plan({ name: "a", data: [] }),
    (e: ApiError) => e.field === "lr" && e.code === "bad_request" && e.status === 400,
  );
});

test("an answer that is not the engine's is an error all the same", async () => {
  const { client } = clientOf(() => ({ status: 502, text: "<html>Bad Gateway</html>" }));
  await assert.rejects(client.status(), (e: ApiError) => e.status === 502 && /Gateway/.test(e.message));
});

test("names in paths and queries are encoded", async () => {
  const { client, requests } = clientOf(() => ({ status: 200, text: "{}" }));
  await client.putText("ağaç", "a & b.txt", new Blob(["x"]), true);
  await client.runLog("run", 0);
  assert.deepEqual(
    requests.map((r) => r.path),
    ["/api/texts/a%C4%9Fa%C3%A7?label=a%20%26%20b.txt&append=1", "/api/runs/run/log?after=0"],
  );
  assert.equal(filePaths.model("m", "gguf", "q8_0"), "/api/models/m/download?format=gguf&type=q8_0");
  assert.equal(filePaths.model("m", "llm"), "/api/models/m/download?format=llm");
});

test("addresses go both ways", () => {
  for (const [view, name] of [
    ["home", ""],
    ["tokenizer", ""],
    ["train", "çınar/1"],
    ["generate", "a b"],
  ] as const) {
    const parsed = parseRoute(link(view, name, { compare: "x,y" }));
    assert.deepEqual([parsed.view, parsed.name, parsed.query.get("compare")], [view, name, "x,y"]);
  }
  for (const hash of ["", "#", "#/", "#/nonsense", "#/train/%E0%A4%A"]) assert.doesNotThrow(() => parseRoute(hash));
  assert.equal(parseRoute("#/nonsense").view, "home");
});

test("names of files become names of things", () => {
  for (const [label, want] of [
    ["Nutuk (1927).txt", "Nutuk-1927"],
    ["..hidden.md", "hidden"],
    ["şiir.jsonl.gz", "şiir"],
    ["???", "text"],
    ["a/b", "a-b"],
  ] as const) {
    assert.equal(toName(label), want);
    assert.ok(isName(toName(label)));
  }
  assert.ok(isName(toName("x".repeat(500))));
  assert.equal(freeName("a", ["a", "a-2"]), "a-3");
  assert.equal(freeName("Demo", ["demo"]), "Demo-2");
  assert.equal(freeName("b", ["a"]), "b");
});
