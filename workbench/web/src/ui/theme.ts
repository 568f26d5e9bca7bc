// Dark or light: the system's wish until a person chooses.
import { signal } from "./reactive";

export type Theme = "light" | "dark";
const key = "tezgah.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function current(): Theme {
  const chosen = localStorage.getItem(key);
  return chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
}

export const theme = signal<Theme>(current());

export function applyTheme(): void {
  theme.set(current());
  document.documentElement.dataset.theme = theme.peek();
}

export function switchTheme(): void {
  localStorage.setItem(key, theme.peek() === "dark" ? "light" : "dark");
  applyTheme();
}

dark.addEventListener("change", applyTheme);
