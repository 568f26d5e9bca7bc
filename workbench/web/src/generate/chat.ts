// A conversation with a model that has a chat template.
import { m } from "../i18n";
import { type Child, each, h } from "../ui/dom";
import { action, card, details, field } from "../ui/parts";
import { signal } from "../ui/reactive";
import { showError, toast } from "../ui/toast";
import { outputEnd, outputTokens } from "./output";
import * as state from "./state";

const draft = signal("");

export function chatCard(): Element {
  return card(
    m.generate.chat,
    details(
      m.generate.system,
      field({ label: m.generate.system, help: m.generate.systemHelp }, (a) =>
        h("textarea", {
          ...a,
          rows: 3,
          value: state.systemText,
          oninput: (e: Event) => state.systemText.set((e.target as HTMLTextAreaElement).value),
        }),
      ),
    ),
    () => (state.chat().length === 0 ? h("p.empty", m.generate.chatEmpty) : null),
    h(
      "ol.chat",
      { "aria-label": m.generate.chat },
      each(
        numbered,
        (x) => String(x.i),
        (x) =>
          turn(
            x().role,
            () => x().content,
            () => x().last,
          ),
      ),
    ),
    answerInProgress(),
    composer(),
  );
}

/** The turns that are told as text: all but an answer that is shown as tokens. */
const numbered = () => {
  const all = state.chat();
  return all.map((t, i) => ({ ...t, i, last: i === all.length - 1 && t.role === "assistant" }));
};

function turn(role: string, content: () => string, last: () => boolean): Element {
  const copy = async () => {
    await navigator.clipboard.writeText(content());
    toast({ kind: "done", title: m.common.copied });
  };
  const again = () => void state.answerAgain(state.output.peek()?.seed).catch(showError);
  const fresh = () => void state.answerAgain().catch(showError);
  return h(
    `li.turn.${role === "user" ? "user" : "assistant"}`,
    h("span.turn-role", role === "user" ? m.generate.you : m.generate.modelSays),
    () => (last() && state.output()?.request.messages ? [outputTokens(), outputEnd()] : h("p", { translate: "no" }, content)),
    () =>
      last()
        ? h(
            "div.row.tight",
            action(m.common.copy, copy, { icon: "copy", class: "small" }),
            action(m.generate.again, again, { icon: "again", class: "small" }),
            action(m.generate.otherAnswer, fresh, { class: "small" }),
          )
        : null,
  );
}

function answerInProgress(): Child {
  return () =>
    state.busy() ? h("div.turn.assistant", h("span.turn-role", m.generate.modelSays), outputTokens(), outputEnd()) : null;
}

function composer(): Element {
  const send = () => {
    const text = draft.peek().trim();
    if (text === "" || state.busy.peek()) return;
    draft.set("");
    void state.say(text).catch(showError);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    send();
  };
  return h(
    "div.composer",
    field({ label: m.generate.message, help: m.generate.messageHelp }, (a) =>
      h("textarea", {
        ...a,
        rows: 2,
        value: draft,
        onkeydown: keys,
        oninput: (e: Event) => draft.set((e.target as HTMLTextAreaElement).value),
      }),
    ),
    h("div.row", () =>
      state.busy()
        ? action(m.generate.stop, state.stop, { icon: "stop", class: "primary" })
        : [
            action(m.generate.send, send, { icon: "send", class: "primary" }),
            state.chat().length > 0 ? action(m.generate.clear, () => state.chat.set([]), { class: "quiet" }) : null,
          ],
    ),
  );
}
