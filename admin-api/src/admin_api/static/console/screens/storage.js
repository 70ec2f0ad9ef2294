/** Storage: the last scrub, damaged bytes that are kept, and segments with their sizes and the state of their indexes. */

import { html } from "../vendor/preact.js";
import { get, list } from "../core/api.js";
import { count, plural, size } from "../core/format.js";
import { moment } from "../core/preferences.js";
import { link } from "../core/router.js";
import { badge, number, shown, Table, text, useLoaded } from "../parts/screen.js";

/** @type {Record<string, string>} */
const LOOKS = { ok: "good", missing: "warn", damaged: "bad" };

const COLUMNS = [
  text("topic_name", "Topic", (name) => html`<a href=${link(["topics", name, "partitions"])}>${name}</a>`),
  number("partition_id", "Partition"),
  number("base_offset", "Base offset", count),
  number("bytes", "Size", size),
  number("indexes", "Indexes", size, (row) => row.offset_index_bytes + row.time_index_bytes),
  text("max_timestamp", "Newest record", moment),
  text("index_health", "State", (health, row) => html`${badge(health, LOOKS[health])}${row.is_active && html` ${badge("active")}`}`),
];

const FILE_COLUMNS = [
  text("partition", "Topic and partition", undefined, (row) => `${row.topic_name} : ${row.partition_id}`),
  number("bytes", "Size", size),
  text("modified_at", "Cut out", moment),
  text("path", "File", (path) => html`<code>${path}</code>`),
];

/** @param {{scrub: any}} props */
function Scrub({ scrub }) {
  const { last_at: last, next_at: next, damaged_segments: damaged, unreadable_batches: unreadable, quarantine } = scrub;
  return html`<p class="facts">Last scrub: ${last === null ? "none so far" : moment(last)}${next !== null && ` · next: ${moment(next)}`} · ${""}
      ${damaged > 0 ? html`<b>${plural(damaged, "damaged segment")} since the start</b>` : "no damage since the start"}
      ${unreadable > 0 && html` · <b>${plural(unreadable, "batch", "batches")} that clients cannot read</b>`}</p>
    ${quarantine.length > 0 && html`<h2>Quarantine</h2>
      <p class="small">Damaged bytes that were cut out of logs. <code>millrace storage dump-log FILE</code> shows what is in them.${scrub.is_truncated && ` The first ${quarantine.length} files are listed.`}</p>
      <${Table} id="f" noun="file" rows=${quarantine} columns=${FILE_COLUMNS} keyOf=${(/** @type {any} */ row) => row.path} />
      <h2 class="below">Segments</h2>`}`;
}

export function Screen() {
  const loaded = useLoaded(
    async (signal) => {
      const [health, scrub, segments] = await Promise.all([
        get("/api/v1/health", {}, signal),
        get("/api/v1/storage/scrub", {}, signal),
        list("/api/v1/storage/segments", {}, signal),
      ]);
      return { health, scrub, segments };
    },
    [],
    true,
  );
  return html`<h1>Storage</h1>
    ${shown(loaded, ({ health, scrub, segments }) => html`
      ${health.disk && html`<p class="facts">Data folder <code>${health.disk.path}</code>: ${size(segments.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + Number(each.bytes), 0))} in ${count(segments.length)} segments, ${""}
        ${size(health.disk.usable_bytes)} of ${size(health.disk.total_bytes)} free</p>`}
      ${health.offline_partitions_count > 0 && html`<p class="failure">${health.offline_partitions.map((/** @type {any} */ each) => `${each.topic_name}-${each.partition_id}`).join(", ")} offline</p>`}
      <${Scrub} scrub=${scrub} />
      <${Table} noun="segment" first="-bytes" rows=${segments} columns=${COLUMNS} search=${["folder"]}
        keyOf=${(/** @type {any} */ row) => `${row.topic_name}/${row.partition_id}/${row.base_offset}`} />`)}`;
}
