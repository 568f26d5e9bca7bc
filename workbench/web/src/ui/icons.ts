// The page's icons: strokes on a 24 by 24 grid, drawn for this page.
import { s } from "./dom";

const paths = {
  close: "M6 6l12 12M18 6L6 18",
  check: "M5 12.5l4.5 4.5L19 7.5",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M9 6v12M15 6v12",
  stop: "M7 7h10v10H7z",
  fork: "M7 4v16M7 14c0-5 10-3 10-8M17 6V4m-2 2l2-2 2 2",
  download: "M12 4v11m-4.5-4L12 15.5 16.5 11M5 20h14",
  upload: "M12 16V5m-4.5 4L12 4.5 16.5 9M5 20h14",
  trash: "M5 7h14M10 7V4.5h4V7m-7 0l1 13h8l1-13",
  folder: "M4 7V5.5h5L11 8h9v11H4z",
  file: "M7 4h7l4 4v12H7zM14 4v4h4",
  paste: "M8 6H6v14h12V6h-2M9 4h6v4H9z",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 3v2m0 14v2M3 12h2m14 0h2M5.6 5.6L7 7m10 10l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4",
  moon: "M19 14.5A7.5 7.5 0 0110 5a7.5 7.5 0 109 9.5z",
  again: "M19 12a7 7 0 11-2-4.9M19 4v4h-4",
  plus: "M12 5v14M5 12h14",
  gauge: "M5 18a8.5 8.5 0 1114 0M12 14l4-5",
  chart: "M4 19h16M5 15l4-5 4 3 6-8",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  warn: "M12 4l9 16H3zM12 10v4.5M12 17.2v.3",
  chip: "M8 8h8v8H8zM5 5h14v14H5zM9 2v3m6-3v3M9 19v3m6-3v3M2 9h3m-3 6h3M19 9h3m-3 6h3",
  send: "M5 12h13m-5.5-6L18.5 12 12.5 18",
} as const;

export type IconName = keyof typeof paths;

export function icon(name: IconName): SVGElement {
  return s("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: paths[name] }));
}

/** The mark: three threads of warp and three of weft, one over, one under. */
export function mark(): SVGElement {
  const threads: SVGElement[] = [];
  const at = [4, 12, 20];
  for (const [i, x] of at.entries()) threads.push(s("path.warp", { d: `M${x} 1v22`, "data-i": i }));
  for (const [row, y] of at.entries()) {
    // The weft shows where it lies above the warp: every second crossing.
    const over = at.filter((_, column) => (row + column) % 2 === 0);
    threads.push(s("path.weft-under", { d: `M1 ${y}h22` }));
    for (const [column, x] of at.entries())
      if (!over.includes(at[column]!)) threads.push(s("path.warp", { d: `M${x} ${y - 3.4}v6.8` }));
  }
  return s("svg.mark", { viewBox: "0 0 24 24", "aria-hidden": "true" }, threads);
}
