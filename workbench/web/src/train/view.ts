// The Train tab: a strip of runs, and below it a run or the form for a new one.
import { fmt, m } from "../i18n";
import { isActive, runs } from "../state/lists";
import { type Child, each, h } from "../ui/dom";
import { icon } from "../ui/icons";
import { computed } from "../ui/reactive";
import { link, route } from "../ui/router";
import { monitorView } from "./monitor";
import { newRunView } from "./newrun";

export function trainView(): Child {
  const name = computed(() => route().name);
  return [
    h("header.view-head", h("h1", m.train.title), h("p.lead", m.train.lead)),
    runStrip(name),
    () => {
      const run = name();
      return run ? monitorView(run) : newRunView();
    },
  ];
}

function runStrip(name: () => string): Element {
  return h(
    "nav.run-strip",
    { "aria-label": m.train.runs },
    h(
      "a.run-chip.new",
      { href: link("train"), "aria-current": () => (name() === "" ? "page" : undefined) },
      icon("plus"),
      h("span", m.train.newRun),
    ),
    each(
      runs,
      (r) => r.name,
      (run) => {
        const { name: own } = run();
        return h(
          "a.run-chip",
          { href: link("train", own), "aria-current": () => (name() === own ? "page" : undefined), class: () => run().state },
          h("span.dot", { "aria-hidden": "true" }),
          h("span", own),
          h("small", () =>
            isActive(run()) ? fmt.percent(run().last_step > 0 ? run().step / run().last_step : 0) : m.states[run().state],
          ),
        );
      },
    ),
  );
}
