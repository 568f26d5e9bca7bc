// The two places that the page runs in: a real server, and a static host.
import { execFileSync, spawn } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
export const dist = join(web, "dist");

let program;

/** Builds tezgah once, with the page in dist/; TEZGAH_BIN names one that is built. */
function tezgah() {
  if (process.env.TEZGAH_BIN) return process.env.TEZGAH_BIN;
  if (!program) {
    const folder = mkdtempSync(join(tmpdir(), "tezgah-bin-"));
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    execFileSync(process.env.GO ?? "go", ["build", "-o", join(folder, "tezgah"), "./cmd/tezgah"], {
      cwd: join(web, "..", ".."),
      stdio: "inherit",
      env: { ...process.env, CGO_ENABLED: "0" },
    });
    program = join(folder, "tezgah");
  }
  return program;
}

/** `tezgah serve` in a folder; with a folder that is there it finds its runs again. */
export async function startServer({ folder, port = 0 } = {}) {
  const own = folder ?? mkdtempSync(join(tmpdir(), "tezgah-serve-"));
  const child = spawn(tezgah(), ["serve", "--dir", own, "--addr", `127.0.0.1:${port}`, "--device", "cpu", "--open=false"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const url = await new Promise((resolve, reject) => {
    const read = (chunk) => {
      output += chunk;
      const match = /http:\/\/\S+\?token=\S+/.exec(output);
      if (match) resolve(match[0]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", (code) => reject(new Error(`tezgah serve ended with ${code}: ${output}`)));
  });
  const end = (signal) =>
    new Promise((resolve) =>
      child.exitCode === null && child.signalCode === null ? child.once("exit", resolve).kill(signal) : resolve(),
    );
  return {
    url,
    folder: own,
    stop: () => end("SIGINT"),
    close: async () => {
      await end("SIGKILL");
      rmSync(own, { recursive: true, force: true });
    },
  };
}

const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".gz": "application/gzip",
};

/** A host that knows nothing but files, as any web host. */
export async function startStatic() {
  for (const name of ["index.html", "worker.js", "tezgah.wasm.gz", "sample.txt.gz"]) {
    if (!existsSync(join(dist, name))) throw new Error(`dist/${name} is missing: run make web`);
  }
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://x").pathname;
    const file = join(dist, path === "/" ? "index.html" : path);
    if (!file.startsWith(dist) || !existsSync(file) || !statSync(file).isFile())
      return response.writeHead(404, { "Content-Type": "text/html" }).end("<h1>404</h1>");
    response.writeHead(200, { "Content-Type": types[extname(file)] ?? "application/octet-stream" });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => (server.closeAllConnections(), server.close()) };
}
