/** Transactions that are open, as the coordinator knows them and as the logs of a topic do; the end of one that hangs. */

import { html } from "../vendor/preact.js";
import { alter, at } from "../core/api.js";
import { count, duration } from "../core/format.js";
import { moment } from "../core/preferences.js";
import { link, parameter } from "../core/router.js";
import { has, may } from "../core/session.js";
import { FormDialog, open, Toggle } from "../parts/dialog.js";
import { badge, button, List, number, text, useList } from "../parts/screen.js";

/** Partitions that a row names. */
const NAMED = 5;

/** @param {string} id */
const abort = (id) => open(html`<${FormDialog} title="Abort a transaction" action="Abort it" isDangerous
  act=${() => alter("POST", at`/api/v1/transactions/${id}/abort`)} done=${`The transaction of ${id} is aborted.`}>
  <p>The records that <code>${id}</code> wrote in this transaction are then never shown to consumers that read committed ones. Its producer is fenced:
    if it still runs, its next request fails. Abort only what hangs.</p></${FormDialog}>`);

/** @param {string} topic @param {any} row */
const abortIn = (topic, row) => open(html`<${FormDialog} title="Abort in this partition" action="Abort it" isDangerous
  act=${() => alter("POST", at`/api/v1/topics/${topic}/transactions:abort`, { partition_id: row.partition_id, start_offset: row.start_offset })}
  done=${`The transaction in partition ${row.partition_id} is aborted.`}>
  <p>No coordinator knows this transaction of producer ${row.producer_id}: nothing else will end it. Consumers that read committed records stop at offset
    ${count(row.start_offset)} of partition ${row.partition_id} until then. The records of the transaction are never shown to them.</p></${FormDialog}>`);

const PRODUCER = number("producer_id", "Producer and epoch", (id, row) => `${id} : ${row.producer_epoch}`);

/** Transactions that are open in the logs of a topic. @param {{topic: string}} props */
export function OpenTransactions({ topic }) {
  const columns = [
    text("partition_id", "Partition"),
    number("start_offset", "Begins at offset", (offset, row) =>
      html`<a href=${link(["topics", topic, "records"], { mode: "from_offset", partition: row.partition_id, offset })}>${count(offset)}</a>`),
    text("is_hanging", "State", (isHanging) => (isHanging ? badge("hangs", "bad") : badge("open", "warn"))),
    text("transactional_id", "Transactional id", (id) => id ?? "–"),
    PRODUCER,
    text("last_timestamp", "Last record", moment),
    text("action", "Change", (_, row) => may("admin") && (has("ALTER") || has("CLUSTER_ACTION")) && row.is_hanging && button("Abort", () => abortIn(topic, row), "danger")),
  ];
  return html`<p class="small">Readers of committed records stop at the first of these in each partition. One that hangs has no coordinator that would end it.</p>
    <${List} of=${useList(at`/api/v1/topics/${topic}/transactions`, {}, true)} noun="transaction" columns=${columns}
      keyOf=${(/** @type {any} */ row) => `${row.partition_id}:${row.producer_id}`} empty="No transaction is open in this topic." />`;
}

const COLUMNS = [
  text("transactional_id", "Transactional id"),
  text("state", "State", (state) => badge(state, state === "Ongoing" ? "warn" : "")),
  number("age_ms", "Open for", (ms) => (ms === null ? "–" : duration(ms / 1000))),
  text("started_at", "Began", moment),
  PRODUCER,
  number("timeout_ms", "Timeout", (ms) => duration(ms / 1000)),
  text("partitions_count", "Partitions", (all, row) => html`${row.partitions.slice(0, NAMED).map((/** @type {any} */ each, /** @type {number} */ number) => html`${number > 0 && ", "}<a
    href=${link(["topics", each.topic_name])}>${each.topic_name}</a>:${each.partition_id}`)}${all > NAMED && ` and ${count(all - NAMED)} more`}`),
  text("action", "Change", (_, row) => may("admin") && row.state === "Ongoing" && button("Abort", () => abort(row.transactional_id), "danger")),
];

export function Screen() {
  return html`<h1>Transactions</h1>
    <${List} of=${useList("/api/v1/transactions", { open: parameter("all") && "false" }, true)} noun="transaction" columns=${COLUMNS} first="-age_ms" search=${["transactional_id", "state"]} empty="No transaction is open."
      tools=${html`<${Toggle} label="those that ended too" name="all" />`} />`;
}
