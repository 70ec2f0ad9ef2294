/** One topic: its records, partitions, groups, configs, and records to produce. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, get, list } from "../core/api.js";
import { count, plural, rate, size } from "../core/format.js";
import { go, link, route } from "../core/router.js";
import { may } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { Field, FormDialog, NameDialog, say } from "../parts/dialog.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";
import { Configs } from "./configs.js";
import { Groups } from "./groups.js";
import { Produce } from "./produce.js";
import { Records } from "./records.js";
import { OpenTransactions } from "./transactions.js";

/** @type {[string, string][]} */
const TABS = [
  ["records", "Records"],
  ["produce", "Produce"],
  ["partitions", "Partitions"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
  ["configs", "Configs"],
];

/** @type {import("../parts/table.js").Column[]} */
const PARTITION_COLUMNS = [
  { id: "partition", label: "Partition", value: (row) => row.partition_id },
  { id: "start", label: "Log start offset", value: (row) => row.log_start_offset, cell: (row) => count(row.log_start_offset), isNumber: true },
  { id: "end", label: "End", value: (row) => row.log_end_offset, cell: (row) => count(row.log_end_offset), isNumber: true },
  { id: "stable", label: "Last stable offset", value: (row) => row.last_stable_offset, cell: (row) => count(row.last_stable_offset), isNumber: true },
  { id: "records", label: "Records", value: (row) => row.records, cell: (row) => count(row.records), isNumber: true },
  { id: "size", label: "Size", value: (row) => row.bytes, cell: (row) => size(row.bytes), isNumber: true },
  { id: "state", label: "State", value: (row) => row.is_offline, cell: (row) => html`<span class=${`badge ${row.is_offline ? "bad" : "good"}`}>${row.is_offline ? "offline" : "online"}</span>` },
];

/** @param {{topic: string}} props */
function Partitions({ topic }) {
  const loaded = useLoaded((signal) => list(at`/api/v1/topics/${topic}/partitions`, {}, signal), [topic], true);
  return html`<${Shown} of=${loaded}>${(/** @type {any[]} */ rows) => html`<${Table} caption=${`Partitions of ${topic}`} noun="partition" rows=${rows}
    columns=${PARTITION_COLUMNS} keyOf=${(/** @type {any} */ row) => String(row.partition_id)} />`}</${Shown}>`;
}

/** @param {{topic: string, count: number, close: () => void, done: () => void}} props */
function AddPartitions({ topic, count: now, close, done }) {
  const [wanted, setWanted] = useState(String(now + 1));
  async function add() {
    await alter("PATCH", at`/v3/clusters/-/topics/${topic}`, { partitions_count: Number(wanted) });
    say(`Topic ${topic} has ${wanted} partitions.`);
    done();
  }
  return html`<${FormDialog} title="Add partitions" action="Add" act=${add} close=${close} isReady=${Number(wanted) > now}>
    <p>The topic has ${now}. There is no way back, and keys go to other partitions than before.</p>
    <${Field} label="Partitions in all" type="number" value=${wanted} onInput=${setWanted} />
  </${FormDialog}>`;
}

export function Screen() {
  const [, topic, given] = route.value.path;
  const tab = TABS.some(([id]) => id === given) ? given : "records";
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const loaded = useLoaded(
    async (signal) => {
      const [found, summaries, range] = await Promise.all([
        get(at`/v3/clusters/-/topics/${topic}`, {}, signal),
        list("/api/v1/topics", { q: topic, include_internal: true }, signal),
        get("/api/v1/metrics/range", { metric: "records_in_per_s", topic }, signal),
      ]);
      return { ...summaries.find((each) => each.topic_name === topic), ...found, points: range.points };
    },
    [topic],
    true,
  );
  const info = loaded.data;
  return html`
    <p class="back"><a href=${link(["topics"])} data-back>← Topics</a></p>
    <div class="title"><h1 class="name">${topic}</h1>
      ${info && html`<div class="actions">
        ${may("write") && html`<button type="button" onClick=${() => setDialog("add")}>Add partitions</button>`}
        ${may("admin") && html`<button type="button" onClick=${() => setDialog("empty")}>Empty</button>
          <button type="button" class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
      </div>`}
    </div>
    <${Shown} of=${loaded}>${(/** @type {any} */ found) => html`
      <p class="facts">${plural(found.partitions_count, "partition")} · ${count(found.records)} records · ${size(found.bytes)} · ${rate(found.records_in_per_s)} in / s</p>
      <div class="tabs" role="navigation" aria-label="Of this topic">${TABS.filter(([id]) => id !== "produce" || may("write")).map(
        ([id, name]) => html`<a key=${id} href=${link(["topics", topic, id])} aria-current=${id === tab ? "page" : undefined}>${name}</a>`,
      )}</div>
      ${tab === "records" && html`<${Records} topic=${topic} partitions=${found.partitions_count} />`}
      ${tab === "produce" && html`<${Produce} topic=${topic} partitions=${found.partitions_count} />`}
      ${tab === "partitions" && html`<${Chart} label="Records in per second" points=${found.points} shown=${rate} /><${Partitions} topic=${topic} />`}
      ${tab === "groups" && html`<${Groups} topic=${topic} />`}
      ${tab === "transactions" && html`<${OpenTransactions} topic=${topic} />`}
      ${tab === "configs" && html`<${Configs} path=${at`/api/v1/configs/topic/${topic}`} name=${topic} />`}`}</${Shown}>
    ${dialog === "add" && html`<${AddPartitions} topic=${topic} count=${info.partitions_count} close=${close} done=${loaded.reload} />`}
    ${dialog === "empty" && html`<${NameDialog} title="Empty the topic" action="Delete all records" name=${topic} close=${close}
      text="This deletes every record of the topic, for good. Offsets go on where they are; groups are not changed."
      act=${async () => {
        const { data } = await alter("POST", at`/api/v1/topics/${topic}/records:truncate`, {});
        say(`${count(data.reduce((/** @type {bigint} */ sum, /** @type {any} */ each) => sum + BigInt(each.deleted), 0n))} records are deleted.`);
        loaded.reload();
      }} />`}
    ${dialog === "delete" && html`<${NameDialog} title="Delete the topic" action="Delete the topic" name=${topic} close=${close}
      text="This deletes the topic with its records and configs, for good."
      act=${async () => {
        await alter("DELETE", at`/v3/clusters/-/topics/${topic}`);
        say(`Topic ${topic} is deleted.`);
        go(["topics"]);
      }} />`}`;
}
