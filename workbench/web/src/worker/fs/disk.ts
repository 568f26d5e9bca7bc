// Operations on files and folders with the meaning they have on Unix, over the
// browser's file system: names can be replaced and removed while files are open,
// and a rename shows either the old file or the new one, whenever the tab dies.
//
// What changes the tree runs one after another (serial). Reading and writing an
// open file does not wait (read, write), unless its file is just being renamed.
import { asFsError, FsError } from "./errors";
import type { AccessHandle, FileHandle, FolderHandle } from "./handles";
import { FileNode, find, FolderNode, type Node, parts, walk } from "./tree";

/** Names in the root that are not for Go: files removed while open, and a rename on its way. */
const trashName = ".trash";
const journalName = ".rename";

/** Files that stay open after their last user, because most are opened again soon. */
const idleFiles = 24;

/** How long to wait for a file that the worker of a closed page still holds, in milliseconds. */
const patience = 5000;

/** Flags of open. */
export interface OpenFlags {
  write: boolean;
  create: boolean;
  exclusive: boolean;
  truncate: boolean;
  folder: boolean;
}

export class Disk {
  private readonly root: FolderNode;
  private trash: FolderHandle | null = null;
  private readonly idle = new Set<FileNode>(); // the longest idle first
  private tail: Promise<unknown> = Promise.resolve();
  private running = 0;

  private constructor(root: FolderHandle) {
    this.root = new FolderNode("", null, root);
  }

  /** open finishes what a tab that died left half done, and empties the trash and the folders named in temporary. */
  static async open(root: FolderHandle, temporary: string[]): Promise<Disk> {
    const disk = new Disk(root);
    await disk.redo();
    for (const name of [trashName, ...temporary]) {
      await root.removeEntry(name, { recursive: true }).catch(() => {}); // most often there is none
    }
    for (const name of temporary) await root.getDirectoryHandle(name, { create: true });
    return disk;
  }

  /** stat returns the node at a path. */
  stat(path: string): Node | Promise<Node> {
    if (this.running === 0) {
      const node = find(this.root, parts(path));
      if (node === null) throw new FsError("ENOENT", path);
      if (node && node.size >= 0) return node;
    }
    return this.serial(async () => {
      const node = await this.existing(path);
      return node.isFolder ? node : node.look();
    });
  }

  names(path: string): Promise<string[]> {
    return this.serial(async () => {
      const node = await this.existing(path);
      if (!node.isFolder) throw new FsError("ENOTDIR", path);
      const names = [...(await node.list()).keys()];
      return node === this.root ? names.filter((n) => n !== trashName && n !== journalName) : names;
    });
  }

  /** openNode opens a file or folder; a file must be given back with release. */
  openNode(path: string, flags: OpenFlags): Node | Promise<Node> {
    if (this.running === 0 && !flags.exclusive) {
      const node = find(this.root, parts(path));
      if (node === null && !flags.create) throw new FsError("ENOENT", path);
      if (node && !node.isFolder && node.access) return this.use(node, path, flags);
    }
    return this.serial(async () => {
      let node = await walk(this.root, parts(path));
      if (!node && flags.create && !flags.folder) node = await this.create(path);
      else if (node && flags.create && flags.exclusive) throw new FsError("EEXIST", path);
      if (!node) throw new FsError("ENOENT", path);
      if (node.isFolder) {
        if (flags.write) throw new FsError("EISDIR", path);
        return node;
      }
      await node.look();
      await this.acquire(node);
      return this.use(node, path, flags);
    });
  }

  /** release gives an open file back. */
  release(node: FileNode): void | Promise<void> {
    if (--node.users > 0) return;
    if (!node.parent) return this.serial(() => this.discard(node));
    this.idle.add(node);
    for (const old of this.idle) {
      if (this.idle.size <= idleFiles) break;
      this.idle.delete(old);
      old.close();
    }
  }

  read(node: FileNode, into: Uint8Array, at: number): number | Promise<number> {
    if (!node.access) return this.reopened(node).then(() => this.read(node, into, at));
    return node.access.read(into, { at });
  }

  write(node: FileNode, from: Uint8Array, at: number): number | Promise<number> {
    if (!node.access) return this.reopened(node).then(() => this.write(node, from, at));
    const n = node.access.write(from, { at });
    node.size = Math.max(node.size, at + n);
    node.modified = Date.now();
    return n;
  }

  resize(node: FileNode, size: number): void | Promise<void> {
    if (!node.access) return this.reopened(node).then(() => this.resize(node, size));
    node.access.truncate(size);
    node.size = size;
    node.modified = Date.now();
  }

  flush(node: FileNode): void | Promise<void> {
    if (!node.access) return this.reopened(node).then(() => this.flush(node));
    node.access.flush();
  }

