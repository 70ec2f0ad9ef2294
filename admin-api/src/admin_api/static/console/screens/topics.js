/** Topics: all of them with sizes and rates, and a new one; of one its records, partitions, groups, configs, and records to produce. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, get, list } from "../core/api.js";
import { count, plural, rate, size } from "../core/format.js";
import { go, link, parameter, route } from "../core/router.js";
import { has, may } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { Field, FormDialog, NameDialog, open, openDelete, say, Toggle, useForm } from "../parts/dialog.js";
import { badge, button, Head, List, number, shown, Tabs, text, useList, useLoaded } from "../parts/screen.js";
import { Configs } from "./configs.js";
import { Groups } from "./groups.js";
import { Produce } from "./produce.js";
import { Records } from "./records.js";
import { OpenTransactions } from "./transactions.js";

const COLUMNS = [
  text("topic_name", "Topic", (name, row) => html`<a href=${link(["topics", name])}>${name}</a>${row.is_internal && html` ${badge("internal")}`}${
    row.offline_partitions_count > 0 && html` ${badge(`${row.offline_partitions_count} offline`, "bad")}`
  }`),
  number("partitions_count", "Partitions"),
  number("records", "Records", count),
  number("bytes", "Size", size),
  number("records_in_per_s", "In / s", rate),
  text("cleanup_policy", "Cleanup", (policy) => policy ?? "–"),
  number("consumer_groups", "Groups"),
  number("max_lag", "Largest lag", count),
];

function Create() {
  const [{ name, partitions, policy, retention }, , bind] = useForm({ name: "", partitions: "", policy: "delete", retention: "" });
  async function create() {
    const configs = [];
    if (policy !== "delete") configs.push({ name: "cleanup.policy", value: policy });
    if (retention) configs.push({ name: "retention.ms", value: String(retention === "-1" ? -1 : Math.round(Number(retention) * 3_600_000)) });
    await alter("POST", "/v3/clusters/-/topics", { topic_name: name, partitions_count: partitions ? Number(partitions) : undefined, configs });
    say(`Topic ${name} is created.`);
    go(["topics", name]);
  }
  return html`<${FormDialog} title="Create a topic" action="Create" act=${create} isReady=${name !== ""}>
    <${Field} label="Name" hint="1 to 249 letters, digits, . _ and -" ...${bind("name")} />
    <${Field} label="Partitions" type="number" hint="Empty: the broker's num.partitions" ...${bind("partitions")} />
    <${Field} label="Old records are" ...${bind("policy")}
      options=${[["delete", "deleted (delete)"], ["compact", "compacted by key (compact)"], ["compact,delete", "both (compact,delete)"]]} />
    <${Field} label="Kept for hours" type="number" hint="Empty: the broker's default. -1: for ever" ...${bind("retention")} />
  </${FormDialog}>`;
}

export function Screen() {
  return html`<div class="title"><h1>Topics</h1>
      ${may("write") && button("Create a topic", () => open(html`<${Create} />`), "main")}</div>
    <${List} of=${useList("/api/v1/topics", { include_internal: parameter("internal") && true }, true)} noun="topic" columns=${COLUMNS} search=${["topic_name"]}
      empty="There is no topic yet. A producer can create one, or the button above."
      tools=${html`<${Toggle} label="internal topics" name="internal" />`} />`;
}

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
  return html`<${List} of=${useList(at`/api/v1/topics/${topic}/partitions`, {}, true)} noun="partition" columns=${PARTITION_COLUMNS} />`;
}

/** @param {{topic: string, now: number}} props */
function AddPartitions({ topic, now }) {
  const [wanted, setWanted] = useState(String(now + 1));
  const add = () => alter("PATCH", at`/v3/clusters/-/topics/${topic}`, { partitions_count: Number(wanted) });
  return html`<${FormDialog} title="Add partitions" action="Add" act=${add} done=${`Topic ${topic} has ${wanted} partitions.`} isReady=${Number(wanted) > now}>
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

/** @param {{name: string}} props */
export function Inner({ name: topic }) {
  const loaded = useLoaded((signal) => load(topic, signal), [topic], true);
  const info = loaded.data;
  const rights = info?.authorized_operations ?? [];
  const tabs = TABS.filter(([id, , right]) => has(right, rights) && (id !== "produce" || may("write")));
  const tab = (tabs.find(([id]) => id === route.value.path[2]) ?? tabs[0])?.[0];
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
