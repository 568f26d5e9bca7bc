/** The codes that this file system answers with, as Node names them; Go knows them all. */
export type Code =
  | "EACCES" | "EBADF" | "EBUSY" | "EEXIST" | "EINVAL" | "EIO" | "EISDIR" | "ENOENT" | "ENOSPC" | "ENOSYS" | "ENOTDIR" | "ENOTEMPTY";

/** An error with a code that Go's syscall package maps to its own. */
export class FsError extends Error {
  constructor(readonly code: Code, message: string = code) {
    super(message);
    this.name = "FsError";
  }
}

const codes: Record<string, Code> = {
  NotFoundError: "ENOENT",
  TypeMismatchError: "ENOTDIR",
  NoModificationAllowedError: "EBUSY",
  InvalidModificationError: "ENOTEMPTY",
  QuotaExceededError: "ENOSPC",
  NotAllowedError: "EACCES",
  SecurityError: "EACCES",
  TypeError: "EINVAL", // a name that the browser does not allow
};

/** asFsError translates what the browser threw. What has no code of its own is EIO, and its text goes to the console. */
export function asFsError(error: unknown): FsError {
  if (error instanceof FsError) return error;
  const { name, message } = error as { name?: string; message?: string };
  const code = codes[name ?? ""] ?? "EIO";
  if (code === "EIO") console.warn("file system:", error);
  return new FsError(code, message);
}
