// A strip of tokens: coloured or shaded pieces of text, each of which shows what
// is behind it when the pointer or the focus is on it. Arrow keys move along.
import { type Child, h } from "./dom";
import { newId } from "./parts";
import { onCleanup, root } from "./reactive";

export interface StripToken {
  text: string;
  class?: string;
  /** Strength of the shade, from 0 to 1. */
  shade?: number;
}

export interface StripOptions {
  label: string;
  /** Shows blanks and line ends as signs. */
  marks?: boolean;
  /** What the box beside token i says. */
  inspect(i: number): Child;
}

export interface Strip {
  element: HTMLElement;
  append(tokens: StripToken[]): void;
  /** Shows these tokens instead, keeping the spans at the start that stay as they are. */
  replace(tokens: StripToken[]): void;
  clear(): void;
}

/** Tokens that are added in one frame; more would hold it up. */
const perFrameTokens = 400;

export function tokenStrip(options: StripOptions): Strip {
  const id = newId("strip");
  const tokens = h("div.tokens", {
    role: "listbox",
    "aria-label": options.label,
    "aria-orientation": "horizontal",
    translate: "no",
    class: options.marks ? "marks" : "",
  });
  const box = h("div.token-box", { hidden: true, id: `${id}-box`, role: "status" });
  const element = h("div.strip", tokens, box);
  let count = 0;
  let current = -1;
  let endBox = () => {};

  const spanOf = (target: EventTarget | null) => (target as Element | null)?.closest?.<HTMLElement>(".tok") ?? null;
  const show = (span: HTMLElement | null) => {
    if (!span || !tokens.contains(span)) return;
    const i = Number(span.dataset.i);
    if (i === current && !box.hidden) return;
    select(i);
    endBox();
    const [content, end] = root(() => h("div", options.inspect(i)));
    endBox = end;
    box.replaceChildren(content);
    box.hidden = false;
    position(box, span, element);
  };
  const select = (i: number) => {
    const before = tokens.querySelector<HTMLElement>('[tabindex="0"]');
    before?.setAttribute("tabindex", "-1");
    before?.setAttribute("aria-selected", "false");
    const now = tokens.children[i] as HTMLElement | undefined;
    now?.setAttribute("tabindex", "0");
    now?.setAttribute("aria-selected", "true");
    current = i;
  };
  const hide = () => {
    box.hidden = true;
    current = -1;
  };

  tokens.addEventListener("pointerover", (e) => show(spanOf(e.target)));
  tokens.addEventListener("focusin", (e) => show(spanOf(e.target)));
  element.addEventListener("pointerleave", hide);
  element.addEventListener("focusout", (e) => !element.contains(e.relatedTarget as Node | null) && hide());
  tokens.addEventListener("keydown", (e) => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10, Home: -count, End: count };
    const step = steps[e.key];
    if (e.key === "Escape") return hide();
    if (step === undefined) return;
    e.preventDefault();
    const from = Number(spanOf(e.target)?.dataset.i ?? 0);
    (tokens.children[Math.max(0, Math.min(count - 1, from + step))] as HTMLElement | undefined)?.focus();
  });
  onCleanup(() => endBox());

  let shown: StripToken[] = [];
  let waiting: StripToken[] = [];
  const append = (list: StripToken[]) => {
    const fragment = document.createDocumentFragment();
    for (const token of list) fragment.append(tokenSpan(token, count++, options.marks ?? false));
    tokens.append(fragment);
    shown.push(...list);
  };
  const appendSome = () => {
    append(waiting.splice(0, perFrameTokens));
    if (waiting.length > 0) requestAnimationFrame(appendSome);
  };
  const cut = (to: number) => {
    while (tokens.childElementCount > to) tokens.lastElementChild!.remove();
    shown.length = Math.min(shown.length, to);
    count = shown.length;
    hide();
  };

  return {
    element,
    append,
    replace(list) {
      const idle = waiting.length === 0;
      let same = 0;
      while (
        same < shown.length &&
        same < list.length &&
        shown[same]!.text === list[same]!.text &&
        shown[same]!.class === list[same]!.class
      )
        same++;
      cut(same);
      waiting = list.slice(same);
      if (idle) appendSome();
    },
    clear() {
      waiting = [];
      cut(0);
    },
  };
}

function tokenSpan(token: StripToken, i: number, marks: boolean): HTMLElement {
  const span = document.createElement("span");
  span.className = "tok " + (token.class ?? "");
  span.dataset.i = String(i);
  span.setAttribute("role", "option");
  span.setAttribute("aria-selected", "false");
  span.tabIndex = i === 0 ? 0 : -1;
  if (token.shade !== undefined) span.style.setProperty("--shade", `${Math.round(token.shade * 100)}%`);
  span.textContent = token.text === "" ? "\u200b" : marks ? visible(token.text) : token.text;
  if (token.text === "") span.classList.add("part");
  // A blank has a name too, for those who hear the page.
  if (token.text.trim() === "") span.setAttribute("aria-label", JSON.stringify(token.text));
  return span;
}

/** Blanks as points and line ends as arrows, with the line break behind them. */
function visible(text: string): string {
  return text.replace(/ /g, "·").replace(/\t/g, "→\t").replace(/\r/g, "␍").replace(/\n/g, "↵\n");
}

/** Puts the box under the token, inside the strip. */
function position(box: HTMLElement, span: HTMLElement, within: HTMLElement): void {
  const area = within.getBoundingClientRect();
  const lines = span.getClientRects();
  const at = lines[0] ?? span.getBoundingClientRect();
  const left = Math.max(0, Math.min(at.left - area.left, area.width - box.offsetWidth));
  box.style.left = `${left}px`;
  box.style.top = `${at.bottom - area.top + within.scrollTop + 6}px`;
}
