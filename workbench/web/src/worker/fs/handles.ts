// The part of the File System API that the file system needs, as interfaces:
// the origin-private file system has it, and memory.ts is the same in memory.

/** An open file, read and written without waiting. Offsets and sizes are bytes. */
export interface AccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

export interface FileHandle {
  readonly kind: "file";
  readonly name: string;
  getFile(): Promise<{ readonly size: number; readonly lastModified: number }>;
  createSyncAccessHandle(): Promise<AccessHandle>;
  /** Gives the file another name, replacing what is there. Not in every browser. */
  move?(folder: FolderHandle, name: string): Promise<void>;
}

export interface FolderHandle {
  readonly kind: "directory";
  readonly name: string;
  getFileHandle(name: string, options?: { create?: boolean }): Promise<FileHandle>;
  getDirectoryHandle(name: string, options?: { create?: boolean }): Promise<FolderHandle>;
  removeEntry(name: string, options?: { recursive?: boolean }): Promise<void>;
  entries(): AsyncIterable<[string, FileHandle | FolderHandle]>;
}

/** originPrivate returns the root of the origin-private file system, or null where the browser has none to write to. */
export async function originPrivate(): Promise<FolderHandle | null> {
  try {
    const root = (await navigator.storage.getDirectory()) as unknown as FolderHandle;
    // Some browsers have the folder but no synchronous access (or not in a private window).
    const probe = await root.getFileHandle(".probe", { create: true });
    (await probe.createSyncAccessHandle()).close();
    await root.removeEntry(".probe");
    return root;
  } catch {
    return null;
  }
}
