// Messages at the edge of the page. Errors stay until they are read away;
// other messages go after a while, unless the pointer or the focus is on them.
import { ApiError } from "../api/client";
import { Unreachable } from "../api/transport";
import { m } from "../i18n";
import { each, h } from "./dom";
import { icon } from "./icons";
import { signal } from "./reactive";

export interface Toast {
  id: number;
  kind: "error" | "info" | "done";
  title: string;
  /** The engine's own words, which are English. */
  detail?: string;
  action?: { label: string; run(): void };
}

const list = signal<Toast[]>([]);
let next = 1;
const shownMs = 7000;

export function toast(t: Omit<Toast, "id">): void {
  const same = list.peek().find((o) => o.title === t.title && o.detail === t.detail);
  if (same) return;
  const id = next++;
  list.update((old) => [...old.slice(-4), { ...t, id }]);
  if (t.kind !== "error") setTimeout(() => leave(id), shownMs);
}

function leave(id: number): void {
  const node = document.getElementById(`toast-${id}`);
  if (node?.matches(":hover, :focus-within")) setTimeout(() => leave(id), 1500);
  else close(id);
}

function close(id: number): void {
  list.update((old) => old.filter((o) => o.id !== id));
}

/** Says in the language of the page what went wrong; what is canceled is not an error. */
export function showError(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  toast({ kind: "error", ...describeError(error) });
}

export function describeError(error: unknown): { title: string; detail?: string } {
  if (error instanceof ApiError) {
    const known = (m.errors as Record<string, string>)[error.code];
    return { title: known ?? m.errors.internal, detail: error.message };
  }
  if (error instanceof Unreachable) return { title: m.errors.unreachable, detail: error.message };
  return { title: m.errors.internal, detail: error instanceof Error ? error.message : String(error) };
}

export function toasts(): Element {
  return h(
    "div.toasts",
    { role: "region", "aria-label": m.common.messages },
    each(
      list,
      (t) => String(t.id),
      (item) => {
        const t = item.peek();
        return h(
          `div.toast.${t.kind}`,
          { id: `toast-${t.id}`, role: t.kind === "error" ? "alert" : "status" },
          h("div.toast-body", h("strong", t.title), t.detail ? h("p", { lang: "en" }, t.detail) : null),
          t.action
            ? h("button.btn.small", { type: "button", onclick: () => (t.action!.run(), close(t.id)) }, t.action.label)
            : null,
          h(
            "button.btn.icon.quiet",
            { type: "button", "aria-label": m.common.dismiss, onclick: () => close(t.id) },
            icon("close"),
          ),
        );
      },
    ),
  );
}
