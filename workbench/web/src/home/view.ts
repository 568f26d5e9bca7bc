// The overview: the demo for a first visit, and everything that there is.
import type { Model, Run } from "../api/types";
import { fmt, m } from "../i18n";
import { loadData } from "../tokenizer/data";
import { addTexts } from "../tokenizer/texts";
import { loadTokenizer } from "../tokenizer/train";
import { api, status } from "../state/engine";
import { isActive, jobOf, models, refresh, runs, touchStatus } from "../state/lists";
import { type Child, h } from "../ui/dom";
import { dropZone, type Picked } from "../ui/drop";
import { jobView } from "../ui/job";
import { action, badge, card, confirm, empty, iconButton, progress } from "../ui/parts";
import { computed } from "../ui/reactive";
import { link } from "../ui/router";
import { table } from "../ui/table";
import { continueDemo, demo } from "./demo";
import { demoCard, hero } from "./hero";
import { downloadDialog, importModel } from "./models";

export function homeView(): Child {
  continueDemo();
  const first = computed(() => runs().length === 0 && models().length === 0);
  const demoing = computed(() => demo() !== undefined);
  return () =>
    demoing()
      ? [demoCard(), first() ? null : shelves()]
      : first()
        ? [hero(true), importCard()]
        : [h("header.view-head", h("h1", m.home.title)), shelves(), hero(false)];
}

function shelves(): Child {
  return [runsCard(), modelsCard(), importCard()];
}

function runsCard(): Element {
  return card(
    m.train.runs,
    () => (runs().length === 0 ? empty(m.train.noRuns) : null),
    table<Run>(m.train.runs, runs, (r) => r.name, [
      { head: m.common.name, kind: "main", cell: (r) => h("a", { href: link("train", r().name) }, r().name) },
      {
        head: m.train.state,
        cell: (r) => [
          badge(m.states[r().state], () => r().state),
          isActive(r())
            ? progress(
                m.train.progress,
                () => r().step,
                () => r().last_step,
              )
            : null,
        ],
      },
      { head: m.train.step, kind: "num", cell: (r) => fmt.number(r().step) },
      { head: m.charts.loss, kind: "num", cell: (r) => fmt.fixed(r().val_loss || r().loss || NaN, 3) },
      { head: m.train.size, kind: "num", cell: (r) => fmt.compact(r().params) },
      { head: m.train.disk, kind: "num", cell: (r) => fmt.bytes(r().bytes) },
      {
        head: m.train.age,
        kind: "num",
        cell: (r) => h("time", { datetime: r().created, title: fmt.moment(r().created) }, fmt.ago(r().created)),
      },
    ]),
  );
}

function modelsCard(): Element {
  return card(
    m.models.title,
    () => (models().length === 0 ? empty(m.models.none) : null),
    table<Model>(m.models.title, models, (x) => x.name, [
      { head: m.common.name, kind: "main", cell: (x) => h("a", { href: link("generate", x().name) }, x().name) },
      { head: m.train.size, kind: "num", cell: (x) => fmt.compact(x().params) },
      { head: m.charts.loss, kind: "num", cell: (x) => fmt.fixed(x().val_loss || x().loss || NaN, 3) },
      { head: m.train.disk, kind: "num", cell: (x) => fmt.bytes(x().bytes) },
      {
        head: m.train.age,
        kind: "num",
        cell: (x) => h("time", { datetime: x().created, title: fmt.moment(x().created) }, fmt.ago(x().created)),
      },
      {
        head: m.common.actions,
        kind: "actions",
        cell: (x) => [
          h("a.btn.small", { href: link("generate", x().name) }, m.train.write),
          iconButton("download", m.common.downloadOf(x().name), () => downloadDialog(x().name)),
          x().run ? null : iconButton("trash", m.common.deleteOf(x().name), () => removeModel(x().name)),
        ],
      },
    ]),
  );
}

async function removeModel(name: string): Promise<void> {
  if (!(await confirm(m.common.deleteOf(name), m.common.deleteText, m.common.delete))) return;
  await api.deleteModel(name);
  await refresh("models");
  touchStatus();
}

/** One place to drop anything: the ending says what it is. */
function importCard(): Element {
  return card(
    m.home.import,
    dropZone({ text: m.home.importText, accept: ".llm,.zip,.bin,.json,.txt,.md,.jsonl,.parquet,.gz,.zst", take: importAny }),
    jobView(() => jobOf("import"), m.models.importing),
    h("p.muted", () =>
      status()
        ? m.home.used(fmt.bytes(status()!.storage.used), status()!.storage.free > 0 ? fmt.bytes(status()!.storage.free) : "")
        : "",
    ),
    h(
      "div.row",
      action(m.home.toTexts, () => void (location.hash = link("tokenizer")), { class: "small" }),
    ),
  );
}

function importAny(picked: Picked): Promise<void> {
  const ending = /\.([a-z0-9]+)$/i.exec(picked.files[0]!.path)?.[1]?.toLowerCase();
  if (ending === "llm" || ending === "zip") return importModel(picked);
  if (ending === "bin") return loadData(picked);
  if (ending === "json") return loadTokenizer(picked);
  return addTexts(picked);
}
