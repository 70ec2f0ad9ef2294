/** Tables that are sorted and searched in the browser. The order and the search are in the URL. */

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { plural } from "../core/format.js";
import { change, parameter } from "../core/router.js";
import { button, kept, shown } from "./screen.js";

/** Return a column. @param {string} id @param {string} label @param {Cell} [shown] @param {(row: any) => any} [value] @returns {Column} */
export const text = (id, label, shown, value) => ({ id, label, shown, value });

/** Return a column of numbers. @param {string} id @param {string} label @param {Cell} [shown] @param {(row: any) => any} [value] @returns {Column} */
export const number = (id, label, shown, value) => ({ ...text(id, label, shown, value), isNumber: true });

/** @param {Column} column @param {any} row */
const valueOf = (column, row) => (column.value ? column.value(row) : row[column.id]);

/**
 * Rows that fill the window: drawn at first and after a key. As many are added at a time, in ms, up to SOON, and before
 * the end of the table comes into view.
 */
const aWindow = () => Math.ceil(innerHeight / ROW_PX);
const ROW_PX = 32;
const SOON = 150;
const SOON_MS = 100;
const BEFORE = "200px";

const Row = kept(({ row, columns }) => html`<tr role="row" data-row>
  ${columns.map((/** @type {Column} */ each, /** @type {number} */ number) => html`<td
    role=${number === 0 ? "rowheader" : "cell"} data-label=${each.label} class=${each.isNumber ? "number" : undefined}
  >${each.shown ? each.shown(valueOf(each, row), row) : valueOf(each, row)}</td>`)}</tr>`);

const { compare } = new Intl.Collator("en", { numeric: true });

/** @param {any} first @param {any} second */
function compared(first, second) {
  if (first === second) return 0;
  if (first === null || first === undefined) return 1;
  if (second === null || second === undefined) return -1;
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
  const grow = () => setGrown({ of, drawn: drawn + aWindow() });
  useEffect(() => {
    if (drawn >= Math.min(found.length, SOON)) return undefined;
    const timer = setTimeout(grow, SOON_MS);
    return () => clearTimeout(timer);
  }, [of, drawn, found.length]);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!end.current) return undefined;
    const seen = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && grow(), { rootMargin: BEFORE });
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [found.length > drawn, drawn, of]);
  const by = order.replace(/^-/, "");
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
              const isSorted = each.id === by;
              const isDown = order.startsWith("-");
              return html`<th role="columnheader" scope="col" class=${each.isNumber ? "number" : ""}
                aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : undefined}>
                <button type="button" class="plain" onClick=${() =>
                  change({ [`${id}sort`]: isSorted ? (isDown ? each.id : `-${each.id}`) : each.isNumber ? `-${each.id}` : each.id })}
                >${each.label}<span aria-hidden="true" class="arrow">${isSorted ? (isDown ? "▾" : "▴") : ""}</span></button>
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
