/**
 * Requests to the REST API, /v3 and /api/v1. Each is remembered, so that a screen shows it as a command of curl.
 */

import { signal } from "../vendor/preact.js";
import { parse, stringify } from "./exact_json.js";
import { parameterText } from "./router.js";

/** The address under which the API lies, also below the path of a proxy. */
export const BASE = new URL("../../", import.meta.url);
/** Marks a request of this page: a form or a link of another site cannot send it. */
const OWN_HEADERS = { "x-requested-by": "console" };
const REQUESTS_MAX = 20;
/** Members of bodies that no screen shows. */
const SECRETS = ["password", "token"];

/** The last requests of this screen, the newest first. @type {Signal<ApiRequest[]>} */
export const requests = signal([]);
/** Whether the server wants a login. */
export const needsLogin = signal(false);

/** An answer that is none. `code` is the API's, `status` HTTP's; 0 without an answer. */
export class ApiError extends Error {
  /** @param {number} status @param {number} code @param {string} message @param {string} requestId */
  constructor(status, code, message, requestId) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/**
 * Return the URL of a path of segments, below /v3/clusters/- or /api/v1.
 * @param {TemplateStringsArray} parts @param {...unknown} names each is escaped whole
 */
export function at(parts, ...names) {
  // mutant: console-names-escaped
  return parts.reduce((text, part, number) => text + encodeURIComponent(String(names[number - 1])) + part);
}

/** @param {string} path @param {Query} [query] */
export function urlOf(path, query = {}) {
  const parameters = parameterText(query);
  return new URL(path.replace(/^\//, "") + (parameters && `?${parameters}`), BASE).href;
}

/** @param {ApiRequest} request */
function remember(request) {
  const others = requests.peek().filter((each) => each.url !== request.url || each.method !== request.method);
  requests.value = [request, ...others].slice(0, REQUESTS_MAX);
}

/** Return a body with the name of each secret in its place. @param {any} body */
function withoutSecrets(body) {
  return { ...body, ...Object.fromEntries(SECRETS.filter((each) => each in body).map((each) => [each, each.toUpperCase()])) };
}

/**
 * Send a request and return the answer, whose body was not read. Raises ApiError if it is none.
 * @param {string} method @param {string} url
 * @param {{body?: unknown, signal?: AbortSignal, headers?: Record<string, string>, isText?: boolean}} [options]
 */
export async function send(method, url, { body, signal, headers = {}, isText = false } = {}) {
  const text = body === undefined ? null : isText ? String(body) : stringify(body);
  // mutant: console-hides-secrets
  remember({ method, url, body: text === null || isText ? text : stringify(withoutSecrets(body)) });
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(url, {
      method,
      signal,
      body: text,
      // mutant: console-marks-requests
      headers: { ...OWN_HEADERS, ...headers, ...(text === null ? {} : { "content-type": "application/json" }) },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, 0, "The server does not answer.", "");
  }
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

/** @param {Response} answer */
async function errorOf(answer) {
  const id = answer.headers.get("x-request-id") ?? "";
  if (answer.status === 401) needsLogin.value = true;
  let found = { error_code: answer.status, message: `The server answered ${answer.status}.` };
  try {
    found = parse(await answer.text());
  } catch {
    // Not one of the API's: a proxy's page.
  }
  return new ApiError(answer.status, found.error_code, found.message, id);
}

/** Return the text of an answer to GET. @param {string} path @param {Query} [query] @param {AbortSignal} [signal] */
export const getText = async (path, query, signal) => (await send("GET", urlOf(path, query), { signal })).text();

/** The same, read. @param {string} path @param {Query} [query] @param {AbortSignal} [signal] */
export const get = async (path, query, signal) => parse(await getText(path, query, signal));

/** Change something; return the body of the answer, null without one. @param {string} method @param {string} path @param {unknown} [body] */
export async function alter(method, path, body) {
  const text = await (await send(method, urlOf(path), { body })).text();
  return text ? parse(text) : null;
}

/** Return every row of a list that has pages. @param {string} path @param {Query} [query] @param {AbortSignal} [signal] */
export async function list(path, query, signal) {
  /** @type {any[]} */
  const rows = [];
  let next = path;
  while (next) {
    const answer = await get(next, query, signal);
    rows.push(...answer.data);
    const following = answer.metadata?.next ?? answer.next;
    // The server names its own address, which a proxy may not have: the query is what counts.
    next = following && path + new URL(following, BASE).search;
    query = {};
  }
  return rows;
}

/** Return text that a POSIX shell reads as one word. @param {string} text */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return a request as a command of curl. @param {ApiRequest} request */
export function curl({ method, url, body }) {
  const words = ["curl", "-sS"];
  if (method !== "GET") words.push("-X", method);
  if (needsLogin.peek()) words.push("-H", '"Authorization: Bearer $TOKEN"');
  if (body !== null) words.push("-H", "'Content-Type: application/json'", "-d", quoted(body));
  return [...words, quoted(url)].join(" ");
}
