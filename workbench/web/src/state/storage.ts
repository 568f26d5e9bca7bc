// Asks the browser to keep what this tab has made.
import { place } from "./engine";

let asked = false;

/** Asks once, when the first run starts; the answer shows in the place dialog. */
export async function askPersistence(): Promise<void> {
  if (asked || place.peek() !== "tab" || !navigator.storage?.persist) return;
  asked = true;
  try {
    if (!(await navigator.storage.persisted())) await navigator.storage.persist();
  } catch {
    // A browser may refuse to be asked; training goes on without the promise.
  }
}
