// Where files come in: a zone to drop on, with buttons for files and a folder.
import { m } from "../i18n";
import { type Child, h } from "./dom";
import { icon } from "./icons";
import { signal } from "./reactive";
import { showError } from "./toast";

/** Files that came together, with their paths below what was dropped. */
export interface Picked {
  label: string;
  files: { path: string; file: File }[];
}

export interface DropOptions {
  text: Child;
  /** Value of accept for the file dialog. */
  accept?: string;
  multiple?: boolean;
  folders?: boolean;
  more?: Child;
  take(picked: Picked): unknown;
}

export function dropZone(options: DropOptions): HTMLElement {
  const over = signal(false);
  const take = async (found: Promise<Picked | null> | Picked | null) => {
    try {
      const picked = await found;
      if (picked && picked.files.length > 0) await options.take(picked);
    } catch (error) {
      showError(error);
    }
  };
  return h(
    "div.drop",
    {
      class: () => (over() ? "over" : ""),
      ondragover: (e: DragEvent) => (e.preventDefault(), over.set(true)),
      ondragleave: () => over.set(false),
      ondrop: (e: DragEvent) => {
        e.preventDefault();
        over.set(false);
        void take(fromDrop(e.dataTransfer));
      },
    },
    h("p", options.text),
    h(
      "div.row.center",
      picker(m.common.chooseFiles, "file", options, false, take),
      options.folders ? picker(m.common.chooseFolder, "folder", options, true, take) : null,
      options.more,
    ),
  );
}

/** A button in front of a hidden file input. */
function picker(
  label: string,
  name: "file" | "folder",
  options: DropOptions,
  folder: boolean,
  take: (p: Picked | null) => void,
): Child {
  const input = h("input", {
    type: "file",
    class: "visually-hidden",
    tabindex: -1,
    "aria-hidden": "true",
    multiple: options.multiple ?? false,
    accept: folder ? undefined : options.accept,
    webkitdirectory: folder || undefined,
    onchange: () => {
      take(fromInput(input));
      input.value = "";
    },
  });
  return [h("button.btn.small", { type: "button", onclick: () => input.click() }, icon(name), h("span", label)), input];
}

function fromInput(input: HTMLInputElement): Picked | null {
  const files = [...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
  return group(files);
}

/** Gives what came together a label and an order, and leaves out hidden files. */
function group(files: { path: string; file: File }[]): Picked | null {
  const kept = files.filter((f) => !f.path.split("/").some((part) => part.startsWith(".") || part === "node_modules"));
  if (kept.length === 0) return null;
  kept.sort((a, b) => (a.path < b.path ? -1 : 1));
  const first = kept[0]!.path;
  return { label: first.includes("/") ? first.split("/")[0]! : first, files: kept };
}

async function fromDrop(transfer: DataTransfer | null): Promise<Picked | null> {
  if (!transfer) return null;
  // Entries must be taken before the first await: the list is emptied then.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((e) => e != null);
  if (entries.length === 0) return group([...transfer.files].map((file) => ({ path: file.name, file })));
  const files: { path: string; file: File }[] = [];
  for (const entry of entries) await walk(entry, entry.name, files);
  return group(files);
}

async function walk(entry: FileSystemEntry, path: string, files: { path: string; file: File }[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    files.push({ path, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A reader gives its entries in parts, and an empty part at the end.
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) return;
    for (const child of part) await walk(child, `${path}/${child.name}`, files);
  }
}
