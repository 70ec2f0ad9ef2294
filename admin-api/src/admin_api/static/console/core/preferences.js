/** Choices of this browser: theme, time zone, interval of refreshes, saved filters. Kept in its local storage. */

import { effect, signal } from "../vendor/preact.js";
import { time } from "./format.js";

/** @template T @param {string} name @param {T} otherwise @param {(value: unknown) => boolean} isValid */
function kept(name, otherwise, isValid) {
  const key = `millrace.${name}`;
  let first = otherwise;
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "null");
    if (isValid(found)) first = found;
  } catch {
    // No storage, or not ours: the default.
  }
  const value = signal(first);
  effect(() => {
    const text = JSON.stringify(value.value);
    try {
      if (text !== JSON.stringify(otherwise) || localStorage.getItem(key) !== null) localStorage.setItem(key, text);
    } catch {
      // A browser without storage keeps it for this page.
    }
  });
  return value;
}

export const THEMES = ["system", "light", "dark"];
export const INTERVALS_S = [2, 5, 30, 0];

export const theme = kept("theme", "system", (value) => THEMES.includes(/** @type {string} */ (value)));
export const isUtc = kept("utc", false, (value) => typeof value === "boolean");
/** Return a time as text, as the user wants it. @param {number | bigint | null | undefined} ms */
export const moment = (ms) => time(ms, isUtc.value);
export const intervalS = kept("interval", 5, (value) => INTERVALS_S.includes(/** @type {number} */ (value)));

/** Saved filters of records: name -> the query of its screen. @type {Signal<Record<string, Record<string, string[]>>>} */
export const filters = kept("filters", {}, (value) => value !== null && typeof value === "object" && !Array.isArray(value));

effect(() => {
  const root = globalThis.document?.documentElement;
  if (root) root.dataset.theme = theme.value;
});
