/**
 * What screens are made of: buttons, badges and tabs; what is loaded of the API, again at an interval; tables that are
 * sorted and searched in the browser. The order and the search are in the URL.
 */

import { Component, html, signal, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { get, list } from "../core/api.js";
import { plural } from "../core/format.js";
import { intervalS } from "../core/preferences.js";
import { change, link, parameter } from "../core/router.js";

/** @param {unknown} label @param {(event: any) => unknown} act @param {"" | "main" | "danger" | "plain"} [look] */
export const button = (label, act, look = "") => html`<button type="button" class=${look} onClick=${act}>${label}</button>`;

/** @param {unknown} text @param {string} [look] */
export const badge = (text, look = "") => html`<span class=${`badge ${look}`}>${text}</span>`;

/** @param {{of: string, base: string[], tabs: string[][], now: string}} props `tabs` are ids and names */
export const Tabs = ({ of, base, tabs, now }) => html`<div class="tabs" role="navigation" aria-label=${of}>${tabs.map(
  ([id, name]) => html`<a key=${id} href=${link([...base, id])} aria-current=${id === now ? "page" : undefined}>${name}</a>`,
)}</div>`;

const changes = signal(0);

/** Load again what the screen shows: something of it was changed. */
export function reload() {
  changes.value += 1;
}

/**
 * Load for as long as a component is shown. `isLive` loads again at the chosen interval, while the page is visible.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} inputs @param {boolean} [isLive]
 * @returns {Loaded<T>}
 */
export function useLoaded(load, inputs, isLive = false) {
  const [state, setState] = useState(/** @type {{data: T | null, error: Error | null, isLoading: boolean}} */ ({ data: null, error: null, isLoading: true }));
  const seconds = isLive ? intervalS.value : 0;
  useEffect(() => {
    setState((old) => ({ ...old, data: null, error: null, isLoading: true }));
  }, inputs);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    async function run() {
      clearTimeout(timer);
      if (!document.hidden || !seconds) {
        try {
          const data = await load(stop.signal);
          if (!stop.signal.aborted) setState({ data, error: null, isLoading: false });
        } catch (error) {
          if (!stop.signal.aborted) setState((old) => ({ ...old, error: /** @type {Error} */ (error), isLoading: false }));
        }
      }
      if (seconds && !stop.signal.aborted) timer = setTimeout(run, seconds * 1000);
    }
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...inputs, seconds, changes.value]);
  return state;
}

/** Load a list of the API, or another answer. @param {string} path @param {Query} [query] @param {boolean} [isLive] @param {(path: string, query: Query, signal: AbortSignal) => Promise<any>} [load] */
export const useList = (path, query = {}, isLive = false, load = list) => useLoaded((signal) => load(path, query, signal), [path, ...Object.values(query)], isLive);
export const useGet = (/** @type {string} */ path) => useList(path, {}, false, get);

/** An error with the id under which the server's log has it. @param {{error: any, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <p>${error.message}</p>
    ${error.requestId && html`<p class="small">Error ${error.code}, X-Request-Id <code>${error.requestId}</code></p>`}
    ${retry && button("Try again", retry)}
  </div>`;
}

/** Draw what depends on an answer, or why there is none. @param {Loaded<any>} of @param {(data: any) => unknown} draw */
export const shown = (of, draw) => html`<${Failure} error=${of.error} retry=${reload} />
  ${of.data !== null ? draw(of.data) : of.isLoading && html`<p class="loading" role="status">Loading …</p>`}`;

/** The head of a screen within another one. @param {{of: string, path: string[], name: string, children?: unknown}} props `of` names the other, `children` are buttons */
export const Head = ({ of, path, name, children }) => html`<p class="back"><a href=${link(path)} data-back>← ${of}</a></p>
  <div class="title"><h1 class="name">${name}</h1>${children && html`<div class="actions">${children}</div>`}</div>`;

/**
 * Return the error of the last try, whether one is under way, and what tries `act` when a form is sent.
 * @param {() => Promise<unknown>} act @returns {[any, boolean, (event: Event) => Promise<void>]}
 */
export function useAction(act) {
  const [state, setState] = useState(/** @type {{error: unknown, isBusy: boolean}} */ ({ error: null, isBusy: false }));
  return [state.error, state.isBusy, async (event) => {
    event.preventDefault();
    if (state.isBusy) return;
    setState({ error: null, isBusy: true });
    setState({ error: await act().then(() => null, (error) => error), isBusy: false });
  }];
}

/** Return a component that is drawn again only when a prop or a signal is another. @param {(props: any) => unknown} draw */
export const kept = (draw) =>
  class extends Component {
    /** @param {any} next @param {any} state another one if a signal has changed */
    shouldComponentUpdate(next, state) {
      return state !== /** @type {any} */ (this).state || Object.keys(next).some((each) => next[each] !== this.props[each]);
    }
    /** @param {any} props */
    render(props) {
      return draw(props);
    }
  };

/** Return a column. @param {string} id @param {string} label @param {Cell} [shown] @param {(row: any) => any} [value] @returns {Column} */
export const text = (id, label, shown, value) => ({ id, label, shown, value });

