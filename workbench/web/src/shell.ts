// The frame of the page: head with the three tabs, notices about the place, the
// view, and the messages.
import { generateView } from "./generate/view";
import { homeView } from "./home/view";
import { fmt, language, m, setLanguage } from "./i18n";
import { placeBadge, placeNotices } from "./place";
import { connect, enterToken, failure, lost, phase, place } from "./state/engine";
import { data, isActive, loaded, models, runs, tokenizers } from "./state/lists";
import { tokenizerView } from "./tokenizer/view";
import { trainView } from "./train/view";
import { type Child, h } from "./ui/dom";
import { icon, mark } from "./ui/icons";
import { action } from "./ui/parts";
import { computed, effect } from "./ui/reactive";
import { link, route, type View } from "./ui/router";
import { switchTheme, theme } from "./ui/theme";
import { describeError, toasts } from "./ui/toast";

export function shell(): Child {
  const view = computed(() => route().view);
  titleFollows();
  return [
    h("a.skip", { href: "#main", onclick: skip }, m.shell.skip),
    head(view),
    h(
      "main",
      { id: "main", tabindex: -1 },
      () => (phase() === "ready" ? [lostBanner(), placeNotices()] : null),
      () => body(view()),
    ),
    toasts(),
  ];
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function head(view: () => View): Child {
  const here = (v: View) => () => (view() === v ? "page" : undefined);
  return h(
    "header.top",
    h("a.brand", { href: link("home"), "aria-label": m.shell.home, "aria-current": here("home") }, mark(), h("span", "Tezgah")),
    h(
      "nav.tabs",
      { "aria-label": m.shell.tabs },
      tab("tokenizer", here("tokenizer"), m.tokenizer.tab, () => data().length > 0 || tokenizers().length > 0),
      tab("train", here("train"), m.train.tab, () => runs().length > 0),
      tab("generate", here("generate"), m.generate.tab, () => models().length > 0),
    ),
    h("div.top-end", placeBadge(), languageSwitch(), themeSwitch()),
  );
}

/** A tab with its knot on the thread: filled when there is something behind it. */
function tab(to: View, here: () => string | undefined, text: string, filled: () => boolean): Element {
  const name = () => (to === "train" ? (runs().find(isActive)?.name ?? "") : "");
  return h(
    "a.tab",
    { href: () => link(to, name()), "aria-current": here, class: () => (filled() ? "filled" : "") },
    h("span.knot", { "aria-hidden": "true" }),
    h("span", text),
  );
}

function languageSwitch(): Element {
  const other = language.peek() === "tr" ? "en" : "tr";
  const change = () => {
    setLanguage(other);
    setTimeout(() => document.getElementById("language")?.focus());
  };
  // Named in the language that it leads to, for whoever cannot read this one.
  const name = other === "tr" ? "Türkçeye geç" : "Switch to English";
  return h(
    "button.btn.quiet.lang",
    { type: "button", id: "language", lang: other, title: name, onclick: change },
    other.toUpperCase(),
    h("span.visually-hidden", `: ${name}`),
  );
}

function themeSwitch(): Element {
  const name = () => (theme() === "dark" ? m.shell.toLight : m.shell.toDark);
  return h("button.btn.icon.quiet", { type: "button", "aria-label": name, title: name, onclick: switchTheme }, () =>
    icon(theme() === "dark" ? "sun" : "moon"),
  );
}

const views: Record<View, () => Child> = { home: homeView, tokenizer: tokenizerView, train: trainView, generate: generateView };

function body(view: View): Child {
  return () => {
    switch (phase()) {
      case "connecting":
        return waiting(() => (place() === "tab" ? m.shell.startingTab : m.shell.connecting));
      case "locked":
        return locked();
      case "failed":
        return failed();
      case "ready":
        return () => (loaded() ? views[view]() : waiting(() => m.shell.connecting));
    }
  };
}

function waiting(text: () => string): Element {
  return h("div.wait", { role: "status" }, h("div.weaving", { "aria-hidden": "true" }), h("p", text));
}

/** The server wants its token: the person may paste the address that it printed. */
function locked(): Element {
  const input = h("input", { type: "text", id: "token", autocomplete: "off", spellcheck: "false" });
  return h(
    "form.card.narrow",
    { onsubmit: (e: Event) => (e.preventDefault(), enterToken(input.value)) },
    h("h1", m.shell.lockedTitle),
    h("p", m.shell.lockedText, " ", h("code", "tezgah serve")),
    h("div.field", h("label", { for: "token" }, m.shell.tokenLabel), input),
    h("div.row.end", h("button.btn.primary", { type: "submit" }, m.shell.open)),
  );
}

function failed(): Element {
  const { title, detail } = describeError(failure.peek());
  return h(
    "div.card.narrow",
    { role: "alert" },
    h("h1", m.shell.failedTitle),
    h("p", title),
    h("p", { lang: "en" }, detail),
    action(m.common.retry, connect, { class: "primary" }),
  );
}

function lostBanner(): Child {
  const text = () => (place() === "tab" ? m.shell.lostTab : m.shell.lostServer);
  return () => (lost() ? h("div.banner.warn", { role: "alert" }, icon("warn"), h("p", text())) : null);
}

/** The title says what goes on, so that a tab in the background can be watched. */
function titleFollows(): void {
  const names: Record<View, string> = {
    home: m.shell.title,
    tokenizer: m.tokenizer.tab,
    train: m.train.tab,
    generate: m.generate.tab,
  };
  effect(() => {
    const active = runs().find(isActive);
    const progress = active && active.last_step > 0 ? fmt.percent(active.step / active.last_step) : "";
    document.title = active ? `${progress} ${fmt.fixed(active.loss, 2)} · ${active.name}` : `${names[route().view]} · Tezgah`;
  });
}
