// Which view is shown, as a value that follows the address.
import { link, parseRoute, type Route, type View } from "../util/route";
import { signal } from "./reactive";

export { link, type Route, type View };

/** The view of the address. */
export const route = signal<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => route.set(parseRoute(location.hash)));

/** Goes to a view; with replace, without a step in the history. */
export function go(view: View, name = "", query: Record<string, string> = {}, replace = false): void {
  const to = link(view, name, query);
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    route.set(parseRoute(location.hash));
  } else location.hash = to;
}
