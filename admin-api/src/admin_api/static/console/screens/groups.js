/** Consumer groups with their lag. */

import { html } from "../vendor/preact.js";
import { list } from "../core/api.js";
import { count, duration } from "../core/format.js";
import { link } from "../core/router.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";

/** States of a group -> how their badge looks. @type {Record<string, string>} */
const LOOKS = { STABLE: "good", DEAD: "bad", PREPARING_REBALANCE: "warn", COMPLETING_REBALANCE: "warn", ASSIGNING: "warn", RECONCILING: "warn" };

/** @param {{state: string}} props */
export const State = ({ state }) => html`<span class=${`badge ${LOOKS[state] ?? ""}`}>${state.toLowerCase().replaceAll("_", " ")}</span>`;

/** Say in words and by a sign whether lag grows. @param {any} now @param {any} before */
export function trend(now, before) {
  if (now === null || before === null || before === undefined) return "";
  return now > before ? "▲\u00a0growing" : now < before ? "▼\u00a0shrinking" : "=\u00a0steady";
}

/** @type {import("../parts/table.js").Column[]} */
const COLUMNS = [
  { id: "group", label: "Group", value: (row) => row.consumer_group_id, cell: (row) => html`<a href=${link(["groups", row.consumer_group_id])}>${row.consumer_group_id}</a>` },
  { id: "state", label: "State", value: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { id: "type", label: "Protocol", value: (row) => row.type, cell: (row) => row.type.toLowerCase() },
  { id: "members", label: "Members", value: (row) => row.members_count, isNumber: true },
  { id: "topics", label: "Topics", value: (row) => row.topics_count, isNumber: true },
  { id: "lag", label: "Lag", value: (row) => row.lag, cell: (row) => count(row.lag), isNumber: true },
  { id: "behind", label: "Behind by", value: (row) => row.lag_seconds, cell: (row) => duration(row.lag_seconds), isNumber: true },
  { id: "trend", label: "In 15 minutes", value: (row) => trend(row.lag, row.lag_before) },
];

/** Groups, or those that committed an offset in a topic. @param {{topic?: string}} props */
export function Groups({ topic = "" }) {
  const loaded = useLoaded((signal) => list("/api/v1/consumer-groups", { topic }, signal), [topic], true);
  return html`<${Shown} of=${loaded}>${(/** @type {any[]} */ rows) => html`<${Table} caption="Consumer groups" noun="group" rows=${rows} columns=${COLUMNS}
    keyOf=${(/** @type {any} */ row) => row.consumer_group_id} textOf=${(/** @type {any} */ row) => `${row.consumer_group_id} ${row.state}`}
    empty=${topic ? "No group has committed an offset in this topic." : "There is no consumer group yet. A consumer makes one when it joins or commits."} />`}</${Shown}>`;
}

export const Screen = () => html`<h1>Consumer groups</h1><${Groups} />`;
