/** One consumer group: lag of each partition, members, and its offsets: moved, saved, put back, deleted. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, get, list } from "../core/api.js";
import { count, duration, plural } from "../core/format.js";
import { go, link, route } from "../core/router.js";
import { may } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { NameDialog, say } from "../parts/dialog.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";
import { Configs } from "./configs.js";
import { State, trend } from "./groups.js";
import { Reset, Restore, save } from "./reset.js";

/** @param {{group: string, rows: any[], reload: () => void}} props */
function Lags({ group, rows, reload }) {
  const [topic, setTopic] = useState("");
  const topics = [...new Set(rows.map((each) => each.topic_name))];
  /** @type {import("../parts/table.js").Column[]} */
  const columns = [
    { id: "partition", label: "Topic and partition", value: (row) => `${row.topic_name} ${String(row.partition_id).padStart(6, "0")}`,
      cell: (row) => html`<a href=${link(["topics", row.topic_name, "records"], { mode: "from_offset", partition: row.partition_id, offset: row.offset })}>${row.topic_name}</a> : ${row.partition_id}` },
    { id: "offset", label: "Committed", value: (row) => row.offset, cell: (row) => count(row.offset), isNumber: true },
    { id: "end", label: "End", value: (row) => row.log_end_offset, cell: (row) => count(row.log_end_offset), isNumber: true },
    { id: "lag", label: "Lag", value: (row) => row.lag, cell: (row) => count(row.lag), isNumber: true },
    { id: "behind", label: "Behind by", value: (row) => row.lag_seconds, cell: (row) => duration(row.lag_seconds), isNumber: true },
    { id: "member", label: "Member", value: (row) => row.member, cell: (row) => row.member || html`<i class="quiet">none</i>` },
  ];
  return html`<${Table} caption=${`Lag of ${group}`} noun="partition" rows=${rows} columns=${columns} textOf=${(/** @type {any} */ row) => `${row.topic_name}:${row.partition_id} ${row.member}`}
      keyOf=${(/** @type {any} */ row) => `${row.topic_name}:${row.partition_id}`} empty="The group has committed no offset."
      tools=${may("admin") && topics.length > 0 && html`<label class="check"><span>Forget the offsets of</span>
        <select value="" onChange=${(/** @type {any} */ event) => {
          setTopic(event.target.value);
          event.target.value = "";
        }}><option value="">a topic …</option>${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`} />
    ${topic && html`<${NameDialog} title="Delete the offsets of a topic" action="Delete offsets" name=${topic} close=${() => setTopic("")}
      text=${`The group then begins in ${topic} where its consumers' auto.offset.reset says.`}
      act=${async () => {
        await alter("DELETE", at`/api/v1/consumer-groups/${group}/offsets/${topic}`);
        say(`The offsets of ${topic} are deleted.`);
        reload();
      }} />`}`;
}

/** @param {string} group @param {AbortSignal} signal */
async function loadMembers(group, signal) {
  const members = await list(at`/v3/clusters/-/consumer-groups/${group}/consumers`, {}, signal);
  return Promise.all(
    members.slice(0, 50).map(async (each) => {
      const held = await list(at`/v3/clusters/-/consumer-groups/${group}/consumers/${each.consumer_id}/assignments`, {}, signal).catch(() => []);
      return { ...each, held: held.map((one) => `${one.topic_name}:${one.partition_id}`) };
    }),
  );
}

/** @type {import("../parts/table.js").Column[]} */
const MEMBER_COLUMNS = [
  { id: "member", label: "Member", value: (row) => row.consumer_id },
  { id: "client", label: "Client", value: (row) => row.client_id },
  { id: "instance", label: "Instance", value: (row) => row.instance_id, cell: (row) => row.instance_id ?? "–", isMinor: true },
  { id: "held", label: "Partitions", value: (row) => row.held.length, cell: (row) => row.held.join(", ") || "none" },
];

/** @param {string} group @param {AbortSignal} signal */
async function load(group, signal) {
  const own = at`/v3/clusters/-/consumer-groups/${group}`;
  const range = (/** @type {string} */ metric) => get("/api/v1/metrics/range", { metric, group }, signal);
  const [found, offsets, lags, members, records, seconds] = await Promise.all([
    get(own, {}, signal),
    get(at`/api/v1/consumer-groups/${group}/offsets`, {}, signal),
    list(`${own}/lags`, {}, signal),
    loadMembers(group, signal),
    range("lag"),
    range("lag_seconds"),
  ]);
  const holders = new Map(lags.map((each) => [`${each.topic_name}:${each.partition_id}`, each.client_id || each.consumer_id]));
  const rows = offsets.data.map((/** @type {any} */ each) => ({ ...each, member: holders.get(`${each.topic_name}:${each.partition_id}`) ?? "" }));
  const behind = Math.max(0, ...rows.map((/** @type {any} */ each) => each.lag_seconds ?? 0));
  return { found, rows, members, records: records.points, seconds: seconds.points, behind, lag: rows.reduce((/** @type {bigint} */ sum, /** @type {any} */ each) => sum + BigInt(each.lag ?? 0), 0n) };
}

export function Screen() {
  const [, group] = route.value.path;
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const loaded = useLoaded((signal) => load(group, signal), [group], true);
  return html`<p class="back"><a href=${link(["groups"])} data-back>← Consumer groups</a></p>
    <div class="title"><h1 class="name">${group}</h1>
      ${loaded.data && html`<div class="actions">
        ${may("write") && html`<button type="button" onClick=${() => setDialog("reset")}>Reset offsets</button>`}
        <button type="button" onClick=${() => save(group, loaded.data?.rows ?? [])}>Save offsets</button>
        ${may("write") && html`<button type="button" onClick=${() => setDialog("restore")}>Put back</button>`}
        ${may("admin") && html`<button type="button" class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
      </div>`}</div>
    <${Shown} of=${loaded}>${(/** @type {any} */ { found, rows, members, records, seconds, behind, lag }) => html`
      <p class="facts"><${State} state=${found.state} /> ${""}
        ${plural(members.length, "member")} · lag ${count(lag)}${behind > 0 && `, behind by ${duration(behind)}`} ${trend(Number(lag), records.find((/** @type {any} */ each) => each.value !== null)?.value)}${found.partition_assignor && ` · ${found.partition_assignor}`}</p>
      <div class="charts"><${Chart} label="Lag in records" points=${records} shown=${count} /><${Chart} label="Lag in time" points=${seconds} shown=${duration} /></div>
      <h2>Offsets</h2>
      <${Lags} group=${group} rows=${rows} reload=${loaded.reload} />
      <h2 class="below">Members</h2>
      <${Table} id="m" caption=${`Members of ${group}`} noun="member" rows=${members} columns=${MEMBER_COLUMNS} keyOf=${(/** @type {any} */ row) => row.consumer_id}
        empty="The group has no members now." />
      <details class="below"><summary>Configs</summary><${Configs} path=${at`/api/v1/configs/group/${group}`} name=${group} id="c" /></details>
      ${dialog === "reset" && html`<${Reset} group=${group} rows=${rows} state=${found.state} close=${close} done=${loaded.reload} />`}
      ${dialog === "restore" && html`<${Restore} group=${group} close=${close} done=${loaded.reload} />`}
      ${dialog === "delete" && html`<${NameDialog} title="Delete the group" action="Delete the group" name=${group} close=${close}
        text="This deletes the group and its committed offsets, for good."
        act=${async () => {
          await alter("DELETE", at`/api/v1/consumer-groups/${group}`);
          say(`The group ${group} is deleted.`);
          go(["groups"]);
        }} />`}`}</${Shown}>`;
}
