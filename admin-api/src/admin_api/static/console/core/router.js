/**
 * The address of a screen: everything that a list or a form shows is in the part of the URL after #.
 *
 *     #/topics/orders/records?mode=oldest&q=apple
 */

import { signal } from "../vendor/preact.js";

/** Return the route of a hash. Path segments and values are decoded. @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, query] = hash.replace(/^#?\/?/, "").split("?", 2);
  /** @type {Record<string, string[]>} */
  const found = Object.create(null);
  for (const [name, value] of new URLSearchParams(query ?? "")) (found[name] ??= []).push(value);
  return { path: path.split("/").filter(Boolean).map(decoded), query: found };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Return the hash of a path and a query. Empty values are left out.
 * @param {(string | number | bigint)[]} path @param {Query} [query]
 */
export function link(path, query = {}) {
  const parameters = parameterText(query);
  return `#/${path.map((each) => encodeURIComponent(String(each))).join("/")}${parameters && `?${parameters}`}`;
}

/** Return the text of a query. Null and empty values are left out, an array is repeated. @param {Query} query */
export function parameterText(query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "" && each !== false) parameters.append(name, String(each));
    }
  }
  return parameters.toString();
}

export const route = signal(parse(globalThis.location?.hash ?? ""));

/** The value of a parameter of the route; empty without one. @param {string} name */
export const parameter = (name) => route.value.query[name]?.[0] ?? "";

/** Go to another screen. @param {(string | number | bigint)[]} path @param {Query} [query] */
export function go(path, query) {
  location.hash = link(path, query);
}

/**
 * Change parameters of this screen, without an entry in the browser's history.
 * @param {Query} changes
 */
export function change(changes) {
  const { path, query } = route.peek();
  history.replaceState(null, "", link(path, { ...query, ...changes }));
  route.value = parse(location.hash);
}

/** Follow the address bar. */
export function follow() {
  addEventListener("hashchange", () => {
    route.value = parse(location.hash);
  });
}