  mkdir(path: string): Promise<void> {
    return this.serial(async () => {
      const [folder, name] = await this.place(path);
      if ((await folder.list()).has(name)) throw new FsError("EEXIST", path);
      folder.add(new FolderNode(name, folder, await folder.handle.getDirectoryHandle(name, { create: true })));
    });
  }

  rmdir(path: string): Promise<void> {
    return this.serial(async () => {
      const node = await this.existing(path);
      if (!node.isFolder) throw new FsError("ENOTDIR", path);
      if (!node.parent) throw new FsError("EBUSY", path);
      if ((await node.list()).size > 0) throw new FsError("ENOTEMPTY", path);
      await node.parent.handle.removeEntry(node.name);
      node.parent.remove(node);
    });
  }

  unlink(path: string): Promise<void> {
    return this.serial(async () => {
      const node = await this.existing(path);
      if (node.isFolder) throw new FsError("EISDIR", path);
      await this.drop(node);
    });
  }

  /** rename gives a file or folder another name, replacing a file or an empty folder. */
  rename(from: string, to: string): Promise<void> {
    return this.serial(async () => {
      const source = await this.existing(from);
      const [folder, name] = await this.place(to);
      const old = (await folder.list()).get(name);
      if (old === source) return;
      if (source.isFolder) await this.renameFolder(source, from, folder, name, to, old);
      else await this.renameFile(source, from, folder, name, to, old);
    });
  }

  private async renameFile(source: FileNode, from: string, folder: FolderNode, name: string, to: string, old?: Node) {
    if (old?.isFolder) throw new FsError("EISDIR", to);
    if (old && (old.users > 0 || !source.handle.move || !(await this.replaces()))) {
      return this.journaled(from, to, async () => {
        await this.drop(old);
        await this.moveNode(source, folder, name);
      });
    }
    if (old) this.letGo(old);
    await this.moveNode(source, folder, name);
    if (old) old.parent = null;
  }

  /** renameFolder moves what is in a folder one by one, because browsers cannot move folders. */
  private async renameFolder(source: FolderNode, from: string, folder: FolderNode, name: string, to: string, old?: Node) {
    if (!source.parent || folder.within(source)) throw new FsError("EINVAL", from + " into itself");
    if (old && !old.isFolder) throw new FsError("ENOTDIR", to);
    if (old && (await old.list()).size > 0) throw new FsError("ENOTEMPTY", to);
    await this.journaled(from, to, () => this.merge(source, folder, name));
  }

  /** merge moves everything in source into the folder of that name, made when missing, and removes source. */
  private async merge(source: FolderNode, folder: FolderNode, name: string) {
    let target = (await folder.list()).get(name);
    if (!target) {
      target = new FolderNode(name, folder, await folder.handle.getDirectoryHandle(name, { create: true }));
      folder.add(target);
    }
    if (!target.isFolder) throw new FsError("ENOTDIR", name);
    for (const child of [...(await source.list()).values()]) {
      if (child.isFolder) await this.merge(child, target, child.name);
      else await this.moveNode(child, target, child.name);
    }
    await source.parent!.handle.removeEntry(source.name);
    source.parent!.remove(source);
  }

  /** moveNode moves a file, which may be open, in the browser and in the tree. */
  private async moveNode(node: FileNode, folder: FolderNode, name: string) {
    await node.look();
    this.letGo(node);
    node.handle = await moveFile(node.handle, node.parent!.handle, folder.handle, name);
    node.parent!.remove(node);
    node.name = name;
    folder.add(node);
    if (node.users > 0) await this.acquire(node);
  }

  /** drop removes a file; one that is open goes to the trash until its last user is done. */
  private async drop(node: FileNode) {
    const folder = node.parent!;
    this.letGo(node);
    if (node.users > 0) {
      node.handle = await moveFile(node.handle, folder.handle, await this.trashFolder(), String(node.id));
      await this.acquire(node);
    } else {
      await folder.handle.removeEntry(node.name);
    }
    folder.remove(node);
  }

  /** discard removes a file from the trash after its last user. */
  private async discard(node: FileNode) {
    if (node.users > 0 || !this.trash) return;
    node.close();
    await this.trash.removeEntry(String(node.id));
  }

  /** letGo closes the access to a file, so that the browser lets it be moved or removed. */
  private letGo(node: FileNode) {
    this.idle.delete(node);
    node.close();
  }

  /** acquire opens the access to a file. */
  private async acquire(node: FileNode) {
    if (node.access) return;
    node.access = await openAccess(node.handle);
    node.size = node.access.getSize();
  }

  /** use counts a user of a file whose access is open. */
  private use(node: FileNode, path: string, flags: OpenFlags): FileNode {
    if (flags.folder) throw new FsError("ENOTDIR", path);
    if (flags.truncate) this.resize(node, 0);
    this.idle.delete(node);
    node.users++;
    return node;
  }

  private async create(path: string): Promise<FileNode> {
    const [folder, name] = await this.place(path);
    const node = new FileNode(name, folder, await folder.handle.getFileHandle(name, { create: true }));
    node.size = 0;
    node.modified = Date.now();
    folder.add(node);
    return node;
  }

