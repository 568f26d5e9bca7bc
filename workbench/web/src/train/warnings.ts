// Warnings of the engine as sentences; it sends codes and numbers.
import type { Warning } from "../api/types";
import { fmt, m } from "../i18n";
import type { Child } from "../ui/dom";
import { engineWords } from "../ui/parts";

export function warningText(w: Warning): Child {
  const n = (key: string) => Number(w.values?.[key]);
  switch (w.code) {
    case "nonfinite":
      return m.warnings.nonfinite(fmt.number(n("count")));
    case "loss_rising":
      return m.warnings.lossRising(fmt.fixed(n("from"), 3), fmt.fixed(n("to"), 3));
    case "overfitting":
      return m.warnings.overfitting(fmt.fixed(n("best"), 3), fmt.fixed(n("now"), 3), fmt.number(n("since")));
    case "diverged":
      return m.warnings.diverged(fmt.fixed(n("loss"), 2));
    case "slow_start":
      return m.warnings.slowStart;
    case "skipped":
      return m.warnings.skipped(fmt.number(n("count")));
    default:
      return engineWords(`${w.code} ${JSON.stringify(w.values ?? {})}`);
  }
}
