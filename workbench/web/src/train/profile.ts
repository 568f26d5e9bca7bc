// Where the time of a step goes, kernel by kernel: as bars and as a table.
import type { ProfileResult, ProfileRow, Run } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { Canceled, finished, jobOf } from "../state/lists";
import { type Child, h } from "../ui/dom";
import { jobView } from "../ui/job";
import { action, card, empty, engineWords } from "../ui/parts";
import { signal } from "../ui/reactive";

/** The last profile of each run; the engine does not keep them. */
const results = signal<Readonly<Record<string, ProfileResult>>>({});

export function profileCard(run: () => Run): Element {
  const { name } = run();
  const measure = async () => {
    try {
      const result = await finished<ProfileResult>(await api.profileRun(name));
      results.update((old) => ({ ...old, [name]: result }));
    } catch (error) {
      if (!(error instanceof Canceled)) throw error;
    }
  };
  return card(
    m.profile.title,
    () =>
      jobOf("profile", name)?.state === "running" ? null : action(m.profile.measure, measure, { icon: "gauge", class: "small" }),
    jobView(() => jobOf("profile", name), m.profile.measuring),
    () => {
      const result = results()[name] ?? (jobOf("profile", name)?.result as ProfileResult | undefined);
      return result ? profile(result) : empty(m.profile.none);
    },
  );
}

function profile(result: ProfileResult): Child {
  const most = Math.max(...result.rows.map((r) => r.share), 1e-9);
  const columns: [string, (r: ProfileRow) => Child][] = [
    [m.profile.kernel, (r) => h("code", { lang: "en" }, r.name)],
    [m.profile.calls, (r) => fmt.number(r.calls)],
    [m.profile.ms, (r) => fmt.fixed(r.ms, 2)],
    [m.profile.share, (r) => fmt.percent(r.share, 1)],
    [m.profile.bandwidth, (r) => (r.gb_per_s > 0 ? fmt.number(r.gb_per_s, 1) : "–")],
    [m.profile.tflops, (r) => (r.tflops > 0 ? fmt.number(r.tflops, 3) : "–")],
    [m.profile.ofPeak, (r) => (r.of_peak > 0 ? fmt.percent(r.of_peak) : "–")],
    [m.profile.ofCopy, (r) => (r.of_copy > 0 ? fmt.percent(r.of_copy) : "–")],
  ];
  return [
    h("p", m.profile.step(fmt.number(result.step_ms, 1)), " ", h("span.muted", engineWords(result.method))),
    h(
      "div.bars",
      { "aria-hidden": "true" },
      result.rows
        .slice(0, 12)
        .map((r) =>
          h(
            "div.bar",
            h("span.bar-name", r.name),
            h("span.bar-track", h("span", { style: { width: `${(100 * r.share) / most}%` } })),
            h("span.numbers", fmt.percent(r.share, 1)),
          ),
        ),
    ),
    h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": m.profile.table },
      h(
        "table.numbers-table",
        h(
          "thead",
          h(
            "tr",
            columns.map(([head]) => h("th", { scope: "col" }, head)),
          ),
        ),
        h(
          "tbody",
          result.rows.map((r) =>
            h(
              "tr",
              columns.map(([, cell], i) => (i === 0 ? h("th", { scope: "row" }, cell(r)) : h("td", cell(r)))),
            ),
          ),
        ),
      ),
    ),
  ];
}
