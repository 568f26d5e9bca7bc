// A job as it goes: what it does, how far it is, how fast, and how long still.
import type { Job } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { type Child, h } from "./dom";
import { action, engineWords, progress } from "./parts";
import { computed } from "./reactive";

/** Shows a job while it runs, and its error when it has failed. */
export function jobView(job: () => Job | undefined, label: string): Child {
  const state = computed(() => `${job()?.id} ${job()?.state}`);
  return () => {
    state();
    const now = job();
    if (!now || now.state === "done" || now.state === "canceled") return null;
    if (now.state === "failed") return h("p.field-error", { role: "alert" }, m.common.failed, " ", engineWords(now.error ?? ""));
    const live = () => job() ?? now;
    return h(
      "div.job",
      h(
        "div.job-head",
        h("strong", label),
        h("span", () => stageName(live().stage)),
        action(m.common.cancel, () => api.cancelJob(now.id), { class: "small" }),
      ),
      progress(
        label,
        () => live().done,
        () => live().total,
      ),
      h("p.muted.numbers", () => jobNumbers(live())),
    );
  };
}

/** The engine's stage in the language of the page, where we know it. */
function stageName(stage: string): Child {
  const known = (m.stages as Record<string, string>)[stage];
  return known ?? (stage ? engineWords(stage) : "");
}

/** "1,234 of 8,192 · 5,000 merges/s · 3 s left", as far as it is known. */
export function jobNumbers(job: Job): string {
  const size = /^[KMG]?i?B\/s$/.test(job.unit) ? fmt.bytes : (n: number) => fmt.number(n);
  const parts: string[] = [];
  if (job.total > 0) parts.push(m.common.of(size(job.done), size(job.total)));
  else if (job.done > 0) parts.push(size(job.done));
  if (job.rate > 0) parts.push(`${fmt.number(job.rate, job.rate < 100 ? 1 : 0)} ${unitName(job.unit)}`);
  if (job.eta_s > 0) parts.push(m.common.left(fmt.duration(job.eta_s)));
  return parts.join(" · ");
}

function unitName(unit: string): string {
  return (m.units as Record<string, string>)[unit] ?? unit;
}
