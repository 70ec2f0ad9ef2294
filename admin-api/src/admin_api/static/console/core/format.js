/** Numbers, sizes and times for people. */

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });

/** @param {number | bigint | null | undefined} number whole */
export function count(number) {
  return number == null ? "–" : grouped.format(number);
}

/** @param {number | null | undefined} number with at most one digit after the point, below 100 */
export function rate(number) {
  if (number == null) return "–";
  return number >= 100 ? grouped.format(Math.round(number)) : String(Math.round(number * 10) / 10);
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @param {number | bigint | null | undefined} bytes in powers of 1,000 */
export function size(bytes) {
  if (bytes == null) return "–";
  let left = Number(bytes);
  let unit = 0;
  while (left >= 999.5 && unit < UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit === 0 || left >= 99.5 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const [unit, name] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172_800 ? [3600, "h"] : [86_400, "days"];
  return `${Math.round(seconds / unit)} ${name}`;
}

/** Largest time of a Date, in ms. */
const TIME_MAX_MS = 8.64e15;

/** @param {number | bigint | null | undefined} ms since 1970 @param {boolean} isUtc */
export function time(ms, isUtc) {
  if (ms == null || ms < 0 || ms > TIME_MAX_MS) return ms === -1 ? "none" : String(ms ?? "–");
  const date = new Date(Number(ms));
  if (isUtc) return `${date.toISOString().replace("T", " ").slice(0, -1)} UTC`;
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().replace("T", " ").slice(0, -1);
}

/** Return ms since 1970 of the text of a field for times; null for none. @param {string} text @param {boolean} isUtc */
export function timeOf(text, isUtc) {
  const found = text.trim();
  if (/^\d{10,19}$/.test(found)) return Number(found);
  const parts = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?))?\s*(Z|UTC)?$/i.exec(found);
  if (parts === null) return null;
  const ms = Date.parse(`${parts[1]}T${parts[2] ?? "00:00"}${isUtc || parts[3] ? "Z" : ""}`);
  return Number.isNaN(ms) ? null : ms;
}

/** @param {number} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${Number(number) === 1 ? one : many}`;
}

/** Say in words and by a sign whether lag grows. @param {any} now @param {any} before */
export function trend(now, before) {
  if (now === null || before == null) return "";
  return now > before ? "▲\u00a0growing" : now < before ? "▼\u00a0shrinking" : "=\u00a0steady";
}
