// The file system as Go's syscall package calls it: Node's fs with callbacks.
// Answers come at once where the file is open or the name is known, so that a
// read costs no turn of the event loop; others come when the browser has them.
import { soon } from "../turn";
import type { Disk } from "./disk";
import { asFsError, FsError } from "./errors";
import { type FileNode, type Node, parts } from "./tree";

type Callback<T> = (error: FsError | null, value?: T) => void;

export const constants = { O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, O_DIRECTORY: 65536 };

interface Descriptor {
  node: Node;
  position: number;
  append: boolean;
  readable: boolean;
  writable: boolean;
}

/** Types of files in the mode that stat answers. */
const modes = { folder: 0o040777, file: 0o100666, terminal: 0o020666 };

function status(mode: number, node?: Node) {
  const time = node?.modified ?? 0;
  const size = node?.size ?? 0;
  return {
    dev: 1, ino: node?.id ?? 0, mode, nlink: 1, uid: 0, gid: 0, rdev: 0, size, blksize: 4096, blocks: Math.ceil(size / 512),
    atimeMs: time, mtimeMs: time, ctimeMs: time, isDirectory: () => mode === modes.folder,
  };
}

function nodeStatus(node: Node) {
  return status(node.isFolder ? modes.folder : modes.file, node);
}

/** answer calls back with what work returns or throws. */
function answer<T>(callback: Callback<T>, work: () => T | Promise<T>): void {
  let result: T | Promise<T>;
  try {
    result = work();
  } catch (error) {
    soon(() => callback(asFsError(error)));
    return;
  }
  if (result instanceof Promise) {
    result.then((value) => callback(null, value), (error) => callback(asFsError(error)));
  } else {
    soon(() => callback(null, result));
  }
}

function unsupported(callback: Callback<never>): void {
  callback(new FsError("ENOSYS"));
}

