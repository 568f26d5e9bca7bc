// The tree of files and folders as far as it was looked at. This worker is the
// only one that changes it (see lock.ts), so what was seen once stays true, and
// most questions are answered without asking the browser again.
import { FsError } from "./errors";
import type { AccessHandle, FileHandle, FolderHandle } from "./handles";

let lastId = 0;

export class FileNode {
  readonly id = ++lastId; // what Go compares files by
  readonly isFolder = false;
  parent: FolderNode | null; // null once the file is removed
  size = -1; // bytes; -1 until looked at
  modified = 0; // milliseconds since 1970
  access: AccessHandle | null = null;
  users = 0; // open descriptors

  constructor(public name: string, parent: FolderNode, public handle: FileHandle) {
    this.parent = parent;
  }

  /** look asks the browser for size and time, once. */
  async look(): Promise<this> {
    if (this.size < 0) {
      const file = await this.handle.getFile();
      this.size = file.size;
      this.modified = file.lastModified;
    }
    return this;
  }

  /** close ends the access of a file that nobody has open. */
  close(): void {
    this.access?.close();
    this.access = null;
  }
}

export class FolderNode {
  readonly id = ++lastId;
  readonly isFolder = true;
  readonly size = 0;
  children: Map<string, Node> | null = null; // null until listed
  modified = Date.now();

  constructor(public name: string, public parent: FolderNode | null, public handle: FolderHandle) {}

  /** list asks the browser what is in the folder, once. */
  async list(): Promise<Map<string, Node>> {
    if (this.children) return this.children;
    const children = new Map<string, Node>();
    for await (const [name, handle] of this.handle.entries()) {
      const node = handle.kind === "file" ? new FileNode(name, this, handle) : new FolderNode(name, this, handle);
      children.set(name, node);
    }
    return (this.children = children);
  }

  add(node: Node): void {
    node.parent = this;
    this.children?.set(node.name, node);
    this.modified = Date.now();
  }

  remove(node: Node): void {
    this.children?.delete(node.name);
    node.parent = null;
    this.modified = Date.now();
  }

  /** within tells whether the folder is other or lies below it. */
  within(other: FolderNode): boolean {
    for (let f: FolderNode | null = this; f; f = f.parent) if (f === other) return true;
    return false;
  }
}

export type Node = FileNode | FolderNode;

/** parts splits an absolute path; "." and empty parts are left out, ".." goes up. */
export function parts(path: string): string[] {
  const out: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") out.pop();
    else if (part !== "" && part !== ".") out.push(part);
  }
  return out;
}

/** find returns the node at a path, null when there is none, or undefined when a folder on the way was not listed yet. */
export function find(root: FolderNode, path: string[]): Node | null | undefined {
  let node: Node = root;
  for (const part of path) {
    if (!node.isFolder) throw new FsError("ENOTDIR", path.join("/"));
    if (!node.children) return undefined;
    const child = node.children.get(part);
    if (!child) return null;
    node = child;
  }
  return node;
}

/** walk is find that lists the folders on the way. */
export async function walk(root: FolderNode, path: string[]): Promise<Node | null> {
  let node: Node = root;
  for (const part of path) {
    if (!node.isFolder) throw new FsError("ENOTDIR", path.join("/"));
    const child: Node | undefined = (await node.list()).get(part);
    if (!child) return null;
    node = child;
  }
  return node;
}
