/** Topics: all of them with sizes and rates, and a new one. */

import { html, useState } from "../vendor/preact.js";
import { alter, list } from "../core/api.js";
import { count, rate, size } from "../core/format.js";
import { change, go, link, parameter } from "../core/router.js";
import { may } from "../core/session.js";
import { Check, Field, FormDialog, say } from "../parts/dialog.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  {
    id: "name",
    label: "Topic",
    value: (row) => row.topic_name,
    cell: (row) => html`<a href=${link(["topics", row.topic_name])}>${row.topic_name}</a>${row.is_internal && html` <span class="badge">internal</span>`}${
      row.offline_partitions_count > 0 && html` <span class="badge bad">${row.offline_partitions_count} offline</span>`
    }`,
  },
  { id: "partitions", label: "Partitions", value: (row) => row.partitions_count, isNumber: true },
  { id: "records", label: "Records", value: (row) => row.records, cell: (row) => count(row.records), isNumber: true },
  { id: "bytes", label: "Size", value: (row) => row.bytes, cell: (row) => size(row.bytes), isNumber: true },
  { id: "rate", label: "In / s", value: (row) => row.records_in_per_s, cell: (row) => rate(row.records_in_per_s), isNumber: true },
  { id: "policy", label: "Cleanup", value: (row) => row.cleanup_policy, cell: (row) => row.cleanup_policy ?? "–", isMinor: true },
  { id: "groups", label: "Groups", value: (row) => row.consumer_groups, isNumber: true },
  { id: "lag", label: "Largest lag", value: (row) => row.max_lag, cell: (row) => count(row.max_lag), isNumber: true, isMinor: true },
];
/** @param {{close: () => void}} props */
function Create({ close }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [policy, setPolicy] = useState("delete");
  const [retention, setRetention] = useState("");
  async function create() {
    const configs = [];
    if (policy !== "delete") configs.push({ name: "cleanup.policy", value: policy });
    if (retention) configs.push({ name: "retention.ms", value: String(retention === "-1" ? -1 : Math.round(Number(retention) * 3_600_000)) });
    await alter("POST", "/v3/clusters/-/topics", { topic_name: name, partitions_count: partitions ? Number(partitions) : undefined, configs });
    say(`Topic ${name} is created.`);
    go(["topics", name]);
  }
  return html`<${FormDialog} title="Create a topic" action="Create" act=${create} close=${close} isReady=${name !== ""}>
    <${Field} label="Name" value=${name} onInput=${setName} hint="1 to 249 letters, digits, . _ and -" />
    <${Field} label="Partitions" type="number" value=${partitions} onInput=${setPartitions} hint="Empty: the broker's num.partitions" />
    <${Field} label="Old records are" value=${policy} onInput=${setPolicy}
      options=${[["delete", "deleted (delete)"], ["compact", "compacted by key (compact)"], ["compact,delete", "both (compact,delete)"]]} />
    <${Field} label="Kept for hours" type="number" value=${retention} onInput=${setRetention} hint="Empty: the broker's default. -1: for ever" />
  </${FormDialog}>`;
}

export function Screen() {
  const withInternal = parameter("internal") === "1";
  const [isCreating, setCreating] = useState(false);
  const loaded = useLoaded((signal) => list("/api/v1/topics", { include_internal: withInternal }, signal), [withInternal], true);
  return html`<div class="title"><h1>Topics</h1>
      ${may("write") && html`<button type="button" class="main" onClick=${() => setCreating(true)}>Create a topic</button>`}</div>
    <${Shown} of=${loaded}>${(/** @type {any[]} */ rows) => html`<${Table} caption="Topics" noun="topic" rows=${rows}
      columns=${COLUMNS}
      keyOf=${(/** @type {any} */ row) => row.topic_name} textOf=${(/** @type {any} */ row) => row.topic_name}
      empty="There is no topic yet. A producer can create one, or the button above."
      tools=${html`<${Check} label="internal topics" isOn=${withInternal} onInput=${(/** @type {boolean} */ isOn) => change({ internal: isOn ? 1 : null })} />`} />`}</${Shown}>
    ${isCreating && html`<${Create} close=${() => setCreating(false)} />`}`;
}
