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

/**
 * fetchProgram gets the program, which lies beside this script compressed by gzip, so that it is small on hosts that
 * do not compress. Some of them say so and the browser has undone it: the first bytes tell.
 */
async function fetchProgram(): Promise<Response> {
  const url = new URL("tezgah.wasm.gz", location.href);
  const answer = await fetch(url);
  if (!answer.ok || !answer.body) throw new Error(`${url.pathname} answers ${answer.status}`);
  const [head, rest] = answer.body.tee();
  const reader = head.getReader();
  let magic: number[] = [];
  while (magic.length < 2) {
    const { done, value } = await reader.read();
    if (done) break;
    magic = magic.concat(...value.subarray(0, 2));
  }
  reader.cancel().catch(() => {});
  const zipped = magic[0] === 0x1f && magic[1] === 0x8b;
  const plain = zipped ? rest.pipeThrough(new DecompressionStream("gzip")) : rest;
  return new Response(plain, { headers: { "Content-Type": "application/wasm" } });
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
