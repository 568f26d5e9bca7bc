// The Tokenizer tab: text, tokenizer, a look through it, and the token file.
import { m } from "../i18n";
import { type Child, h } from "../ui/dom";
import { dataCard } from "./data";
import { liveCard } from "./live";
import { textsCard } from "./texts";
import { trainCard } from "./train";

export function tokenizerView(): Child {
  return [
    h("header.view-head", h("h1", m.tokenizer.title), h("p.lead", m.tokenizer.lead)),
    h("div.columns", h("div.column", textsCard(), trainCard()), h("div.column", liveCard(), dataCard())),
  ];
}
