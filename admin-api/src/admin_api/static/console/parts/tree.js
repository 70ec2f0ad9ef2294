/** A JSON value as a tree, with every digit as it was written. */

import { html, useState } from "../vendor/preact.js";
import { plural } from "../core/format.js";
import { button } from "./screen.js";

/** Members that are shown at a time, and levels that are open at first. */
const SHOWN = 100;
const OPEN_LEVELS = 2;
/** Characters of a string that are shown at first. */
const TEXT_MAX = 2000;

/** @param {{node: JsonNode, name?: string | number, level?: number}} props */
export function Tree({ node, name, level = 0 }) {
  const [isOpen, setOpen] = useState(level < OPEN_LEVELS);
  const [most, setMost] = useState(SHOWN);
  const [isWhole, setWhole] = useState(false);
  const label = name === undefined ? null : html`<span class="name">${name}</span>: `;
  if (node.kind !== "object" && node.kind !== "array") {
    const isCut = node.kind === "string" && node.text.length > TEXT_MAX && !isWhole;
    const text = isCut ? node.text.slice(0, TEXT_MAX) : node.text;
    return html`<div class="leaf">${label}<span class=${node.kind}>${node.kind === "string" ? JSON.stringify(text) : text}</span>
      ${isCut && html` ${button(`all ${node.text.length} characters`, () => setWhole(true), "plain")}`}</div>`;
  }
  /** @type {[string | number, JsonNode][]} */
  const members = node.kind === "object" ? node.entries : node.items.map((each, at) => [at, each]);
  return html`<details open=${isOpen} onToggle=${(/** @type {any} */ event) => {
    event.stopPropagation();
    setOpen(event.currentTarget.open);
  }}>
    <summary>${label}<span class="quiet">${node.kind === "object" ? `{ } ${plural(members.length, "member")}` : `[ ] ${plural(members.length, "item")}`}</span></summary>
    ${isOpen && html`<div class="members">
      ${members.slice(0, most).map(([each, inner], at) => html`<${Tree} key=${at} node=${inner} name=${each} level=${level + 1} />`)}
      ${members.length > most && button(`${members.length - most} more`, () => setMost(most * 10), "plain")}
    </div>`}
  </details>`;
}
