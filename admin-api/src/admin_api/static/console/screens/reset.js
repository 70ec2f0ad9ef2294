/** Offsets of a group: where they would go is seen before they move; the old ones can be saved and put back. */

import { html, useState } from "../vendor/preact.js";
import { alter, at } from "../core/api.js";
import { parse, stringify } from "../core/exact_json.js";
import { count, plural, timeOf } from "../core/format.js";
import { isUtc } from "../core/preferences.js";
import { Check, Field, FormDialog, say, useForm } from "../parts/dialog.js";
import { Failure, number, Table, text as column } from "../parts/screen.js";

/** @type {[string, string][]} */
const TARGETS = [
  ["earliest", "the oldest record"],
  ["latest", "the end"],
  ["offset", "an offset"],
  ["timestamp", "a time"],
  ["duration", "some time ago"],
  ["shift-by", "back or forward by records"],
];

/** @type {Record<string, string[]>} target -> label and hint of its value, and what it is at first */
const VALUES = {
  offset: ["Offset", "The same for each partition, within its records"],
  timestamp: ["Time", "As 2026-01-31 12:00:00"],
  duration: ["How long ago", "As 90m, 12h or 7d", "1h"],
  "shift-by": ["Records", "Negative: back, to read them again", "-100"],
};
const UNITS = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Return the value of a request; null for a target without one. Throws an Error for people. @param {string} target @param {string} text @param {boolean} utc */
export function valueOf(target, text, utc) {
  if (target === "offset" || target === "shift-by") {
    if (!/^-?\d{1,18}$/.test(text.trim())) throw new Error("Write a whole number.");
    return BigInt(text.trim());
  }
  if (target === "timestamp") {
    const ms = timeOf(text, utc);
    if (ms === null) throw new Error("Write the time as 2026-01-31 12:00:00.");
    return ms;
  }
  if (target === "duration") {
    const parts = /^(\d{1,6})\s*([smhd])$/.exec(text.trim());
    if (parts === null) throw new Error("Write the duration as 90m, 12h or 7d.");
    return `PT${Number(parts[1]) * UNITS[/** @type {"s"} */ (parts[2])]}S`;
  }
  return null;
}

/** @param {any} row */
const difference = (row) => (row.before === null ? null : BigInt(row.after) - BigInt(row.before));
const COLUMNS = [
  column("partition", "Topic and partition", undefined, (row) => `${row.topic_name} : ${row.partition_id}`),
  number("before", "Before", count),
  number("after", "After", (after, row) => html`<span class=${row.before === after ? "" : "changed"}>${count(after)}</span>`),
  number("difference", "Difference", (by) => (by === null ? "new" : by > 0n ? `+${count(by)}` : count(by)), difference),
];

/**
 * A form that asks the server for a preview first; only then can the change be made, and it is the one that was seen.
 * @param {{title: string, ask: (isDry: boolean) => Promise<any[]>, inputs: unknown[], children?: unknown, isReady?: boolean}} props
 */
function Previewed({ title, ask, inputs, children, isReady = true }) {
  const [seen, setSeen] = useState(/** @type {{of: string, rows: any[]} | null} */ (null));
  const now = JSON.stringify(inputs, (_, each) => (typeof each === "bigint" ? String(each) : each));
  const rows = seen?.of === now ? seen.rows : null;
  const moving = rows?.filter((each) => each.before !== each.after).length;
  async function act() {
    // mutant: console-preview-first
    if (rows === null) {
      setSeen({ of: now, rows: await ask(true) });
      throw null; // stays open, with the preview
    }
    await ask(false);
    say(`${plural(rows.length, "offset")} moved.`);
  }
  return html`<${FormDialog} title=${title} action=${rows === null ? "Preview" : "Move the offsets"} act=${act} isReady=${isReady && moving !== 0} isDangerous=${rows !== null} isWide>
    ${children}
    ${rows !== null && html`<p role="status">${moving ? `${plural(moving, "partition")} of ${rows.length} would move:` : "Nothing would move: the offsets are there already."}</p>
      <${Table} id="p" noun="offset" rows=${rows} columns=${COLUMNS} />`}
  </${FormDialog}>`;
}

