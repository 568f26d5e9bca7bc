// Addresses of the views, in the part behind #, so that a static host needs no
// rules: #/train/NAME?compare=OTHER.

export type View = "home" | "tokenizer" | "train" | "generate";

export interface Route {
  view: View;
  /** Behind the view: a run, a model. */
  name: string;
  query: URLSearchParams;
}

const views: readonly string[] = ["tokenizer", "train", "generate"];

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", name = ""] = path.split("/");
  return { view: views.includes(view) ? (view as View) : "home", name: decode(name), query: new URLSearchParams(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

/** The address of a view, for links. */
export function link(view: View, name = "", query: Record<string, string> = {}): string {
  const search = new URLSearchParams(query).toString();
  const path = view === "home" ? "#/" : `#/${view}${name ? "/" + encodeURIComponent(name) : ""}`;
  return path + (search ? "?" + search : "");
}