/** Return a column of numbers. @param {string} id @param {string} label @param {Cell} [shown] @param {(row: any) => any} [value] @returns {Column} */
export const number = (id, label, shown, value) => ({ ...text(id, label, shown, value), isNumber: true });

/** @param {Column} column @param {any} row */
const valueOf = (column, row) => (column.value ? column.value(row) : row[column.id]);

/** Rows that fill the window: drawn at first and after a key. As many are added in each frame, until so much is below it. */
const aWindow = () => Math.ceil(innerHeight / ROW_PX);
const ROW_PX = 32;
const BELOW = "3000px";
const BELOW_FOUND = "100px";

const Row = kept(({ row, columns }) => html`<tr role="row" data-row>
  ${columns.map((/** @type {Column} */ each, /** @type {number} */ number) => html`<td
    role=${number === 0 ? "rowheader" : "cell"} data-label=${each.label} class=${each.isNumber ? "number" : undefined}
  >${each.shown ? each.shown(valueOf(each, row), row) : valueOf(each, row)}</td>`)}</tr>`);

const { compare } = new Intl.Collator("en", { numeric: true });

/** @param {any} first @param {any} second */
function compared(first, second) {
  if (first === second) return 0;
  if (first == null) return 1;
  if (second == null) return -1;
  if (typeof first === "string") return compare(first, second);
  return first < second ? -1 : 1;
}

/** Return the rows in the order of a column; `-` before its id turns it around. @param {any[]} rows @param {Column[]} columns @param {string} order */
export function sorted(rows, columns, order) {
  const column = columns.find((each) => each.id === order.replace(/^-/, ""));
  if (!column) return rows;
  const keyed = rows.map((row) => ({ row, key: valueOf(column, row) }));
  keyed.sort((first, second) => compared(first.key, second.key));
  if (order.startsWith("-")) keyed.reverse();
  return keyed.map((each) => each.row);
}

/** Return the rows that have the text in these fields. @param {any[]} rows @param {string} part @param {string[]} fields */
export function having(rows, part, fields) {
  const wanted = part.toLowerCase();
  return wanted ? rows.filter((row) => fields.map((each) => row[each]).join(" ").toLowerCase().includes(wanted)) : rows;
}

/** @param {Look & {rows: any[]}} props */
export function Table({ noun, columns, rows, keyOf = (row) => String(valueOf(columns[0], row)), search, empty = "There are none.", id = "", first = columns[0].id, tools }) {
  const part = search ? parameter(`${id}q`) : "";
  const order = parameter(`${id}sort`) || first;
  const of = `${order} ${part}`;
  const [grown, setGrown] = useState({ of, drawn: aWindow() });
  const drawn = grown.of === of ? grown.drawn : aWindow();
  const arranged = useMemo(() => sorted(rows, columns, order), [rows, columns, order]);
  const found = useMemo(() => having(arranged, part, search ?? []), [arranged, part]);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!end.current) return undefined;
    const seen = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && setGrown((old) => ({ of, drawn: (old.of === of ? old.drawn : aWindow()) + aWindow() })), { rootMargin: part ? BELOW_FOUND : BELOW });
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [found.length > drawn, drawn, of]);
  const isDown = order.startsWith("-");
  return html`
    ${(search || tools) && html`<div class="tools">
      ${search && html`<label class="search"><span class="hidden">Search</span>
        <input type="search" placeholder="Search ( / )" value=${part} onInput=${(/** @type {any} */ event) => change({ [`${id}q`]: event.target.value })} />
      </label>
      <span class="small" role="status">${part ? `${plural(found.length, noun)} of ${rows.length}` : plural(rows.length, noun)}</span>`}
      ${tools}
    </div>`}
    ${found.length === 0
      ? html`<p class="empty">${rows.length ? `No ${noun} has this text.` : empty}</p>`
      : html`<table role="table">
          <caption class="hidden">${noun}s</caption>
          <thead role="rowgroup"><tr role="row">
            ${columns.map((each) => {
              const isSorted = each.id === order.replace(/^-/, "");
              return html`<th role="columnheader" scope="col" class=${each.isNumber ? "number" : ""}
                aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : undefined}>
                <button type="button" class="plain" onClick=${() => change({ [`${id}sort`]: `${(isSorted ? !isDown : each.isNumber) ? "-" : ""}${each.id}` })}>${each.label}<span aria-hidden="true" class="arrow">${isSorted ? (isDown ? "▾" : "▴") : ""}</span></button>
              </th>`;
            })}
          </tr></thead>
          <tbody role="rowgroup">${found.slice(0, drawn).map((row) => html`<${Row} key=${keyOf(row)} row=${row} columns=${columns} />`)}</tbody>
        </table>
        ${found.length > drawn && html`<p ref=${end}>${button(`Show all ${found.length}`, () => setGrown({ of, drawn: Infinity }))}</p>`}`}
  `;
}

/** A table of what is loaded. @param {Look & {of: Loaded<any[]>}} props */
export const List = ({ of, ...look }) => shown(of, (rows) => html`<${Table} rows=${rows} ...${look} />`);
