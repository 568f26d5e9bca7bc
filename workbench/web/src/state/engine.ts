// Finds the engine: the server that the page came from, or a worker in this
// tab when no server answers, and keeps its status.
import { Client } from "../api/client";
import { HttpTransport, Unreachable, WorkerTransport } from "../api/transport";
import type { Status } from "../api/types";
import { signal } from "../ui/reactive";

export type Place = "server" | "tab";

/** connecting, ready, locked (the server wants its token) or failed (no engine at all). */
export const phase = signal<"connecting" | "ready" | "locked" | "failed">("connecting");
export const failure = signal<unknown>(undefined);
export const place = signal<Place>("server");
export const status = signal<Status | undefined>(undefined);
/** True while the engine does not answer; lists.ts tries again. */
export const lost = signal(false);
/** Whether a server answered, so that the place can be switched back. */
export const serverThere = signal(false);

export let api: Client;

const tokenKey = "tezgah.token";
const placeKey = "tezgah.place";

/** Takes the token out of the address bar, where a screenshot would show it. */
function takeToken(): string | null {
  const url = new URL(location.href);
  const token = url.searchParams.get("token");
  const wanted = url.searchParams.get("place");
  if (wanted) sessionStorage.setItem(placeKey, wanted);
  if (token !== null || wanted !== null) {
    if (token) sessionStorage.setItem(tokenKey, token);
    url.searchParams.delete("token");
    url.searchParams.delete("place");
    history.replaceState(null, "", url);
  }
  return sessionStorage.getItem(tokenKey);
}

/** What a server answers to the first request. */
type Answer = "ours" | "locked" | "none" | "unreachable";

async function askServer(token: string | null): Promise<Answer> {
  try {
    const answer = await new HttpTransport(document.baseURI, token).send({ method: "GET", path: "/api/status" });
    if (answer.status === 401 || answer.status === 403) return "locked";
    if (answer.status !== 200 || !answer.headers.get("Content-Type")?.includes("json")) return "none";
    status.set(JSON.parse(await new Response(answer.body).text()) as Status);
    return "ours";
  } catch (error) {
    return error instanceof Unreachable ? "unreachable" : "none";
  }
}

/** Connects, and returns when phase is no longer "connecting". */
export async function connect(): Promise<void> {
  phase.set("connecting");
  const token = takeToken();
  const answer = await askServer(token);
  serverThere.set(answer === "ours" || answer === "locked");
  const wantsTab = sessionStorage.getItem(placeKey) === "tab";
  if (wantsTab || answer === "none" || (answer === "unreachable" && !token)) return startWorker();
  if (answer === "locked") return void phase.set("locked");
  api = new Client(new HttpTransport(document.baseURI, token));
  place.set("server");
  lost.set(answer === "unreachable");
  phase.set("ready");
}

async function startWorker(): Promise<void> {
  place.set("tab");
  try {
    api = new Client(new WorkerTransport(new Worker(new URL("worker.js", document.baseURI))));
    status.set(await api.status());
    phase.set("ready");
  } catch (error) {
    failure.set(error);
    phase.set("failed");
  }
}

export async function refreshStatus(): Promise<void> {
  status.set(await api.status());
}

/** Goes to the other place; the page starts anew there. */
export function switchPlace(to: Place): void {
  sessionStorage.setItem(placeKey, to);
  location.reload();
}

/** Tries a token that the person pasted, or the whole address with it. */
export function enterToken(text: string): void {
  const match = /token=([^&\s]+)/.exec(text);
  sessionStorage.setItem(tokenKey, match ? decodeURIComponent(match[1]!) : text.trim());
  location.reload();
}
