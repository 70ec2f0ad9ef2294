/** Consumer groups with their lag. */

import { html } from "../vendor/preact.js";
import { count, duration } from "../core/format.js";
import { link } from "../core/router.js";
import { badge, useList } from "../parts/screen.js";
import { List, number, text } from "../parts/table.js";

/** States of a group -> how their badge looks. @type {Record<string, string>} */
const LOOKS = { STABLE: "good", DEAD: "bad", PREPARING_REBALANCE: "warn", COMPLETING_REBALANCE: "warn", ASSIGNING: "warn", RECONCILING: "warn" };

/** @param {string} state */
export const named = (state) => badge(state.toLowerCase().replaceAll("_", " "), LOOKS[state]);

/** Say in words and by a sign whether lag grows. @param {any} now @param {any} before */
export function trend(now, before) {
  if (now === null || before === null || before === undefined) return "";
  return now > before ? "▲\u00a0growing" : now < before ? "▼\u00a0shrinking" : "=\u00a0steady";
}

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
  const loaded = useList("/api/v1/consumer-groups", { topic }, true);
  return html`<${List} of=${loaded} noun="group" columns=${COLUMNS} search=${["consumer_group_id", "state"]}
    empty=${topic ? "No group has committed an offset in this topic." : "There is no consumer group yet. A consumer makes one when it joins or commits."} />`;
}

export const Screen = () => html`<h1>Consumer groups</h1><${Groups} />`;
