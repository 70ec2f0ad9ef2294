/** Charts of the last 15 minutes, drawn as SVG. A sentence says the same to those who do not see it. */

import { html } from "../vendor/preact.js";
import { moment } from "../core/preferences.js";

const WIDTH = 600;
const HEIGHT = 100;

/** Return a number of one digit and zeros that is at least `value`, as the top of an axis. @param {number} value */
export function topOf(value) {
  if (value <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return Math.ceil(value / unit) * unit;
}

/**
 * Return the lines of a series as an SVG path, one for each run of values; empty for less than two.
 * @param {{at: number, value: number | null}[]} points @param {number} top
 */
export function pathOf(points, top) {
  const [first, last] = [points[0]?.at ?? 0, points.at(-1)?.at ?? 0];
  if (last <= first) return "";
  let isOpen = false;
  return points
    .map(({ at, value }) => {
      if (value === null) {
        isOpen = false;
        return "";
      }
      const place = `${(((at - first) / (last - first)) * WIDTH).toFixed(1)} ${(HEIGHT - (Number(value) / top) * HEIGHT).toFixed(1)}`;
      const step = `${isOpen ? "L" : "M"}${place}`;
      isOpen = true;
      return step;
    })
    .join("");
}

/**
 * @param {{label: string, points: {at: number, value: number | null}[], shown: (value: number | null) => string}} props
 * `shown` makes text of a value, also on the axis.
 */
export function Chart({ label, points, shown }) {
  const values = points.map((each) => each.value).filter((each) => each !== null).map(Number);
  const last = values.at(-1) ?? null;
  const summary = values.length
    ? `${label}: ${shown(last)} now, between ${shown(Math.min(...values))} and ${shown(Math.max(...values))} in 15 minutes`
    : `${label}: no figures yet`;
  const top = topOf(Math.max(0, ...values));
  const clock = (/** @type {number} */ at) => moment(at).slice(11, 16);
  return html`<figure class="chart" role="img" aria-label=${summary}>
    <figcaption>${label} <b>${last === null ? "" : shown(last)}</b></figcaption>
    ${values.length < 2
      ? html`<p class="empty">Figures come every 15 seconds.</p>`
      : html`<div class="plot"><span>${shown(top)}</span><svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          <path class="grid" d=${`M0 0H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT}H${WIDTH}`} />
          <path class="line" d=${pathOf(points, top)} /></svg>
          <span class="from">${clock(points[0].at)}</span><span class="to">${clock(points[points.length - 1].at)}</span></div>`}
  </figure>`;
}
