// Starts the page: finds the engine, then shows the view of the address. A
// change of language builds the view anew; what a person has entered lives in
// the state of each tab and stays.
import { language } from "./i18n";
import { connect, lost, phase, status } from "./state/engine";
import { guardLeaving } from "./state/leave";
import { listenForever } from "./state/lists";
import { append } from "./ui/dom";
import { effect } from "./ui/reactive";
import { applyTheme } from "./ui/theme";
import { shell } from "./shell";

applyTheme();
const app = document.getElementById("app")!;

append(app, () => {
  language();
  return shell();
});

let listening = false;
effect(() => {
  if (phase() !== "ready" || listening) return;
  listening = true;
  guardLeaving();
  void listenForever();
});

// What tests and a curious person may look at.
Object.assign(globalThis, { tezgah: { status: () => status.peek(), lost: () => lost.peek() } });

void connect();
