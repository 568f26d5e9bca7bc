// Warns before the page is left only when something would be lost by it: an
// upload, or work that goes on in this tab.
import { place } from "./engine";
import { isActive, jobs, runs } from "./lists";

let uploads = 0;

/** Runs an upload, during which leaving the page would break it off. */
export async function upload<T>(run: () => Promise<T>): Promise<T> {
  uploads++;
  try {
    return await run();
  } finally {
    uploads--;
  }
}

function somethingWouldBeLost(): boolean {
  if (uploads > 0) return true;
  return place.peek() === "tab" && (runs.peek().some(isActive) || jobs.peek().some((job) => job.state === "running"));
}

export function guardLeaving(): void {
  addEventListener("beforeunload", (event) => {
    if (somethingWouldBeLost()) event.preventDefault();
  });
}
