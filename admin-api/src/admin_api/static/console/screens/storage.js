/** Storage: the last scrub, damaged bytes that are kept, and segments with their sizes and the state of their indexes. */

import { html } from "../vendor/preact.js";
import { get, list } from "../core/api.js";
import { count, plural, size, time } from "../core/format.js";
import { isUtc } from "../core/preferences.js";
import { link } from "../core/router.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";

const HEALTH = { ok: "good", growing: "", missing: "warn", damaged: "bad" };

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  { id: "topic", label: "Topic", value: (row) => row.topic_name, cell: (row) => html`<a href=${link(["topics", row.topic_name, "partitions"])}>${row.topic_name}</a>` },
  { id: "partition", label: "Partition", value: (row) => row.partition_id, isNumber: true },
  { id: "base", label: "Base offset", value: (row) => row.base_offset, cell: (row) => count(row.base_offset), isNumber: true },
  { id: "bytes", label: "Size", value: (row) => row.bytes, cell: (row) => size(row.bytes), isNumber: true },
  { id: "indexes", label: "Indexes", value: (row) => row.offset_index_bytes + row.time_index_bytes, cell: (row) => size(row.offset_index_bytes + row.time_index_bytes), isNumber: true },
  { id: "newest", label: "Newest record", value: (row) => row.max_timestamp, cell: (row) => time(row.max_timestamp, isUtc.value) },
  { id: "health", label: "State", value: (row) => row.index_health,
    cell: (row) => html`<span class=${`badge ${HEALTH[/** @type {"ok"} */ (row.index_health)] ?? ""}`}>${row.index_health}</span>${row.is_active && html` <span class="badge">active</span>`}` },
];

/** @type {import("../parts/table.js").Column[]} */
const FILE_COLUMNS = [
  { id: "partition", label: "Topic and partition", value: (row) => `${row.topic_name} : ${row.partition_id}` },
  { id: "size", label: "Size", value: (row) => row.bytes, cell: (row) => size(row.bytes), isNumber: true },
  { id: "cut", label: "Cut out", value: (row) => row.modified_at, cell: (row) => time(row.modified_at, isUtc.value) },
  { id: "path", label: "File", value: (row) => row.path, cell: (row) => html`<code>${row.path}</code>` },
];

/** @param {{scrub: any}} props */
function Scrub({ scrub }) {
  const { last_at: last, next_at: next, damaged_segments: damaged, unreadable_batches: unreadable, quarantine, is_truncated: isTruncated } = scrub;
  return html`<p class="facts">Last scrub: ${last === null ? "none so far" : time(last, isUtc.value)}${next !== null && ` · next: ${time(next, isUtc.value)}`} · ${""}
      ${damaged > 0 ? html`<b>${plural(damaged, "damaged segment")} since the start</b>` : "no damage since the start"}
      ${unreadable > 0 && html` · <b>${plural(unreadable, "batch", "batches")} that clients cannot read</b>`}</p>
    ${quarantine.length > 0 && html`<h2>Quarantine</h2>
      <p class="small">Damaged bytes that were cut out of logs. <code>millrace storage dump-log FILE</code> shows what is in them.${isTruncated && ` The first ${quarantine.length} files are listed.`}</p>
      <${Table} id="f" caption="Quarantine" noun="file" rows=${quarantine} columns=${FILE_COLUMNS} keyOf=${(/** @type {any} */ row) => row.path} />
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
    <${Shown} of=${loaded}>${(/** @type {any} */ { health, scrub, segments }) => html`
      ${health.disk && html`<p class="facts">Data folder <code>${health.disk.path}</code>: ${size(segments.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + Number(each.bytes), 0))} in ${count(segments.length)} segments, ${""}
        ${size(health.disk.usable_bytes)} of ${size(health.disk.total_bytes)} free</p>`}
      ${health.offline_partitions_count > 0 && html`<p class="failure">${health.offline_partitions.map((/** @type {any} */ each) => `${each.topic_name}-${each.partition_id}`).join(", ")} offline</p>`}
      <${Scrub} scrub=${scrub} />
      <${Table} caption="Segments" noun="segment" first="-bytes" rows=${segments} columns=${COLUMNS} textOf=${(/** @type {any} */ row) => row.folder}
        keyOf=${(/** @type {any} */ row) => `${row.topic_name}/${row.partition_id}/${row.base_offset}`} />`}</${Shown}>`;
}