/** nodeFs makes the object that Go expects as globalThis.fs. print gets what the program writes to its standard output and error. */
export function nodeFs(disk: Disk, cwd: () => string, print: (fd: number, bytes: Uint8Array) => void) {
  const open = new Map<number, Descriptor>();
  let nextFd = 3;

  const absolute = (path: string) => (path.startsWith("/") ? path : cwd() + "/" + path);
  const descriptor = (fd: number): Descriptor => {
    const d = open.get(fd);
    if (!d) throw new FsError("EBADF", "descriptor " + fd);
    return d;
  };
  const file = (fd: number): [FileNode, Descriptor] => {
    const d = descriptor(fd);
    if (d.node.isFolder) throw new FsError("EISDIR", "descriptor " + fd);
    return [d.node, d];
  };
  const moved = (d: Descriptor, position: number | null, n: number) => {
    if (position === null) d.position += n;
    return n;
  };
  const then = <T, R>(value: T | Promise<T>, f: (value: T) => R) => (value instanceof Promise ? value.then(f) : f(value));
  const nothing = () => undefined;

  return {
    constants,

    open(path: string, flags: number, _mode: number, callback: Callback<number>) {
      answer(callback, () => {
        const access = flags & 3;
        const node = disk.openNode(absolute(path), {
          write: access !== constants.O_RDONLY, create: (flags & constants.O_CREAT) !== 0, exclusive: (flags & constants.O_EXCL) !== 0,
          truncate: (flags & constants.O_TRUNC) !== 0, folder: (flags & constants.O_DIRECTORY) !== 0,
        });
        return then(node, (node) => {
          open.set(nextFd, {
            node, position: 0, append: (flags & constants.O_APPEND) !== 0, readable: access !== constants.O_WRONLY,
            writable: access !== constants.O_RDONLY,
          });
          return nextFd++;
        });
      });
    },

    close(fd: number, callback: Callback<void>) {
      answer(callback, () => {
        const d = descriptor(fd);
        open.delete(fd);
        if (!d.node.isFolder) return disk.release(d.node);
      });
    },

    read(fd: number, into: Uint8Array, offset: number, length: number, position: number | null, callback: Callback<number>) {
      answer(callback, () => {
        if (fd <= 2) return 0;
        const [node, d] = file(fd);
        if (!d.readable) throw new FsError("EBADF", "not open for reading");
        const n = disk.read(node, into.subarray(offset, offset + length), position ?? d.position);
        return then(n, (n) => moved(d, position, n));
      });
    },

    write(fd: number, from: Uint8Array, offset: number, length: number, position: number | null, callback: Callback<number>) {
      answer(callback, () => {
        const bytes = from.subarray(offset, offset + length);
        if (fd === 1 || fd === 2) {
          print(fd, bytes);
          return length;
        }
        const [node, d] = file(fd);
        if (!d.writable) throw new FsError("EBADF", "not open for writing");
        const n = disk.write(node, bytes, d.append ? node.size : (position ?? d.position));
        return then(n, (n) => moved(d, position, n));
      });
    },

    writeSync(fd: number, bytes: Uint8Array): number {
      print(fd, bytes);
      return bytes.length;
    },

    fstat(fd: number, callback: Callback<object>) {
      answer(callback, () => (fd <= 2 ? status(modes.terminal) : nodeStatus(descriptor(fd).node)));
    },
    stat(path: string, callback: Callback<object>) {
      answer(callback, () => then(disk.stat(absolute(path)), nodeStatus));
    },
    lstat(path: string, callback: Callback<object>) {
      answer(callback, () => then(disk.stat(absolute(path)), nodeStatus));
    },
    readdir(path: string, callback: Callback<string[]>) {
      answer(callback, () => disk.names(absolute(path)));
    },

    fsync(fd: number, callback: Callback<void>) {
      answer(callback, () => {
        const d = descriptor(fd);
        if (!d.node.isFolder) return disk.flush(d.node);
      });
    },
    ftruncate(fd: number, size: number, callback: Callback<void>) {
      answer(callback, () => {
        const [node, d] = file(fd);
        if (!d.writable) throw new FsError("EINVAL", "not open for writing");
        return disk.resize(node, size);
      });
    },
    truncate(path: string, size: number, callback: Callback<void>) {
      answer(callback, async () => {
        const node = await disk.openNode(absolute(path), { write: true, create: false, exclusive: false, truncate: false, folder: false });
        if (node.isFolder) throw new FsError("EISDIR", path);
        try {
          await disk.resize(node, size);
        } finally {
          await disk.release(node);
        }
      });
    },

    mkdir(path: string, _mode: number, callback: Callback<void>) {
      answer(callback, () => disk.mkdir(absolute(path)));
    },
    rmdir(path: string, callback: Callback<void>) {
      answer(callback, () => disk.rmdir(absolute(path)));
    },
    unlink(path: string, callback: Callback<void>) {
      answer(callback, () => disk.unlink(absolute(path)));
    },
    rename(from: string, to: string, callback: Callback<void>) {
      answer(callback, () => disk.rename(absolute(from), absolute(to)));
    },

    /** The browser cannot store a time; it is known as long as this worker lives. */
    utimes(path: string, _atime: number, mtime: number, callback: Callback<void>) {
      answer(callback, () => then(disk.stat(absolute(path)), (node) => void (node.modified = 1000 * mtime)));
    },

    // Nor has it owners or permissions: these succeed for files that are there.
    chmod(path: string, _mode: number, callback: Callback<void>) {
      answer(callback, () => then(disk.stat(absolute(path)), nothing));
    },
    chown(path: string, _uid: number, _gid: number, callback: Callback<void>) {
      answer(callback, () => then(disk.stat(absolute(path)), nothing));
    },
    lchown(path: string, _uid: number, _gid: number, callback: Callback<void>) {
      answer(callback, () => then(disk.stat(absolute(path)), nothing));
    },
    fchmod(fd: number, _mode: number, callback: Callback<void>) {
      answer(callback, () => void descriptor(fd));
    },
    fchown(fd: number, _uid: number, _gid: number, callback: Callback<void>) {
      answer(callback, () => void descriptor(fd));
    },

    // Nor links.
    readlink(_path: string, callback: Callback<never>) {
      unsupported(callback);
    },
    link(_path: string, _link: string, callback: Callback<never>) {
      unsupported(callback);
    },
    symlink(_path: string, _link: string, callback: Callback<never>) {
      unsupported(callback);
    },
  };
}

/** nodeProcess makes what Go expects as globalThis.process. */
export function nodeProcess(cwd: string) {
  return {
    pid: 1, ppid: 0, cwd: () => cwd, chdir: (path: string) => void (cwd = "/" + parts(path.startsWith("/") ? path : cwd + "/" + path).join("/")),
    getuid: () => 0, getgid: () => 0, geteuid: () => 0, getegid: () => 0, getgroups: () => [], umask: () => 0,
  };
}

/** nodePath makes what Go expects as globalThis.path. */
export function nodePath(cwd: () => string) {
  return { resolve: (path: string) => "/" + parts(path.startsWith("/") ? path : cwd() + "/" + path).join("/") };
}
