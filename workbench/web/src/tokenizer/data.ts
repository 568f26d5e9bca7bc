// Token files: building them from the chosen texts, and those that there are.
import { filePaths } from "../api/client";
import type { Data } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { upload } from "../state/leave";
import { data, finished, jobOf, refresh, touchStatus } from "../state/lists";
import { each, h } from "../ui/dom";
import { dropZone, type Picked } from "../ui/drop";
import { jobView } from "../ui/job";
import { action, card, check, confirm, details, empty, field, iconButton } from "../ui/parts";
import { signal } from "../ui/reactive";
import { type Refusal, refusalOf, refusalText } from "../ui/refusal";
import { link } from "../ui/router";
import { download } from "../ui/save";
import { toast } from "../ui/toast";
import { freeName, toName } from "../util/names";
import { choose } from "../train/choose";
import { chosenTexts, dataForm, tokenizerName } from "./state";

const refused = signal<Refusal | undefined>(undefined);

export function dataCard(): Element {
  return card(
    m.data.title,
    h("p", m.data.lead),
    details(
      m.tokenizer.more,
      nameField(),
      check(m.data.split, dataForm.split, dataForm.split.set, m.data.splitHelp),
      check(m.data.dedupe, dataForm.dedupe, dataForm.dedupe.set, m.data.dedupeHelp),
      check(m.data.skipBad, dataForm.skipBad, dataForm.skipBad.set, m.data.skipBadHelp),
    ),
    () => (jobOf("data")?.state === "running" ? null : startRow()),
    jobView(() => jobOf("data"), m.data.building),
    () => (data().length === 0 ? empty(m.data.none) : null),
    h(
      "ul.choices",
      each(
        data,
        (d) => d.name,
        (d) => dataRow(d),
      ),
    ),
    dropZone({ text: m.data.load, accept: ".bin", take: loadData }),
  );
}

function startRow(): Element {
  const ready = () => chosenTexts().length > 0 && tokenizerName() !== "";
  return h(
    "div.row",
    action(m.data.build, build, { icon: "play", class: "primary", disabled: () => !ready() }),
    h("span.muted", () => (tokenizerName() ? m.data.from(chosenTexts().length, tokenizerName()) : m.data.needTokenizer)),
  );
}

function nameField(): Element {
  const error = () => (refused()?.field === "name" ? refusalText(refused()!) : undefined);
  return field({ label: m.common.name, error }, (attributes) =>
    h("input", {
      ...attributes,
      type: "text",
      autocomplete: "off",
      placeholder: suggestedName,
      value: dataForm.name,
      oninput: (e: Event) => dataForm.name.set((e.target as HTMLInputElement).value),
    }),
  );
}

function suggestedName(): string {
  return freeName(
    tokenizerName() || "data",
    data().map((d) => d.name),
  );
}

async function build(): Promise<void> {
  refused.set(undefined);
  try {
    const job = await api.buildData({
      name: dataForm.name.peek().trim() || suggestedName(),
      texts: chosenTexts(),
      tokenizer: tokenizerName(),
      split: dataForm.split.peek(),
      dedupe: dataForm.dedupe.peek(),
      skip_bad: dataForm.skipBad.peek(),
    });
    void finished<Data>(job).then(built, () => {});
  } catch (error) {
    const refusal = refusalOf(error);
    if (refusal?.field !== "name") throw error;
    refused.set(refusal);
  }
}

async function built(made: Data): Promise<void> {
  dataForm.name.set("");
  await refresh("data");
  touchStatus();
  choose(made.name);
  toast({
    kind: "done",
    title: m.data.built(made.name, fmt.compact(made.tokens)),
    action: { label: m.data.toTrain, run: () => (location.hash = link("train")) },
  });
}

function dataRow(item: () => Data): Element {
  const { name } = item();
  const facts = () =>
    [
      m.data.tokens(fmt.compact(item().tokens)),
      m.tokenizer.documents(item().documents, fmt.number(item().documents)),
      fmt.bytes(item().bytes),
    ].join(" · ");
  return h(
    "li.choice.plain",
    h("div.choice-text", h("strong", name), h("small", facts)),
    h("a.btn.small", { href: link("train"), onclick: () => choose(name) }, m.data.toTrain),
    iconButton("download", m.common.downloadOf(name), () => download(filePaths.data(name), `${name}.bin`)),
    iconButton("trash", m.common.deleteOf(name), () => removeData(name)),
  );
}

async function removeData(name: string): Promise<void> {
  if (!(await confirm(m.common.deleteOf(name), m.common.deleteText, m.common.delete))) return;
  await api.deleteData(name);
  await refresh("data");
  touchStatus();
}

export async function loadData(picked: Picked): Promise<void> {
  const { path, file } = picked.files[0]!;
  const name = freeName(
    toName(path, "data"),
    data.peek().map((d) => d.name),
  );
  await upload(() => api.putData(name, file));
  await refresh("data");
  touchStatus();
  toast({ kind: "done", title: m.data.loaded(name) });
}
