// Building the page: h makes elements, and any attribute or child that is a
// function is kept up to date by an effect. each keeps a keyed list.
import { effect, onCleanup, type Readable, root, signal, untrack } from "./reactive";

export type Child = Node | string | number | boolean | null | undefined | Child[] | (() => Child);
type Value = string | number | boolean | null | undefined;
export type Attributes = {
  [name: string]: Value | (() => Value) | ((event: never) => unknown) | Record<string, Value | (() => Value)>;
};

/**
 * h("button.primary", {onclick, disabled: () => busy()}, "Start") makes an
 * element. Names with on… are listeners; `value`, `checked`, `selected` and
 * `indeterminate` are set as properties; style may be an object.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K | `${K}.${string}`,
  ...rest: (Attributes | Child)[]
): HTMLElementTagNameMap[K] {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name!) as HTMLElementTagNameMap[K];
  fill(element, classes, rest);
  return element;
}

const svgSpace = "http://www.w3.org/2000/svg";

/** s is h for SVG. */
export function s(tag: string, ...rest: (Attributes | Child)[]): SVGElement {
  const [name, ...classes] = tag.split(".");
  const element = document.createElementNS(svgSpace, name!);
  fill(element, classes, rest);
  return element;
}

function fill(element: Element, classes: string[], rest: (Attributes | Child)[]): void {
  if (classes.length > 0) element.setAttribute("class", classes.join(" "));
  const [first] = rest;
  const hasAttributes = typeof first === "object" && first !== null && !(first instanceof Node) && !Array.isArray(first);
  // Children come first: the value of a select needs its options.
  append(element, (hasAttributes ? rest.slice(1) : rest) as Child[]);
  if (hasAttributes) for (const [key, value] of Object.entries(first as Attributes)) setAttribute(element, classes, key, value);
}

function setAttribute(element: Element, classes: string[], key: string, value: unknown): void {
  if (key.startsWith("on") && typeof value === "function") {
    element.addEventListener(key.slice(2), value as EventListener);
  } else if (key === "ref") {
    (value as unknown as (e: Element) => void)(element);
  } else if (key === "style" && typeof value === "object" && value !== null) {
    for (const [property, v] of Object.entries(value)) {
      keep(v, (now) => (element as HTMLElement).style.setProperty(property, now == null ? "" : String(now)));
    }
  } else if (key === "class") {
    keep(value, (now) => element.setAttribute("class", [...classes, now || ""].join(" ").trim()));
  } else {
    keep(value, (now) => apply(element, key, now as Value));
  }
}

function keep(value: unknown, use: (now: unknown) => void): void {
  if (typeof value === "function") effect(() => use((value as () => unknown)()));
  else use(value);
}

const properties = new Set(["value", "checked", "selected", "indeterminate", "open", "scrollTop"]);

function apply(element: Element, key: string, now: Value): void {
  if (properties.has(key)) {
    const target = element as unknown as Record<string, unknown>;
    if (target[key] !== now) target[key] = now ?? "";
  } else if (now === false || now === null || now === undefined) {
    // aria-* wants the word "false", not absence.
    if (key.startsWith("aria-") && now === false) element.setAttribute(key, "false");
    else element.removeAttribute(key);
  } else {
    element.setAttribute(key, now === true ? (key.startsWith("aria-") ? "true" : "") : String(now));
  }
}

/** Appends children; a function becomes a place whose content follows it. */
export function append(parent: Node, children: Child | Child[]): void {
  for (const child of Array.isArray(children) ? children : [children]) {
    if (Array.isArray(child)) append(parent, child);
    else if (typeof child === "function") place(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== null && child !== undefined && typeof child !== "boolean")
      parent.appendChild(document.createTextNode(String(child)));
  }
}

// A place lies between two comments, so that whatever nested places and lists
// put there later goes with it.
function place(parent: Node, content: () => Child): void {
  const start = document.createComment("");
  const end = document.createComment("");
  parent.appendChild(start);
  parent.appendChild(end);
  effect(() => {
    const child = content();
    const only = start.nextSibling;
    // Most places are one text: change it where it stands.
    if ((typeof child === "string" || typeof child === "number") && only instanceof Text && only.nextSibling === end) {
      if (only.data !== String(child)) only.data = String(child);
      return;
    }
    while (start.nextSibling !== end) start.nextSibling!.remove();
    const fragment = document.createDocumentFragment();
    append(fragment, child);
    end.parentNode!.insertBefore(fragment, end);
  });
}

/**
 * each keeps one node for each item of a list, found again by key, so that a
 * change of one item rebuilds nothing else. The item comes as a signal.
 */
export function each<T>(
  items: () => T[],
  key: (item: T) => string,
  render: (item: Readable<T>, key: string) => Element,
): () => Child {
  return () => {
    const end = document.createComment("");
    const rows = new Map<string, { node: Element; item: ReturnType<typeof signal<T>>; end: () => void }>();
    onCleanup(() => {
      for (const row of rows.values()) {
        row.end();
        row.node.remove();
      }
    });
    const fragment = document.createDocumentFragment();
    fragment.appendChild(end);
    effect(() => {
      const list = items();
      const seen = new Set<string>();
      let before: ChildNode = end;
      for (let i = list.length - 1; i >= 0; i--) {
        const k = key(list[i]!);
        if (seen.has(k)) continue;
        seen.add(k);
        let row = rows.get(k);
        if (row) row.item.set(list[i]!);
        else {
          const item = signal(list[i]!);
          const [node, done] = untrack(() => root(() => render(item, k)));
          row = { node, item, end: done };
          rows.set(k, row);
        }
        if (row.node.nextSibling !== before || row.node.parentNode !== end.parentNode)
          end.parentNode!.insertBefore(row.node, before);
        before = row.node as ChildNode;
      }
      for (const [k, row] of rows) {
        if (seen.has(k)) continue;
        row.end();
        row.node.remove();
        rows.delete(k);
      }
    });
    return fragment;
  };
}

/** Listens on a target for as long as the effect or root around it lives. */
export function listen(target: EventTarget, type: string, f: (event: Event) => void, options?: AddEventListenerOptions): void {
  target.addEventListener(type, f, options);
  onCleanup(() => target.removeEventListener(type, f, options));
}

/** Calls f every ms while the effect or root around it lives. */
export function every(ms: number, f: () => void): void {
  const timer = setInterval(f, ms);
  onCleanup(() => clearInterval(timer));
}
