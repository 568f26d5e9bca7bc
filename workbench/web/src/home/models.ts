// Downloading and importing models.
import { filePaths } from "../api/client";
import type { Model } from "../api/types";
import { m } from "../i18n";
import { api } from "../state/engine";
import { upload } from "../state/leave";
import { finished, models, refresh, runs, touchStatus } from "../state/lists";
import { h } from "../ui/dom";
import type { Picked } from "../ui/drop";
import { action, dialog, field, segmented, select } from "../ui/parts";
import { signal } from "../ui/reactive";
import { download } from "../ui/save";
import { toast } from "../ui/toast";
import { freeName, toName } from "../util/names";

type Format = "llm" | "hf" | "gguf";

const endings: Record<Format, string> = { llm: ".llm", hf: ".zip", gguf: ".gguf" };
const types: Record<Format, string[]> = { llm: [], hf: ["f32", "f16", "bf16"], gguf: ["f32", "f16", "q8_0"] };

/** Asks for the format and saves the file. */
export function downloadDialog(name: string): void {
  const format = signal<Format>("llm");
  const type = signal("f32");
  const save = () =>
    download(
      filePaths.model(name, format.peek(), types[format.peek()].length > 0 ? type.peek() : undefined),
      name + endings[format.peek()],
    );
  const formats = (Object.keys(endings) as Format[]).map((f) => [f, m.models.formats[f][0]] as [string, string]);
  dialog(m.models.downloadOf(name), (close) => [
    segmented(m.models.format, formats, format, (v) => (type.set("f32"), format.set(v as Format))),
    h("p.help", () => m.models.formats[format()][1]),
    () =>
      types[format()].length > 0
        ? field({ label: m.models.type, help: m.models.typeHelp }, (a) =>
            select(
              types[format()].map((t) => [t, t]),
              type,
              type.set,
              a,
            ),
          )
        : null,
    h(
      "div.row.end",
      action(m.models.download, async () => (await save(), close()), { icon: "download", class: "primary" }),
    ),
  ]);
}

/** Imports a .llm file or a zipped Hugging Face folder. */
export async function importModel(picked: Picked): Promise<void> {
  const { path, file } = picked.files[0]!;
  const taken = [...models.peek(), ...runs.peek()].map((x) => x.name);
  const name = freeName(toName(path, "model"), taken);
  const job = await upload(() => api.importModel(name, file.name, file));
  const made = await finished<Model>(job);
  await refresh("models");
  touchStatus();
  toast({ kind: "done", title: m.models.imported(made?.name ?? name) });
}
