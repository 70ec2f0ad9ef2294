/** One topic: its records, partitions, groups, configs, and records to produce. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, get, list } from "../core/api.js";
import { count, plural, rate, size } from "../core/format.js";
import { route } from "../core/router.js";
import { has, may } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { Field, FormDialog, NameDialog, open, openDelete, say } from "../parts/dialog.js";
import { badge, button, Head, shown, Tabs, useList, useLoaded } from "../parts/screen.js";
import { List, number, text } from "../parts/table.js";
import { Configs } from "./configs.js";
import { Groups } from "./groups.js";
import { Produce } from "./produce.js";
import { Records } from "./records.js";
import { OpenTransactions } from "./transactions.js";

/** Ids, names, and the right to the topic that each needs. */
const TABS = [
  ["records", "Records", "READ"],
  ["produce", "Produce", "WRITE"],
  ["partitions", "Partitions", "DESCRIBE"],
  ["groups", "Groups", "DESCRIBE"],
  ["transactions", "Transactions", "READ"],
  ["configs", "Configs", "DESCRIBE_CONFIGS"],
];

const PARTITION_COLUMNS = [
  text("partition_id", "Partition"),
  number("log_start_offset", "Log start offset", count),
  number("log_end_offset", "End", count),
  number("last_stable_offset", "Last stable offset", count),
  number("records", "Records", count),
  number("bytes", "Size", size),
  text("is_offline", "State", (isOffline) => (isOffline ? badge("offline", "bad") : badge("online", "good"))),
];

/** @param {{topic: string}} props */
function Partitions({ topic }) {
  const loaded = useList(at`/api/v1/topics/${topic}/partitions`, {}, true);
  return html`<${List} of=${loaded} noun="partition" columns=${PARTITION_COLUMNS} />`;
}

/** @param {{topic: string, now: number}} props */
function AddPartitions({ topic, now }) {
  const [wanted, setWanted] = useState(String(now + 1));
  async function add() {
    await alter("PATCH", at`/v3/clusters/-/topics/${topic}`, { partitions_count: Number(wanted) });
    say(`Topic ${topic} has ${wanted} partitions.`);
  }
  return html`<${FormDialog} title="Add partitions" action="Add" act=${add} isReady=${Number(wanted) > now}>
    <p>The topic has ${now}. There is no way back, and keys go to other partitions than before.</p>
    <${Field} label="Partitions in all" type="number" value=${wanted} onInput=${setWanted} />
  </${FormDialog}>`;
}

/** @param {string} topic */
const empty = (topic) => open(html`<${NameDialog} title="Empty the topic" action="Delete all records" name=${topic}
  text="This deletes every record of the topic, for good. Offsets go on where they are; groups are not changed."
  act=${async () => {
    const { data } = await alter("POST", at`/api/v1/topics/${topic}/records:truncate`, {});
    say(`${count(data.reduce((/** @type {bigint} */ sum, /** @type {any} */ each) => sum + BigInt(each.deleted), 0n))} records are deleted.`);
  }} />`);

/** @param {string} topic */
const remove = (topic) => openDelete("the topic", topic, "This deletes the topic with its records and configs, for good.", at`/v3/clusters/-/topics/${topic}`, ["topics"]);

/** @param {string} topic @param {AbortSignal} signal */
async function load(topic, signal) {
  const [found, summaries, range] = await Promise.all([
    get(at`/v3/clusters/-/topics/${topic}`, { include_authorized_operations: true }, signal),
    list("/api/v1/topics", { q: topic, include_internal: true }, signal),
    get("/api/v1/metrics/range", { metric: "records_in_per_s", topic }, signal),
  ]);
  return { ...summaries.find((each) => each.topic_name === topic), ...found, points: range.points };
}

export function Screen() {
  const [, topic, given] = route.value.path;
  const loaded = useLoaded((signal) => load(topic, signal), [topic], true);
  const info = loaded.data;
  const rights = info?.authorized_operations ?? [];
  const tabs = TABS.filter(([id, , right]) => has(right, rights) && (id !== "produce" || may("write")));
  const tab = (tabs.find(([id]) => id === given) ?? tabs[0])?.[0];
  return html`<${Head} of="Topics" path=${["topics"]} name=${topic}>${info && [
      may("write", "ALTER", rights) && button("Add partitions", () => open(html`<${AddPartitions} topic=${topic} now=${info.partitions_count} />`)),
      may("admin", "DELETE", rights) && [button("Empty", () => empty(topic)), button("Delete", () => remove(topic), "danger")],
    ]}</${Head}>
    ${shown(loaded, (found) => html`
      <p class="facts">${plural(found.partitions_count, "partition")} · ${count(found.records)} records · ${size(found.bytes)} · ${rate(found.records_in_per_s)} in / s</p>
      <${Tabs} of="Of this topic" base=${["topics", topic]} tabs=${tabs} now=${tab} />
      ${tab === "records" && html`<${Records} topic=${topic} partitions=${found.partitions_count} canProduce=${may("write", "WRITE", rights)} />`}
      ${tab === "produce" && html`<${Produce} topic=${topic} partitions=${found.partitions_count} />`}
      ${tab === "partitions" && html`<${Chart} label="Records in per second" points=${found.points} shown=${rate} /><${Partitions} topic=${topic} />`}
      ${tab === "groups" && html`<${Groups} topic=${topic} />`}
      ${tab === "transactions" && html`<${OpenTransactions} topic=${topic} />`}
      ${tab === "configs" && html`<${Configs} path=${at`/api/v1/configs/topic/${topic}`} name=${topic} rights=${rights} />`}`)}`;
}
