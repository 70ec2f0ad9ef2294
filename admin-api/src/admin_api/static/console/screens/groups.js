/** Consumer groups with their lag; of one, the lag of each partition, members, and its offsets: moved, saved, put back, deleted. */

import { html } from "../vendor/preact.js";
import { at, get, list } from "../core/api.js";
import { count, duration, plural, trend } from "../core/format.js";
import { link } from "../core/router.js";
import { has, may } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { open, openDelete } from "../parts/dialog.js";
import { badge, button, Head, List, number, shown, Table, text, useList, useLoaded } from "../parts/screen.js";
import { Configs } from "./configs.js";
import { Reset, Restore, save } from "./reset.js";

/** States of a group -> how their badge looks. @type {Record<string, string>} */
const LOOKS = { STABLE: "good", DEAD: "bad", PREPARING_REBALANCE: "warn", COMPLETING_REBALANCE: "warn", ASSIGNING: "warn", RECONCILING: "warn" };

/** @param {string} state */
const named = (state) => badge(state.toLowerCase().replaceAll("_", " "), LOOKS[state]);

const COLUMNS = [
  text("consumer_group_id", "Group", (id) => html`<a href=${link(["groups", id])}>${id}</a>`),
  text("state", "State", named),
  text("type", "Protocol", (type) => type.toLowerCase()),
  number("members_count", "Members"),
  number("topics_count", "Topics"),
  number("lag", "Lag", count),
  number("lag_seconds", "Behind by", duration),
  text("trend", "In 15 minutes", undefined, (row) => trend(row.lag, row.lag_before)),
];

/** Groups, or those that committed an offset in a topic. @param {{topic?: string}} props */
export function Groups({ topic = "" }) {
  return html`<${List} of=${useList("/api/v1/consumer-groups", { topic }, true)} noun="group" columns=${COLUMNS} search=${["consumer_group_id", "state"]}
    empty=${topic ? "No group has committed an offset in this topic." : "There is no consumer group yet. A consumer makes one when it joins or commits."} />`;
}

export const Screen = () => html`<h1>Consumer groups</h1><${Groups} />`;

/** @param {string} group @param {string} topic */
const forget = (group, topic) => openDelete("the offsets of", topic, `The group then begins in ${topic} where its consumers' auto.offset.reset says.`, at`/api/v1/consumer-groups/${group}/offsets/${topic}`);

/** @param {string} group */
const remove = (group) => openDelete("the group", group, "This deletes the group and its committed offsets, for good.", at`/api/v1/consumer-groups/${group}`, ["groups"]);

const OFFSET_COLUMNS = [
  text("partition", "Topic and partition", (_, row) => html`<a
    href=${link(["topics", row.topic_name, "records"], { mode: "from_offset", partition: row.partition_id, offset: row.offset })}>${row.topic_name}</a> : ${row.partition_id}`,
    (row) => `${row.topic_name} ${String(row.partition_id).padStart(6, "0")}`),
  number("offset", "Committed", count),
  number("log_end_offset", "End", count),
  number("lag", "Lag", count),
  number("lag_seconds", "Behind by", duration),
  text("member", "Member", (member) => member || html`<i class="quiet">none</i>`),
];

/** @param {{group: string, rows: any[], rights: string[]}} props */
function Lags({ group, rows, rights }) {
  const topics = [...new Set(rows.map((each) => each.topic_name))];
  return html`<${Table} noun="partition" rows=${rows} columns=${OFFSET_COLUMNS} search=${["topic_name", "partition_id", "member"]}
    empty="The group has committed no offset."
    tools=${may("admin", "DELETE", rights) && topics.length > 0 && html`<label class="check"><span>Forget the offsets of</span>
      <select value="" onChange=${(/** @type {any} */ event) => {
        forget(group, event.target.value);
        event.target.value = "";
      }}><option value="">a topic …</option>${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`} />`;
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

const MEMBER_COLUMNS = [
  text("consumer_id", "Member"),
  text("client_id", "Client"),
  text("instance_id", "Instance", (id) => id ?? "–"),
  text("held", "Partitions", (_, row) => row.held.join(", ") || "none", (row) => row.held.length),
];

/** @param {string} group @param {AbortSignal} signal */
async function load(group, signal) {
  const own = at`/v3/clusters/-/consumer-groups/${group}`;
  const range = (/** @type {string} */ metric) => get("/api/v1/metrics/range", { metric, group }, signal);
  const [found, offsets, lags, members, records, seconds] = await Promise.all([
    get(own, { include_authorized_operations: true }, signal),
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

/** @param {{name: string}} props */
export function Inner({ name: group }) {
  const loaded = useLoaded((signal) => load(group, signal), [group], true);
  const { found: { authorized_operations: rights, state } = /** @type {any} */ ({}), rows } = loaded.data ?? /** @type {any} */ ({});
  const canMove = may("write", "READ", rights);
  return html`<${Head} of="Consumer groups" path=${["groups"]} name=${group}>${rows && [
      canMove && button("Reset offsets", () => open(html`<${Reset} group=${group} rows=${rows} state=${state} />`)),
      button("Save offsets", () => save(group, rows)),
      canMove && button("Put back", () => open(html`<${Restore} group=${group} />`)),
      may("admin", "DELETE", rights) && button("Delete", () => remove(group), "danger"),
    ]}</${Head}>
    ${shown(loaded, ({ found, members, records, seconds, behind, lag }) => html`
      <p class="facts">${named(state)} ${""}
        ${plural(members.length, "member")} · lag ${count(lag)}${behind > 0 && `, behind by ${duration(behind)}`} ${trend(Number(lag), records.find((/** @type {any} */ each) => each.value !== null)?.value)}${found.partition_assignor && ` · ${found.partition_assignor}`}</p>
      <div class="charts"><${Chart} label="Lag in records" points=${records} shown=${count} /><${Chart} label="Lag in time" points=${seconds} shown=${duration} /></div>
      <h2>Offsets</h2>
      <${Lags} group=${group} rows=${rows} rights=${rights} />
      <h2 class="below">Members</h2>
      <${Table} id="m" noun="member" rows=${members} columns=${MEMBER_COLUMNS} empty="The group has no members now." />
      ${has("DESCRIBE_CONFIGS", rights) && html`<details class="below"><summary>Configs</summary>
        <${Configs} path=${at`/api/v1/configs/group/${group}`} name=${group} id="c" rights=${rights} /></details>`}`)}`;
}
