// The tab's file system when the tab dies: whatever the moment, a file that was
// being replaced has its old content or the whole new one at the next start.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Disk } from "../../src/worker/fs/disk";
import type { FolderHandle } from "../../src/worker/fs/handles";
import { memoryRoot } from "../../src/worker/fs/memory";
import type { FileNode } from "../../src/worker/fs/tree";

/** dying wraps a folder so that its operations, and those of everything in it, fail from the given one on. */
function dying(root: FolderHandle, life: { left: number }, noMove: boolean): FolderHandle {
  const wrapped = new WeakMap<object, unknown>();
  const wrap = <T extends object>(target: T): T => {
    if (!wrapped.has(target)) {
      wrapped.set(
        target,
        new Proxy(target, {
          get(object, name) {
            const value = Reflect.get(object, name);
            if (noMove && name === "move") return undefined;
            if (typeof value !== "function") return value;
            return (...args: unknown[]) => {
              if (life.left-- <= 0) throw new DOMException("the tab is dead", "InvalidStateError");
              const plain = args.map((a) => (a && typeof a === "object" && originals.get(a)) || a);
              const result: unknown = Reflect.apply(value, object, plain);
              if (result instanceof Promise)
                return result.then((v: unknown) => (v && typeof v === "object" && !("size" in v) ? remember(v) : v));
              return result;
            };
          },
        }),
      );
    }
    return wrapped.get(target) as T;
  };
  const originals = new WeakMap<object, object>();
  const remember = (v: object) => {
    const w = wrap(v);
    originals.set(w, v);
    return w;
  };
  return remember(root) as FolderHandle;
}

const flags = { write: true, create: true, exclusive: false, truncate: true, folder: false };

async function put(disk: Disk, path: string, text: string): Promise<FileNode> {
  const node = (await disk.openNode(path, flags)) as FileNode;
  await disk.write(node, new TextEncoder().encode(text), 0);
  return node;
}

async function get(disk: Disk, path: string): Promise<string> {
  const node = (await disk.openNode(path, { ...flags, write: false, create: false, truncate: false })) as FileNode;
  const bytes = new Uint8Array(node.size);
  await disk.read(node, bytes, 0);
  await disk.release(node);
  return new TextDecoder().decode(bytes);
}

/** crashes runs a rename that dies at each of its operations in turn, and hands what is found afterwards to check. */
async function crashes(
  noMove: boolean,
  heldOpen: boolean,
  folders: boolean,
  check: (disk: Disk, where: string) => Promise<void>,
) {
  console.warn = () => {};
  for (let at = 0; ; at++) {
    const root = memoryRoot();
    const life = { left: Infinity };
    const disk = await Disk.open(dying(root, life, noMove), ["tmp"]);
    await disk.mkdir("/a");
    await disk.mkdir("/a/deep");
    for (const [path, text] of [
      ["/old", "old content"],
      ["/a/new", "new content"],
      ["/a/deep/x", "deep"],
    ] as const) {
      const node = await put(disk, path, text);
      if (!(heldOpen && path === "/old")) await disk.release(node);
    }
    life.left = at;
    let died = false;
    try {
      await (folders ? disk.rename("/a", "/b") : disk.rename("/a/new", "/old"));
    } catch {
      died = true;
    }
    life.left = Infinity;
    const next = await Disk.open(dying(root, life, noMove), ["tmp"]);
    await check(next, `operation ${at}, ${died ? "died" : "finished"}`);
    if (!died) return at;
  }
}

for (const noMove of [false, true]) {
  for (const heldOpen of [false, true]) {
    test(`a file replaced ${noMove ? "without" : "with"} move, ${heldOpen ? "the old one open" : "closed"}`, async () => {
      const steps = await crashes(noMove, heldOpen, false, async (disk, where) => {
        const content = await get(disk, "/old");
        assert.ok(["old content", "new content"].includes(content), `${where}: "${content}"`);
        const names = await disk.names("/a");
        if (content === "old content") assert.deepEqual(names.sort(), ["deep", "new"], where);
        else assert.deepEqual(names, ["deep"], where);
        assert.deepEqual((await disk.names("/")).sort(), ["a", "old", "tmp"], where);
      });
      assert.ok(steps > 2, `only ${steps} operations`);
    });
  }
  test(`a folder renamed ${noMove ? "without" : "with"} move`, async () => {
    await crashes(noMove, false, true, async (disk, where) => {
      const names = (await disk.names("/")).sort();
      const at = names.includes("b") ? "b" : "a";
      assert.deepEqual(names, [at, "old", "tmp"], where);
      assert.equal(await get(disk, `/${at}/new`), "new content", where);
      assert.equal(await get(disk, `/${at}/deep/x`), "deep", where);
    });
  });
}

test("a tab's temporary files and what was removed while open are gone at the next start", async () => {
  const root = memoryRoot();
  const disk = await Disk.open(root, ["tmp"]);
  await disk.release(await put(disk, "/tmp/x", "x"));
  await put(disk, "/open", "still open");
  await disk.unlink("/open");
  const next = await Disk.open(root, ["tmp"]);
  assert.deepEqual(await next.names("/"), ["tmp"]);
  assert.deepEqual(await next.names("/tmp"), []);
});

test("what does not exist, or is something else, has Node's codes", async () => {
  const disk = await Disk.open(memoryRoot(), ["tmp"]);
  await disk.release(await put(disk, "/f", "f"));
  const code = async (work: () => unknown) => {
    try {
      await work();
    } catch (error) {
      return (error as { code?: string }).code;
    }
    return "none";
  };
  assert.equal(await code(() => disk.stat("/none")), "ENOENT");
  assert.equal(await code(() => disk.stat("/f/below")), "ENOTDIR");
  assert.equal(await code(() => disk.mkdir("/f")), "EEXIST");
  assert.equal(await code(() => disk.mkdir("/none/below")), "ENOENT");
  assert.equal(await code(() => disk.rmdir("/f")), "ENOTDIR");
  assert.equal(await code(() => disk.unlink("/tmp")), "EISDIR");
  assert.equal(await code(() => disk.rename("/tmp", "/tmp/below")), "EINVAL");
  assert.equal(await code(() => disk.openNode("/tmp", flags)), "EISDIR");
  assert.equal(await code(() => disk.openNode("/f", { ...flags, exclusive: true })), "EEXIST");
});
