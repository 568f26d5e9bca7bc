// The texts: dropped, pasted or the sample, and which of them are used.
import type { Text } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { upload } from "../state/leave";
import { refresh, texts, touchStatus } from "../state/lists";
import { type Child, each, h } from "../ui/dom";
import { dropZone, type Picked } from "../ui/drop";
import { action, card, confirm, dialog, iconButton, newId, progress } from "../ui/parts";
import { signal } from "../ui/reactive";
import { toast } from "../ui/toast";
import { freeName, toName } from "../util/names";
import { chosenTexts, tick } from "./state";

/** Files of the upload that is going on. */
const uploading = signal<{ done: number; total: number; label: string } | undefined>(undefined);

export function textsCard(): Element {
  return card(
    m.tokenizer.texts,
    dropZone({
      text: m.tokenizer.drop,
      multiple: true,
      folders: true,
      more: action(m.tokenizer.paste, () => pasteDialog(), { icon: "paste", class: "small" }),
      take: addTexts,
    }),
    uploadProgress(),
    h(
      "ul.choices",
      each(
        texts,
        (t) => t.name,
        (t) => textRow(t),
      ),
    ),
  );
}

function uploadProgress(): Child {
  return () => {
    const now = uploading();
    if (!now) return null;
    return h(
      "div.job",
      h("p", m.tokenizer.uploading(fmt.number(now.done), fmt.number(now.total), now.label)),
      progress(
        m.tokenizer.uploadProgress,
        () => uploading()?.done ?? 0,
        () => uploading()?.total ?? 0,
      ),
    );
  };
}

/** Sends what came together as one text. */
export async function addTexts(picked: Picked): Promise<void> {
  const name = freeName(
    toName(picked.label),
    texts.peek().map((t) => t.name),
  );
  const total = picked.files.length;
  try {
    await upload(async () => {
      for (const [i, { path, file }] of picked.files.entries()) {
        uploading.set({ done: i, total, label: path });
        await api.putText(name, path.split("/").pop()!, file, i > 0);
      }
    });
  } finally {
    uploading.set(undefined);
    await refresh("texts");
    touchStatus();
  }
  tick(name, true);
  toast({ kind: "done", title: m.tokenizer.added(name, fmt.number(total)) });
}

function textRow(text: () => Text): Element {
  const { name } = text();
  const id = newId("t");
  return h(
    "li.choice",
    h("input", {
      type: "checkbox",
      id,
      checked: () => chosenTexts().includes(name),
      onchange: (e: Event) => tick(name, (e.target as HTMLInputElement).checked),
    }),
    h(
      "label",
      { for: id },
      () => (text().sample ? m.tokenizer.sample : name),
      h("small", () => textFacts(text())),
    ),
    iconButton("file", m.tokenizer.look(name), () => previewDialog(name)),
    () => (text().sample ? null : iconButton("trash", m.common.deleteOf(name), () => removeText(name))),
  );
}

function textFacts(text: Text): string {
  // The sample has no size before it is first used.
  const parts = text.bytes > 0 ? [fmt.bytes(text.bytes)] : [];
  if (text.documents > 0) parts.push(m.tokenizer.documents(text.documents, fmt.number(text.documents)));
  if (text.format !== "text") parts.push(text.format);
  return parts.join(" · ");
}

async function removeText(name: string): Promise<void> {
  if (!(await confirm(m.common.deleteOf(name), m.common.deleteText, m.common.delete))) return;
  await api.deleteText(name);
  tick(name, false);
  await refresh("texts");
  touchStatus();
}

async function previewDialog(name: string): Promise<void> {
  const start = await api.previewText(name, 8192);
  dialog(name, () => h("pre.preview", { tabindex: 0, translate: "no" }, start));
}

function pasteDialog(): void {
  dialog(m.tokenizer.paste, (close) => {
    const nameId = newId();
    const textId = newId();
    const name = h("input", {
      type: "text",
      id: nameId,
      value: freeName(
        m.tokenizer.pastedName,
        texts.peek().map((t) => t.name),
      ),
      autocomplete: "off",
    });
    const area = h("textarea", { id: textId, rows: 10 });
    const add = async () => {
      if (area.value.trim() === "") return void area.focus();
      await addTexts({
        label: name.value,
        files: [{ path: "pasted.txt", file: new File([area.value], "pasted.txt", { type: "text/plain" }) }],
      });
      close();
    };
    return [
      h("div.field", h("label", { for: nameId }, m.common.name), name),
      h("div.field", h("label", { for: textId }, m.tokenizer.pasteText), area),
      h("div.row.end", action(m.tokenizer.addText, add, { class: "primary" })),
    ];
  });
}
