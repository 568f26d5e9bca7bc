// A list of things as a table, which becomes a stack of cards on a phone.
import { type Child, each, h } from "./dom";
import type { Readable } from "./reactive";

export interface ColumnOf<T> {
  head: string;
  cell(item: Readable<T>): Child;
  /** "num" aligns to the right, "main" heads the card on a phone, "actions" has buttons. */
  kind?: "num" | "main" | "actions";
}

export function table<T>(caption: string, items: () => T[], key: (item: T) => string, columns: ColumnOf<T>[]): Element {
  return h(
    "table.list",
    h("caption.visually-hidden", caption),
    h(
      "thead",
      h(
        "tr",
        columns.map((c) =>
          h("th", { scope: "col", class: c.kind ?? "" }, c.kind === "actions" ? h("span.visually-hidden", c.head) : c.head),
        ),
      ),
    ),
    h(
      "tbody",
      each(items, key, (item) =>
        h(
          "tr",
          columns.map((c) =>
            c.kind === "main"
              ? h("th", { scope: "row", class: "main" }, () => c.cell(item))
              : h("td", { class: c.kind ?? "", "data-label": c.head }, () => c.cell(item)),
          ),
        ),
      ),
    ),
  );
}
