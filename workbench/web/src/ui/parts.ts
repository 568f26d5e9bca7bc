// The page's parts: fields with help and error, progress, dialogs, drop zones.
import { m } from "../i18n";
import { type Attributes, type Child, h } from "./dom";
import { icon, type IconName } from "./icons";
import { computed, root, signal } from "./reactive";
import { showError } from "./toast";

let serial = 0;
/** An id for labels and descriptions. */
export function newId(prefix = "f"): string {
  return `${prefix}${++serial}`;
}

/** A button that is busy while its action runs and shows what goes wrong. */
export function action(label: Child, run: () => unknown, attributes: Attributes & { icon?: IconName } = {}): HTMLButtonElement {
  const busy = signal(false);
  const { icon: name, disabled, class: extra, ...rest } = attributes;
  const off = () => busy() || (typeof disabled === "function" ? Boolean((disabled as () => unknown)()) : Boolean(disabled));
  return h(
    "button.btn",
    {
      type: "button",
      class: extra as string,
      ...rest,
      disabled: off,
      "aria-busy": () => (busy() ? "true" : undefined),
      onclick: async () => {
        if (busy.peek()) return;
        busy.set(true);
        try {
          await run();
        } catch (error) {
          showError(error);
        } finally {
          busy.set(false);
        }
      },
    },
    name ? icon(name) : null,
    label === "" ? null : h("span", label),
  );
}

/** A button that shows only an icon and is named by its label. */
export function iconButton(name: IconName, label: string, run: () => unknown, attributes: Attributes = {}): HTMLButtonElement {
  return action("", run, {
    icon: name,
    "aria-label": label,
    title: label,
    ...attributes,
    class: `icon quiet ${attributes.class ?? ""}`,
  });
}

export interface FieldOptions {
  label: string;
  help?: Child;
  error?: () => Child;
  /** Beside the label: a unit, the effect of the setting. */
  note?: Child;
  class?: string;
}

/**
 * A label, a control, its help and its error, tied together for screen
 * readers. make gets the attributes that the control must carry.
 */
export function field(options: FieldOptions, make: (attributes: Attributes) => Element): Element {
  const id = newId();
  const error = options.error ?? (() => undefined);
  const described = () => [options.help ? `${id}-help` : "", error() ? `${id}-error` : ""].join(" ").trim() || undefined;
  const attributes: Attributes = { id, "aria-describedby": described, "aria-invalid": () => (error() ? "true" : undefined) };
  return h(
    "div.field",
    { class: options.class },
    h("div.field-head", h("label", { for: id }, options.label), options.note ? h("span.field-note", options.note) : null),
    make(attributes),
    options.help ? h("p.help", { id: `${id}-help` }, options.help) : null,
    () => (error() ? h("p.field-error", { id: `${id}-error`, role: "alert" }, error()) : null),
  );
}

/** Options as [value, text] for a select. */
export function select(
  options: [string, string][],
  value: () => string,
  change: (value: string) => void,
  attributes: Attributes = {},
): HTMLElement {
  return h(
    "div.select",
    h(
      "select",
      { ...attributes, value, onchange: (e: globalThis.Event) => change((e.target as HTMLSelectElement).value) },
      options.map(([v, text]) => h("option", { value: v }, text)),
    ),
    icon("down"),
  );
}

/** A box to tick, with its text and an optional sentence of help. */
export function check(
  label: Child,
  value: () => boolean,
  change: (on: boolean) => void,
  help?: Child,
  attributes: Attributes = {},
): Element {
  const id = newId();
  return h(
    "div.check",
    h("input", {
      type: "checkbox",
      id,
      checked: value,
      "aria-describedby": help ? `${id}-help` : undefined,
      ...attributes,
      onchange: (e: globalThis.Event) => change((e.target as HTMLInputElement).checked),
    }),
    h("div", h("label", { for: id }, label), help ? h("p.help", { id: `${id}-help` }, help) : null),
  );
}

/** One choice of a few, as a row of radio buttons that looks like a switch. */
export function segmented(
  label: string,
  options: [string, Child][],
  value: () => string,
  change: (value: string) => void,
): Element {
  const name = newId("seg");
  return h(
    "div.segmented",
    { role: "radiogroup", "aria-label": label },
    options.map(([v, text]) =>
      h(
        "label",
        h("input", { type: "radio", name, value: v, checked: () => value() === v, onchange: () => change(v) }),
        h("span", text),
      ),
    ),
  );
}

/** Progress as a row of weft that fills; without a total it only moves. */
export function progress(label: string, done: () => number, total: () => number): Element {
  const share = computed(() => (total() > 0 ? Math.min(1, done() / total()) : -1));
  return h(
    "div.progress",
    {
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": () => (share() < 0 ? undefined : Math.round(share() * 100)),
      class: () => (share() < 0 ? "unknown" : ""),
    },
    h("div.progress-fill", { style: { transform: () => `scaleX(${share() < 0 ? 1 : share()})` } }),
  );
}

/** Opens a dialog; content gets the function that closes it. `closed` is told when it is gone. */
export function dialog(title: string, content: (close: () => void) => Child, closed?: () => void): void {
  const id = newId("d");
  const before = document.activeElement as HTMLElement | null;
  const [element, end] = root(() => {
    const shell: HTMLDialogElement = h("dialog.dialog", {
      "aria-labelledby": id,
      onclick: (e: globalThis.Event) => e.target === shell && shell.close(),
    });
    shell.append(
      h(
        "div.dialog-inner",
        h(
          "header",
          h("h2", { id }, title),
          iconButton("close", m.common.close, () => shell.close()),
        ),
        content(() => shell.close()),
      ),
    );
    return shell;
  });
  element.addEventListener("close", () => {
    end();
    element.remove();
    before?.focus?.();
    closed?.();
  });
  document.body.append(element);
  element.showModal();
}

/** Asks before something is lost; true when the person agrees. */
export function confirm(title: string, text: string, yes: string): Promise<boolean> {
  return new Promise((resolve) => {
    const content = (close: () => void) => [
      h("p", text),
      h(
        "div.row.end",
        h("button.btn", { type: "button", onclick: close }, m.common.cancel),
        h("button.btn.danger", { type: "button", onclick: () => (resolve(true), close()) }, yes),
      ),
    ];
    dialog(title, content, () => resolve(false));
  });
}

/** A panel with a heading; `id` gives the heading an anchor. */
export function card(title: Child, ...content: Child[]): HTMLElement {
  const id = newId("h");
  return h("section.card", { "aria-labelledby": id }, h("header.card-head", h("h2", { id }, title)), content);
}

/** Says that there is nothing yet, and what to do. */
export function empty(text: Child): Element {
  return h("p.empty", text);
}

/** A number and what it is. */
export function stat(label: string, value: Child, title?: string): Element {
  return h("div.stat", { title }, h("dt", label), h("dd", value));
}

/** The words of the engine, which are English whatever the page speaks. */
export function engineWords(text: string): Element {
  return h("span", { lang: "en" }, text);
}

export function badge(text: Child, kind: () => string): Element {
  return h("span.badge", { class: kind }, text);
}

/** A disclosure that remembers nothing. */
export function details(summary: Child, ...content: Child[]): HTMLElement {
  return h("details.details", h("summary", h("span", summary), icon("down")), h("div.details-body", content));
}
