/**
 * Keys of the console. `/` goes to the search, `g` and a letter to a screen, `j` and `k` through the rows of a table,
 * Enter opens a row, `?` shows this list. Fields get their keys alone.
 */

import { go } from "./router.js";

/** Letter after g -> name and path of a screen, the right to the cluster that it needs, and what else. @type {Record<string, [string, string[], string?, "hasRegistry"?]>} */
export const SCREENS = {
  o: ["Overview", []],
  t: ["Topics", ["topics"]],
  c: ["Consumer groups", ["groups"]],
  x: ["Transactions", ["transactions"]],
  b: ["Broker configs", ["brokers"], "DESCRIBE_CONFIGS"],
  s: ["Storage", ["storage"], "DESCRIBE"],
  r: ["Schemas", ["schemas"], "DESCRIBE", "hasRegistry"],
  a: ["Access", ["access"]],
};

/** Seconds between `g` and the letter, in ms. */
const PAIR_MS = 1500;

/** @param {() => void} showHelp */
export function listen(showHelp) {
  let pressedAt = -PAIR_MS;
  addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const isPair = event.timeStamp - pressedAt < PAIR_MS;
    pressedAt = -PAIR_MS;
    if (isPair && SCREENS[event.key]) go(SCREENS[event.key][1]);
    else if (event.key === "g") pressedAt = event.timeStamp;
    else if (event.key === "?") showHelp();
    else if (event.key === "/") focus(document.querySelector("main input[type=search]"));
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "Escape") focus(document.querySelector("main [data-back]"), true);
    else return;
    event.preventDefault();
  });
}

/** @param {Element | null} element */
function focus(element, isClicked = false) {
  if (!(element instanceof HTMLElement)) return;
  if (isClicked) element.click();
  else element.focus();
}

/** Move the focus among the rows' first links or buttons. @param {1 | -1} by */
function step(by) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? 0 : Math.min(Math.max(now + by, 0), rows.length - 1)];
  focus(next.matches("a, button") ? next : next.querySelector("a, button"));
}