/** @param {{group: string, rows: any[], state: string}} props */
export function Reset({ group, rows, state }) {
  const topics = [...new Set(rows.map((each) => each.topic_name))];
  const [{ chosen, search, target, text }, set, bind] = useForm({ chosen: topics, search: "", target: "earliest", text: "" });
  const shown = topics.filter((each) => each.toLowerCase().includes(search.toLowerCase()));
  async function ask(/** @type {boolean} */ isDry) {
    const value = valueOf(target, text, isUtc.peek());
    const found = [];
    for (const topic of chosen.length === topics.length ? [undefined] : chosen) {
      const answer = await alter("POST", at`/api/v1/consumer-groups/${group}/offsets:reset`, { topic, to: target, value: value ?? undefined, dry_run: isDry });
      found.push(...answer.data);
    }
    return found;
  }
  return html`<${Previewed} title=${`Reset the offsets of ${group}`} ask=${ask} inputs=${[chosen, target, text]} isReady=${chosen.length > 0}>
    ${state !== "EMPTY" && html`<p class="notice">The group is ${state.toLowerCase().replaceAll("_", " ")}: its members would overwrite the offsets. Stop them first; the server refuses the reset until then.</p>`}
    <fieldset><legend>Topics</legend>
      ${topics.length > 8 && html`<${Field} label="Search topics" type="search" ...${bind("search")} />`}
      <div class="many">${shown.map((each) => html`<${Check} key=${each} label=${each} isOn=${chosen.includes(each)}
        onInput=${(/** @type {boolean} */ isOn) => set({ chosen: isOn ? [...chosen, each] : chosen.filter((other) => other !== each) })} />`)}</div>
      ${topics.length === 0 && html`<p class="empty">The group has committed no offset.</p>`}
    </fieldset>
    <div class="row"><${Field} label="Go to" value=${target} options=${TARGETS} onInput=${(/** @type {string} */ to) => set({ target: to, text: VALUES[to]?.[2] ?? "" })} />
      ${VALUES[target] && html`<${Field} label=${VALUES[target][0]} hint=${VALUES[target][1]} ...${bind("text")} />`}</div>
  </${Previewed}>`;
}

/** Offsets of one request to put them back. */
const TOGETHER = 500;

/** Return what is kept of a partition. @param {any} each */
const offsetOf = (each) => ({ topic_name: String(each.topic_name), partition_id: each.partition_id, offset: BigInt(each.offset), leader_epoch: each.leader_epoch ?? -1, metadata: each.metadata ?? "" });

/** Let the browser keep the offsets of a group as a file. @param {string} group @param {any[]} rows */
export function save(group, rows) {
  const data = rows.map(offsetOf);
  const url = URL.createObjectURL(new Blob([stringify({ consumer_group_id: group, data })], { type: "application/json" }));
  const own = document.createElement("a");
  own.href = url;
  own.download = `${group.replace(/[^\w.-]/g, "_")}-offsets.json`;
  own.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  say("The offsets are saved as a file.");
}

/** @param {{group: string}} props */
export function Restore({ group }) {
  const [offsets, setOffsets] = useState(/** @type {any[]} */ ([]));
  const [problem, setProblem] = useState("");
  const given = async (/** @type {any} */ event) => {
    setProblem("");
    setOffsets([]);
    try {
      const found = parse(await event.target.files[0].text()).data;
      setOffsets(found.map(offsetOf));
    } catch {
      setProblem("This file has no offsets that were saved here.");
    }
  };
  async function ask(/** @type {boolean} */ isDry) {
    const found = [];
    for (let first = 0; first < offsets.length; first += TOGETHER) {
      const body = { offsets: offsets.slice(first, first + TOGETHER), dry_run: isDry };
      found.push(...(await alter("POST", at`/api/v1/consumer-groups/${group}/offsets:restore`, body)).data);
    }
    return found;
  }
  return html`<${Previewed} title=${`Put back offsets of ${group}`} ask=${ask} inputs=${[offsets]} isReady=${offsets.length > 0}>
    <label class="field"><span>File of saved offsets</span><input type="file" accept="application/json" onChange=${given} /></label>
    <${Failure} error=${problem && { message: problem }} />
    ${offsets.length > 0 && html`<p>${plural(offsets.length, "offset")} in the file.</p>`}
  </${Previewed}>`;
}
