// The worker of run.mjs with WASM_FS=opfs: runs a Go program over the file system
// of the workbench's tab. Bundled by run.mjs, together with Go's own loader.
import { Disk } from "../../workbench/web/src/worker/fs/disk";
import { type FolderHandle, originPrivate } from "../../workbench/web/src/worker/fs/handles";
import { memoryRoot } from "../../workbench/web/src/worker/fs/memory";
import { nodeFs, nodePath, nodeProcess } from "../../workbench/web/src/worker/fs/nodefs";
import { kernelImports } from "../../workbench/web/src/worker/kernels";
import { afterTurn } from "../../workbench/web/src/worker/turn";

interface Start {
  argv: string[];
  env: Record<string, string>;
  memory: boolean; // files in memory instead of the origin-private file system
  noMove: boolean; // as in a browser that cannot move files
}

const folder = "/package"; // what the program is started in, as go test starts it in the package's folder

function post(fd: number, bytes: Uint8Array) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  postMessage({ fd, text });
}

// place writes the package's test data where the program looks for it.
async function place(root: FolderHandle, files: Record<string, string>) {
  for (const [path, base64] of Object.entries(files)) {
    let at = await root.getDirectoryHandle(folder.slice(1), { create: true });
    const parts = path.split("/");
    const name = parts.pop()!;
    for (const part of parts) at = await at.getDirectoryHandle(part, { create: true });
    const access = await (await at.getFileHandle(name, { create: true })).createSyncAccessHandle();
    access.write(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)), { at: 0 });
    access.close();
  }
}

async function run({ argv, env, memory, noMove }: Start): Promise<number> {
  if (noMove) delete (globalThis as any).FileSystemFileHandle.prototype.move;
  const root = memory ? memoryRoot() : await originPrivate();
  if (!root) throw new Error("this browser has no origin-private file system with synchronous access");
  await place(root, await (await fetch("/files.json")).json());
  await root.getDirectoryHandle(folder.slice(1), { create: true });
  const disk = await Disk.open(root, ["tmp"]);
  const process = nodeProcess(folder);
  Object.assign(globalThis, { fs: nodeFs(disk, process.cwd, post), process, path: nodePath(process.cwd), yieldTurn: afterTurn });
  (globalThis as any).importScripts("/wasm_exec.js");
  const go = new (globalThis as any).Go();
  let code = 0;
  Object.assign(go, { argv, env: { TMPDIR: "/tmp", ...env }, exit: (n: number) => (code = n) });
  const program = await WebAssembly.compileStreaming(fetch("/program.wasm"));
  let instance: WebAssembly.Instance;
  const kern = kernelImports(program, () => instance.exports.mem as WebAssembly.Memory);
  instance = await WebAssembly.instantiate(program, { ...go.importObject, kern });
  await go.run(instance);
  return code;
}

addEventListener("message", (event) => {
  run(event.data).then((code) => postMessage({ code }), (error) => postMessage({ error: String(error?.stack ?? error) }));
});
