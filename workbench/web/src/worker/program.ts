// Loads the Go program and runs it over the tab's files.
import { Disk } from "./fs/disk";
import { originPrivate } from "./fs/handles";
import { memoryRoot } from "./fs/memory";
import { nodeFs, nodePath, nodeProcess } from "./fs/nodefs";
import type { Exchange } from "./exchange";
import { kernelImports } from "./kernels";
import { afterTurn } from "./turn";

/** Go's loader, wasm_exec.js of the toolchain that built the program, which the build puts before this script. */
declare class Go {
  argv: string[];
  env: Record<string, string>;
  importObject: WebAssembly.Imports;
  exit: (code: number) => void;
  run(instance: WebAssembly.Instance): Promise<void>;
}

/** What the program calls; cmd/tezgah-web has the other side. */
export interface Host {
  /** Whether files outlive the tab. */
  readonly keepsFiles: boolean;
  /** Lets the event loop turn, then calls back. */
  turn(back: () => void): void;
  /** Bytes used and allowed, and whether the browser has promised to keep them. */
  storage(): Promise<[used: number, quota: number, persistent: boolean]>;
  /** Opens a file that lies beside this script, such as the sample text; null when there is none. */
  asset(name: string): Promise<Uint8Array | null>;
  /** Called by the program once it can serve. */
  ready(serve: (exchange: Exchange) => void): void;
}

/** Folder of the workbench's files, and of files for the moment. */
const home = "/tezgah";
const temporary = "tmp";

async function storage(): Promise<[number, number, boolean]> {
  const { usage = 0, quota = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  return [usage, quota, (await navigator.storage?.persisted?.()) ?? false];
}

async function asset(name: string): Promise<Uint8Array | null> {
  const answer = await fetch(new URL(name, location.href));
  return answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null;
}

/** Shows what the program prints on the console, line by line. */
function printer() {
  const decoder = new TextDecoder();
  let line = "";
  return (fd: number, bytes: Uint8Array) => {
    line += decoder.decode(bytes, { stream: true });
    const end = line.lastIndexOf("\n");
    if (end < 0) return;
    (fd === 2 ? console.warn : console.log)(line.slice(0, end));
    line = line.slice(end + 1);
  };
}

/** What a wasm program and a gzip file begin with. */
const wasmMagic = 0x6d736100;
const gzipMagic = 0x8b1f;

/**
 * fetchProgram gets the program. It lies beside this script packed, as tezgah.wasm.br and tezgah.wasm.gz. A host that
 * knows what that means sends one of them for tezgah.wasm, and the browser unpacks it; of any other host the worker asks
 * for the .gz and unpacks it here. The first bytes tell what came, because hosts differ in what they say.
 */
async function fetchProgram(): Promise<Response> {
  for (const name of ["tezgah.wasm", "tezgah.wasm.gz"]) {
    const answer = await fetch(new URL(name, location.href));
    if (!answer.ok || !answer.body) continue;
    const [head, body] = answer.body.tee();
    const start = new DataView((await firstBytes(head, 4)).buffer).getUint32(0, true);
    const plain = (start & 0xffff) === gzipMagic ? body.pipeThrough(new DecompressionStream("gzip")) : body;
    if (plain !== body || start === wasmMagic) return new Response(plain, { headers: { "Content-Type": "application/wasm" } });
    void body.cancel(); // some page that stands for what is missing
  }
  throw new Error("the engine, tezgah.wasm.gz, is not where the page came from: was the page built and copied as a whole?");
}

/** firstBytes reads so many bytes of a stream, zeros for those it does not have, and leaves the rest. */
async function firstBytes(stream: ReadableStream<Uint8Array>, n: number): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(n);
  const reader = stream.getReader();
  for (let at = 0; at < n; ) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes.set(value.subarray(0, n - at), at);
    at += value.length;
  }
  void reader.cancel();
  return bytes;
}

/** runProgram starts the program and returns its handler of requests. ended is called when the program ends, which it never should. */
export async function runProgram(ended: (why: string) => void): Promise<(exchange: Exchange) => void> {
  const program = fetchProgram(); // while the files are looked at
  program.catch(() => {});
  const kept = await originPrivate();
  const root = kept ?? memoryRoot();
  await root.getDirectoryHandle(home.slice(1), { create: true });
  const disk = await Disk.open(root, [temporary]);
  const process = nodeProcess(home);
  const go = new Go();
  const ready = new Promise<(exchange: Exchange) => void>((resolve) => {
    const host: Host = { keepsFiles: kept !== null, turn: afterTurn, storage, asset, ready: resolve };
    Object.assign(globalThis, { fs: nodeFs(disk, process.cwd, printer()), process, path: nodePath(process.cwd), tezgahHost: host });
  });
  go.argv = ["tezgah-web", home];
  go.env = { HOME: "/", TMPDIR: "/" + temporary };
  let exitCode = 0;
  go.exit = (n) => (exitCode = n);
  const code = await WebAssembly.compileStreaming(program);
  let instance: WebAssembly.Instance;
  const kern = kernelImports(code, () => instance.exports.mem as WebAssembly.Memory);
  instance = await WebAssembly.instantiate(code, { ...go.importObject, kern });
  const end = go.run(instance).then(
    () => `the engine ended with code ${exitCode}: reload the page`,
    (error) => `the engine failed: ${error}: reload the page`,
  );
  void end.then(ended);
  return Promise.race([ready, end.then((why): never => { throw new Error(why); })]);
}
