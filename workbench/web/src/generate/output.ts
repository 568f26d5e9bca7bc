// The text as it comes, token by token, each shaded by how unlikely it was.
import { fmt, m } from "../i18n";
import { type Child, h } from "../ui/dom";
import { action, card, check, engineWords } from "../ui/parts";
import { computed, effect } from "../ui/reactive";
import { tokenStrip } from "../ui/tokens";
import { toast } from "../ui/toast";
import * as state from "./state";

export function outputCard(): Element {
  const some = computed(() => state.output() !== undefined);
  return card(m.generate.output, () =>
    some()
      ? [
          h("p.prompt-echo", { translate: "no" }, () => state.output()?.request.prompt ?? ""),
          outputTokens(),
          outputEnd(),
          tools(),
        ]
      : h("p.empty", m.generate.nothing),
  );
}

function tools(): Element {
  const copy = async () => {
    const now = state.output.peek()!;
    await navigator.clipboard.writeText((now.request.prompt ?? "") + state.textOf(now));
    toast({ kind: "done", title: m.common.copied });
  };
  return h(
    "div.row",
    action(m.common.copy, copy, { icon: "copy", class: "small" }),
    check(m.generate.shade, state.showProbabilities, state.showProbabilities.set),
  );
}

/** The tokens of the answer; only those that are new are added to the page. */
export function outputTokens(): Element {
  const strip = tokenStrip({ label: m.generate.output, inspect });
  let shown: state.Output | undefined;
  let count = 0;
  effect(() => {
    state.grown();
    const now = state.output();
    if (now !== shown) {
      strip.clear();
      shown = now;
      count = 0;
    }
    if (!now) return;
    strip.append(now.pieces.slice(count).map((p) => ({ text: p.text, class: "piece", shade: 1 - p.prob })));
    count = now.pieces.length;
  });
  effect(() => strip.element.classList.toggle("unshaded", !state.showProbabilities()));
  effect(() => strip.element.classList.toggle("writing", state.busy()));
  return strip.element;
}

/** What else could have come: the likeliest tokens as bars. */
function inspect(i: number): Child {
  const piece = state.output.peek()?.pieces[i];
  if (!piece) return null;
  const others = piece.alternatives ?? [];
  const rows = others.some((a) => a.id === piece.id) ? others : [{ id: piece.id, text: piece.text, prob: piece.prob }, ...others];
  return [
    h(
      "p.box-head",
      h("strong.mono", { translate: "no" }, JSON.stringify(piece.text)),
      h("span.muted", `${m.tokenizer.id} ${fmt.number(piece.id)}`),
    ),
    h(
      "ol.alternatives",
      { "aria-label": m.generate.alternatives },
      rows.map((a) =>
        h(
          "li",
          { class: a.id === piece.id ? "chosen" : "" },
          h("span.mono", { translate: "no" }, JSON.stringify(a.text)),
          h("span.bar-track", { "aria-hidden": "true" }, h("span", { style: { width: `${100 * a.prob}%` } })),
          h("span.numbers", fmt.percent(a.prob, 1)),
        ),
      ),
    ),
  ];
}

/** How it ended, how fast it was, and the seed to have it again. */
export function outputEnd(): Child {
  const reasons = m.generate.reasons;
  return h("div", { role: "status" }, () => {
    state.grown();
    const now = state.output();
    if (!now) return null;
    if (now.error)
      return h(
        "p.field-error",
        (m.errors as Record<string, string>)[now.error.code] ?? m.errors.internal,
        " ",
        engineWords(now.error.message),
      );
    if (!now.end) return h("p.muted.numbers", m.generate.writing(fmt.number(now.pieces.length)));
    const notes = now.end.notes ?? [];
    return [
      h(
        "p.muted.numbers",
        [
          m.data.tokens(fmt.number(now.end.new_tokens)),
          m.generate.speed(fmt.number(now.end.tok_per_s, 1)),
          reasons[now.end.reason],
          m.generate.seed(String(now.seed)),
        ].join(" · "),
      ),
      notes.length > 0
        ? h(
            "ul.notices",
            notes.map((n) => h("li", engineWords(n))),
          )
        : null,
    ];
  });
}
