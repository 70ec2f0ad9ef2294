/** Tables that are sorted and searched in the browser. The order and the search are in the URL. */

import { Component, html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { plural } from "../core/format.js";
import { change, parameter } from "../core/router.js";

/**
 * A column: what rows are sorted by, and what a cell shows.
 * @typedef {{id: string, label: string, value: (row: any) => any, cell?: (row: any) => unknown, isNumber?: boolean,
 *   isMinor?: boolean}} Column
 */

/** Rows drawn at first, and added when the end of the table comes into view. */
const DRAWN = 150;

class Row extends Component {
  /** @param {any} next */
  shouldComponentUpdate(next) {
    return next.row !== this.props.row || next.columns !== this.props.columns;
  }

  /** @param {any} props */
  render({ row, columns }) {
    return html`<tr role="row" data-row>
      ${columns.map(
        (/** @type {Column} */ each, /** @type {number} */ number) => html`<td
          role=${number === 0 ? "rowheader" : "cell"}
          data-label=${each.label}
          class=${`${each.isNumber ? "number" : ""} ${each.isMinor ? "minor" : ""}`}
        >${each.cell ? each.cell(row) : each.value(row)}</td>`,
      )}
    </tr>`;
  }
}

/** @param {any} first @param {any} second */
function compared(first, second) {
  if (first === second) return 0;
  if (first === null || first === undefined) return 1;
  if (second === null || second === undefined) return -1;
  if (typeof first === "string") return first.localeCompare(second, "en", { numeric: true });
  return first < second ? -1 : 1;
}

/**
 * Return the rows that have the text, in the order of a column; `-` before its id turns the order around.
 * @param {any[]} rows @param {Column[]} columns @param {string} text @param {(row: any) => string} textOf @param {string} order
 */
export function arranged(rows, columns, text, textOf, order) {
  const part = text.toLowerCase();
  const found = part ? rows.filter((row) => textOf(row).toLowerCase().includes(part)) : [...rows];
  const isDown = order.startsWith("-");
  const column = columns.find((each) => each.id === order.replace(/^-/, ""));
  if (!column) return found;
  const keyed = found.map((row) => ({ row, key: column.value(row) }));
  keyed.sort((first, second) => compared(first.key, second.key));
  if (isDown) keyed.reverse();
  return keyed.map((each) => each.row);
}

/**
 * @param {{caption: string, columns: Column[], rows: any[], keyOf: (row: any) => string, textOf?: (row: any) => string,
 *   empty?: string, noun?: string, id?: string, first?: string, tools?: unknown}} props
 * `textOf` gives the text that the search looks through; without it there is no search. `first` is the order at first.
 * `id` begins the names of a table's parameters, since a screen may have two tables.
 */
export function Table({ caption, columns, rows, keyOf, textOf, empty = "There are none.", noun = "row", id = "", first = columns[0].id, tools }) {
  const text = textOf ? parameter(`${id}q`) : "";
  const order = parameter(`${id}sort`) || first;
  const [drawn, setDrawn] = useState(DRAWN);
  const found = useMemo(() => arranged(rows, columns, text, textOf ?? keyOf, order), [rows, columns, text, order]);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => setDrawn(DRAWN), [text, order]);
  useEffect(() => {
    if (!end.current) return undefined;
    const seen = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && setDrawn((old) => old + DRAWN));
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [found.length > drawn, drawn]);
  const sorted = order.replace(/^-/, "");
  return html`
    ${(textOf || tools) && html`<div class="tools">
      ${textOf && html`<label class="search"><span class="hidden">Search</span>
        <input type="search" placeholder="Search ( / )" value=${text} onInput=${(/** @type {any} */ event) => change({ [`${id}q`]: event.target.value })} />
      </label>
      <span class="small" role="status">${text ? `${plural(found.length, noun)} of ${rows.length}` : plural(rows.length, noun)}</span>`}
      ${tools}
    </div>`}
    ${found.length === 0
      ? html`<p class="empty">${rows.length ? `No ${noun} has this text.` : empty}</p>`
      : html`<table role="table">
          <caption class="hidden">${caption}</caption>
          <thead role="rowgroup"><tr role="row">
            ${columns.map((each) => {
              const isSorted = each.id === sorted;
              const isDown = order.startsWith("-");
              return html`<th role="columnheader" scope="col" class=${`${each.isNumber ? "number" : ""} ${each.isMinor ? "minor" : ""}`}
                aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : undefined}>
                <button type="button" class="plain" onClick=${() =>
                  change({ [`${id}sort`]: isSorted ? (isDown ? each.id : `-${each.id}`) : each.isNumber ? `-${each.id}` : each.id })}
                >${each.label}<span aria-hidden="true" class="arrow">${isSorted ? (isDown ? "▾" : "▴") : ""}</span></button>
              </th>`;
            })}
          </tr></thead>
          <tbody role="rowgroup">${found.slice(0, drawn).map((row) => html`<${Row} key=${keyOf(row)} row=${row} columns=${columns} />`)}</tbody>
        </table>
        ${found.length > drawn && html`<p ref=${end}><button type="button" onClick=${() => setDrawn(Infinity)}>Show all ${found.length}</button></p>`}`}
  `;
}
