// Where the engine runs: a badge in the head, a dialog about the device, and
// what a person should do when this browser cannot use the GPU.
import { fmt, m } from "./i18n";
import { place, refreshStatus, serverThere, status, switchPlace } from "./state/engine";
import { isActive, jobs, runs } from "./state/lists";
import { type Child, h } from "./ui/dom";
import { icon } from "./ui/icons";
import { action, confirm, dialog, engineWords } from "./ui/parts";
import { signal } from "./ui/reactive";

export function placeBadge(): Child {
  return () => {
    const now = status();
    if (!now) return null;
    const where = place() === "tab" ? m.place.tab : m.place.server;
    return h(
      "button.place",
      { type: "button", "aria-haspopup": "dialog", onclick: placeDialog },
      icon("chip"),
      h("span.visually-hidden", `${m.place.title}: `),
      h("span.place-where", where),
      h("span.place-device", { lang: "en" }, now.device),
    );
  };
}

function placeDialog(): void {
  refreshStatus().catch(() => {});
  dialog(m.place.title, () => () => {
    const now = status();
    if (!now) return null;
    const { used, free, persistent } = now.storage;
    const storage = [fmt.bytes(used), free > 0 ? m.place.storageFree(fmt.bytes(free)) : ""].filter(Boolean).join(", ");
    return [
      h("p", place() === "tab" ? m.place.tabText : m.place.serverText),
      h(
        "dl.facts",
        fact(m.place.device, engineWords(now.device)),
        fact(
          m.place.devices,
          h(
            "ul.plain",
            now.devices.map((d) =>
              h("li", h("code", d.id), " ", engineWords(d.name), d.software ? ` (${m.place.software})` : ""),
            ),
          ),
        ),
        fact(m.place.threads, fmt.number(now.threads)),
        fact(m.place.freeMemory, now.free_memory > 0 ? fmt.bytes(now.free_memory) : m.common.unknown),
        fact(m.place.halfPrecision, now.f16 ? m.common.yes : m.common.no),
        fact(m.place.storage, storage),
        place() === "tab" ? fact(m.place.kept, persistent ? m.place.keptYes : m.place.keptNo) : null,
        fact(m.place.version, engineWords(now.version)),
      ),
      now.notices.length > 0
        ? h(
            "ul.notices",
            now.notices.map((n) => h("li", engineWords(n))),
          )
        : null,
      switchButton(),
    ];
  });
}

function fact(name: string, value: Child): Child {
  return [h("dt", name), h("dd", value)];
}

function switchButton(): Child {
  if (place.peek() === "server") {
    return h(
      "div.row.end",
      action(m.place.toTab, () => switchPlace("tab")),
    );
  }
  if (!serverThere.peek()) return null;
  const leave = async () => {
    const busy = runs.peek().some(isActive) || jobs.peek().some((j) => j.state === "running");
    if (!busy || (await confirm(m.place.toServer, m.place.leaveText, m.place.toServer))) switchPlace("server");
  };
  return h("div.row.end", action(m.place.toServer, leave));
}

// ---- WebGPU

export type WebGPU = "unknown" | "ok" | "insecure" | "missing" | "noAdapter";
const webgpu = signal<WebGPU>("unknown");
const dismissedKey = "tezgah.webgpu.dismissed";
const dismissed = signal(sessionStorage.getItem(dismissedKey) === "1");

interface AdapterSource {
  requestAdapter(): Promise<unknown>;
}

/** Finds out whether this browser can give the engine a GPU. */
async function checkWebGPU(): Promise<void> {
  const gpu = (navigator as Navigator & { gpu?: AdapterSource }).gpu;
  if (!gpu) return webgpu.set(isSecureContext ? "missing" : "insecure");
  const adapter = await gpu.requestAdapter().catch(() => null);
  webgpu.set(adapter ? "ok" : "noAdapter");
}

/** Above the view: in the tab, whether and how WebGPU can be had. */
export function placeNotices(): Child {
  if (place.peek() !== "tab") return null;
  if (webgpu.peek() === "unknown") void checkWebGPU();
  return () => {
    const state = webgpu();
    if (state === "ok" || state === "unknown" || dismissed()) return null;
    return h(
      "div.banner.warn",
      { role: "note" },
      icon("warn"),
      h(
        "div",
        h("p", h("strong", m.place.webgpu[state])),
        h("p", state === "insecure" ? m.place.webgpuInsecure : m.place.webgpuDo),
        state === "insecure" ? null : advice(),
        h("p", m.place.webgpuCpu),
      ),
      h(
        "button.btn.icon.quiet",
        {
          type: "button",
          "aria-label": m.common.dismiss,
          onclick: () => {
            sessionStorage.setItem(dismissedKey, "1");
            dismissed.set(true);
          },
        },
        icon("close"),
      ),
    );
  };
}

function advice(): Child {
  return h(
    "ul",
    m.place.webgpuSteps.map((step) => h("li", step)),
  );
}
