// What is being written: the settings of a request, and the tokens of its answer.
import type { ErrorBody, GenerateMessage, GenerateRequest, Piece } from "../api/types";
import { api } from "../state/engine";
import { perFrame } from "../state/frame";
import { models } from "../state/lists";
import { computed, signal } from "../ui/reactive";
import { route } from "../ui/router";
import { parseNumber } from "../util/format";

/** An answer as it comes in. `pieces` grows in place; `grown` counts its changes. */
export interface Output {
  request: GenerateRequest;
  pieces: Piece[];
  promptTokens: number;
  seed: number;
  end?: Extract<GenerateMessage, { type: "end" }>;
  error?: ErrorBody;
}

export const output = signal<Output | undefined>(undefined);
export const grown = signal(0);
export const busy = signal(false);

export const sampling = {
  max_tokens: signal("256"),
  temperature: signal("0.8"),
  top_k: signal("0"),
  top_p: signal("0.95"),
  min_p: signal("0"),
  repetition_penalty: signal("1"),
  seed: signal(""),
};
export type SamplingKey = keyof typeof sampling;

export const prompt = signal("");
export const stopTexts = signal("");
export const ignoreEnd = signal(false);
export const precision = signal("f32");
export const showProbabilities = signal(true);
export const chatMode = signal(true);
export const chat = signal<readonly { role: string; content: string }[]>([]);
export const systemText = signal("");

/** The model of the address, or the newest. */
export const modelName = computed(() => {
  const wanted = route().name;
  const list = models();
  return list.some((x) => x.name === wanted) ? wanted : (list[0]?.name ?? "");
});
export const model = computed(() => models().find((x) => x.name === modelName()));
export const canChat = computed(() => Boolean(model()?.chat_template));

/** What is wrong with a setting, by a range that every engine agrees on. */
export const ranges: Record<SamplingKey, readonly [number, number]> = {
  max_tokens: [1, 65536],
  temperature: [0, 10],
  top_k: [0, 1e6],
  top_p: [0, 1],
  min_p: [0, 1],
  repetition_penalty: [0.1, 10],
  seed: [0, 2 ** 53],
};

export function valueOf(key: SamplingKey): number | undefined {
  const text = sampling[key]().trim();
  if (text === "") return undefined;
  return parseNumber(text, key === "max_tokens" || key === "top_k" || key === "seed");
}

export function isBad(key: SamplingKey): boolean {
  const v = valueOf(key);
  const [low, high] = ranges[key];
  return v !== undefined && !(v >= low && v <= high);
}

function request(seed: number | undefined): GenerateRequest {
  const set = Object.fromEntries((Object.keys(sampling) as SamplingKey[]).map((k) => [k, valueOf(k)]));
  const stop = stopTexts.peek().split("\n").filter(Boolean).map(unescapeText);
  return {
    ...set,
    model: modelName.peek(),
    seed: seed ?? valueOf("seed") ?? randomSeed(),
    stop: stop.length > 0 ? stop : undefined,
    ignore_end: ignoreEnd.peek() || undefined,
    precision: precision.peek() === "f32" ? undefined : precision.peek(),
    alternatives: 8,
  };
}

/** Lets a person write \n in a stop text, which has one line for each. */
function unescapeText(text: string): string {
  return text.replace(/\\n/g, "\n").replace(/\\t/g, "\t");
}

function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]!;
}

let stopper: AbortController | undefined;

/** Continues the prompt; with a seed, as that seed did. */
export async function generate(seed?: number): Promise<void> {
  const r = { ...request(seed), prompt: prompt.peek() };
  await receive(r, (signal) => api.generate(r, signal));
}

/** Sends a message of the chat and takes the answer into it. */
export async function say(content: string): Promise<void> {
  chat.update((old) => [...old, { role: "user", content }]);
  await answerChat();
}

/** Asks for the last answer again. */
export async function answerAgain(seed?: number): Promise<void> {
  chat.update((old) => (old[old.length - 1]?.role === "assistant" ? old.slice(0, -1) : old));
  await answerChat(seed);
}

async function answerChat(seed?: number): Promise<void> {
  const system = systemText.peek().trim();
  const messages = [...(system ? [{ role: "system", content: system }] : []), ...chat.peek()];
  const r = { ...request(seed), messages };
  await receive(r, (signal) => api.chat(r, signal));
  const now = output.peek();
  if (now && now.pieces.length > 0) chat.update((old) => [...old, { role: "assistant", content: textOf(now) }]);
}

export function stop(): void {
  stopper?.abort();
}

export function textOf(o: Output): string {
  return o.pieces.map((p) => p.text).join("");
}

async function receive(r: GenerateRequest, open: (signal: AbortSignal) => AsyncGenerator<GenerateMessage>): Promise<void> {
  stopper?.abort();
  const mine = (stopper = new AbortController());
  const now: Output = { request: r, pieces: [], promptTokens: 0, seed: r.seed ?? 0 };
  const touch = perFrame(() => grown.update((n) => n + 1));
  output.set(now);
  busy.set(true);
  const started = performance.now();
  try {
    for await (const message of open(mine.signal)) {
      take(now, message);
      touch();
    }
  } catch (error) {
    if (!mine.signal.aborted) throw error;
    // The stream ended here, so its last message did not arrive.
    const perSecond = now.pieces.length / ((performance.now() - started) / 1000);
    now.end ??= { type: "end", reason: "canceled", new_tokens: now.pieces.length, tok_per_s: perSecond };
  } finally {
    if (stopper === mine) busy.set(false);
    touch();
  }
}

function take(now: Output, message: GenerateMessage): void {
  if (message.type === "piece") now.pieces.push(message);
  else if (message.type === "end") now.end = message;
  else if (message.type === "error") now.error = message.error;
  else {
    now.promptTokens = message.prompt_tokens;
    now.seed = message.seed;
  }
}

/** Puts what the demo has written on the tab, as if it had been written there. */
export function remember(r: GenerateRequest, messages: GenerateMessage[]): void {
  const now: Output = { request: r, pieces: [], promptTokens: 0, seed: r.seed ?? 0 };
  for (const message of messages) take(now, message);
  prompt.set(r.prompt ?? "");
  output.set(now);
  grown.update((n) => n + 1);
}