  /** reopened waits for a rename that has closed the file for a moment. */
  private reopened(node: FileNode): Promise<void> {
    return this.serial(() => this.acquire(node));
  }

  private async existing(path: string): Promise<Node> {
    const node = await walk(this.root, parts(path));
    if (!node) throw new FsError("ENOENT", path);
    return node;
  }

  /** place returns the folder that a path is in, and its last name. */
  private async place(path: string): Promise<[FolderNode, string]> {
    const all = parts(path);
    const name = all.pop();
    if (name === undefined) throw new FsError("EEXIST", path);
    const folder = await walk(this.root, all);
    if (!folder) throw new FsError("ENOENT", path);
    if (!folder.isFolder) throw new FsError("ENOTDIR", path);
    return [folder, name];
  }

  /** serial runs f after everything before it has ended. */
  private serial<T>(f: () => Promise<T>): Promise<T> {
    this.running++;
    const result = this.tail.then(f).finally(() => this.running--);
    this.tail = result.catch(() => {});
    return result;
  }

  private moveReplaces: boolean | null = null;

  /** replaces finds out, once, whether the browser's move replaces a file in one step. It tries in the trash. */
  private async replaces(): Promise<boolean> {
    if (this.moveReplaces !== null) return this.moveReplaces;
    const folder = await this.trashFolder();
    const to = await folder.getFileHandle("to", { create: true });
    const from = await folder.getFileHandle("from", { create: true });
    try {
      await from.move!(folder, to.name);
      this.moveReplaces = true;
    } catch {
      this.moveReplaces = false;
    }
    return this.moveReplaces;
  }

  private async trashFolder(): Promise<FolderHandle> {
    return (this.trash ??= await this.root.handle.getDirectoryHandle(trashName, { create: true }));
  }

  /** journaled runs a rename that takes several steps, noted down first so that redo can finish it after a crash. */
  private async journaled(from: string, to: string, steps: () => Promise<void>) {
    const access = await (await this.root.handle.getFileHandle(journalName, { create: true })).createSyncAccessHandle();
    try {
      access.truncate(0);
      access.write(new TextEncoder().encode(JSON.stringify({ from, to })), { at: 0 });
      access.flush();
    } finally {
      access.close();
    }
    try {
      await steps();
    } finally {
      await this.root.handle.removeEntry(journalName);
    }
  }

  /** readJournal returns null when there is no journal, or one that was never whole: then nothing has begun. */
  private async readJournal(): Promise<{ from: string; to: string } | null> {
    try {
      const access = await openAccess(await this.root.handle.getFileHandle(journalName));
      try {
        const bytes = new Uint8Array(access.getSize());
        access.read(bytes, { at: 0 });
        return JSON.parse(new TextDecoder().decode(bytes));
      } finally {
        access.close();
      }
    } catch {
      return null;
    }
  }

  /** redo finishes the rename in the journal. */
  private async redo() {
    const entry = await this.readJournal();
    if (!entry) return;
    const source = await walk(this.root, parts(entry.from));
    if (source?.isFolder) {
      const [folder, name] = await this.place(entry.to);
      await this.merge(source, folder, name);
    } else if (source) {
      const [folder, name] = await this.place(entry.to);
      const old = (await folder.list()).get(name);
      if (old && !old.isFolder) await this.drop(old);
      await this.moveNode(source, folder, name);
    }
    await this.root.handle.removeEntry(journalName);
  }
}

/** openAccess waits for a file that the worker of a closed page still holds. */
async function openAccess(file: FileHandle): Promise<AccessHandle> {
  const begin = Date.now();
  for (;;) {
    try {
      return await file.createSyncAccessHandle();
    } catch (error) {
      if ((error as Error).name !== "NoModificationAllowedError" || Date.now() - begin > patience) throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

/** moveFile moves a closed file and returns its new handle. The name must be free, or move must replace. */
async function moveFile(file: FileHandle, from: FolderHandle, to: FolderHandle, name: string): Promise<FileHandle> {
  if (file.move) {
    await file.move(to, name);
    return to.getFileHandle(name);
  }
  const old = file.name;
  const copy = await to.getFileHandle(name, { create: true });
  await copyFile(file, copy);
  await from.removeEntry(old);
  return copy;
}

async function copyFile(from: FileHandle, to: FileHandle) {
  const source = await from.createSyncAccessHandle();
  const target = await to.createSyncAccessHandle().catch((error) => {
    source.close();
    throw asFsError(error);
  });
  try {
    target.truncate(0);
    const buffer = new Uint8Array(1 << 20);
    for (let at = 0, n = 0; (n = source.read(buffer, { at })) > 0; at += n) target.write(buffer.subarray(0, n), { at });
    target.flush();
  } finally {
    source.close();
    target.close();
  }
}
