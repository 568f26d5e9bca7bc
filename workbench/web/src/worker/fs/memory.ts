// Files in memory, for browsers without an origin-private file system and for
// private windows. They are gone when the tab closes.
import type { AccessHandle, FileHandle, FolderHandle } from "./handles";

function fail(name: string, message: string): never {
  throw new DOMException(message, name);
}

class MemoryFile implements FileHandle {
  readonly kind = "file";
  size = 0;
  lastModified = Date.now();
  private room = new Uint8Array(0); // its first size bytes are the content, the others are zero

  constructor(public name: string, private folder: MemoryFolder) {}

  async getFile() {
    return { size: this.size, lastModified: this.lastModified };
  }

  async createSyncAccessHandle(): Promise<AccessHandle> {
    return {
      read: (into, { at }) => {
        const part = this.room.subarray(Math.min(at, this.size), Math.min(at + into.length, this.size));
        into.set(part);
        return part.length;
      },
      write: (from, { at }) => {
        if (at + from.length > this.size) this.resize(at + from.length);
        this.room.set(from, at);
        this.lastModified = Date.now();
        return from.length;
      },
      truncate: (size) => this.resize(size),
      getSize: () => this.size,
      flush() {},
      close() {},
    };
  }

  async move(folder: FolderHandle, name: string): Promise<void> {
    this.folder.children.delete(this.name);
    this.folder = folder as MemoryFolder;
    this.name = name;
    this.folder.children.set(name, this);
  }

  private resize(size: number) {
    if (size > this.room.length) {
      let grown: Uint8Array<ArrayBuffer>;
      try {
        grown = new Uint8Array(Math.max(size, 2 * this.room.length));
      } catch {
        return fail("QuotaExceededError", "no memory for the file");
      }
      grown.set(this.room.subarray(0, this.size));
      this.room = grown;
    } else if (size < this.size) {
      this.room.fill(0, size, this.size);
    }
    this.size = size;
    this.lastModified = Date.now();
  }
}

class MemoryFolder implements FolderHandle {
  readonly kind = "directory";
  readonly children = new Map<string, MemoryFile | MemoryFolder>();

  constructor(readonly name: string) {}

  async getFileHandle(name: string, options?: { create?: boolean }): Promise<FileHandle> {
    const child = this.children.get(name);
    if (child instanceof MemoryFolder) fail("TypeMismatchError", name + " is a folder");
    if (child) return child;
    if (!options?.create) fail("NotFoundError", "no file " + name);
    const file = new MemoryFile(name, this);
    this.children.set(name, file);
    return file;
  }

  async getDirectoryHandle(name: string, options?: { create?: boolean }): Promise<FolderHandle> {
    const child = this.children.get(name);
    if (child instanceof MemoryFile) fail("TypeMismatchError", name + " is a file");
    if (child) return child;
    if (!options?.create) fail("NotFoundError", "no folder " + name);
    const folder = new MemoryFolder(name);
    this.children.set(name, folder);
    return folder;
  }

  async removeEntry(name: string, options?: { recursive?: boolean }): Promise<void> {
    const child = this.children.get(name);
    if (!child) fail("NotFoundError", "no entry " + name);
    if (child instanceof MemoryFolder && child.children.size > 0 && !options?.recursive) {
      fail("InvalidModificationError", name + " is not empty");
    }
    this.children.delete(name);
  }

  async *entries(): AsyncIterable<[string, FileHandle | FolderHandle]> {
    yield* [...this.children];
  }
}

/** memoryRoot returns an empty folder in memory. */
export function memoryRoot(): FolderHandle {
  return new MemoryFolder("");
}
