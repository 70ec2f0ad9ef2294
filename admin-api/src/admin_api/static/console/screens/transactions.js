/** Transactions that are open, as the coordinator knows them and as the logs of a topic do; the end of one that hangs. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, get, list } from "../core/api.js";
import { count, duration, time } from "../core/format.js";
import { isUtc } from "../core/preferences.js";
import { change, link, parameter } from "../core/router.js";
import { may } from "../core/session.js";
import { Check, FormDialog, say } from "../parts/dialog.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";

/** Partitions that a row names. */
const NAMED = 5;

/** @param {{row: any, close: () => void, done: () => void}} props */
function Abort({ row, close, done }) {
  const id = row.transactional_id;
  const act = async () => {
    await alter("POST", at`/api/v1/transactions/${id}/abort`);
    say(`The transaction of ${id} is aborted.`);
    done();
  };
  return html`<${FormDialog} title="Abort a transaction" action="Abort it" act=${act} close=${close} isDangerous>
    <p>The records that <code>${id}</code> wrote in this transaction are then never shown to consumers that read committed ones. Its producer is fenced:
      if it still runs, its next request fails. Abort only what hangs.</p></${FormDialog}>`;
}

/** @param {{topic: string, row: any, close: () => void, done: () => void}} props */
function AbortInPartition({ topic, row, close, done }) {
  const act = async () => {
    await alter("POST", at`/api/v1/topics/${topic}/transactions:abort`, { partition_id: row.partition_id, start_offset: row.start_offset });
    say(`The transaction in partition ${row.partition_id} is aborted.`);
    done();
  };
  return html`<${FormDialog} title="Abort in this partition" action="Abort it" act=${act} close=${close} isDangerous>
    <p>No coordinator knows this transaction of producer ${row.producer_id}: nothing else will end it. Consumers that read committed records stop at offset
      ${count(row.start_offset)} of partition ${row.partition_id} until then. The records of the transaction are never shown to them.</p></${FormDialog}>`;
}

/** Transactions that are open in the logs of a topic. @param {{topic: string}} props */
export function OpenTransactions({ topic }) {
  const [aborted, setAborted] = useState(/** @type {any} */ (null));
  const loaded = useLoaded((signal) => get(at`/api/v1/topics/${topic}/transactions`, {}, signal), [topic], true);
  /** @type {import("../parts/table.js").Column[]} */
  const columns = [
    { id: "partition", label: "Partition", value: (row) => row.partition_id },
    { id: "start", label: "Begins at offset", value: (row) => row.start_offset, isNumber: true,
      cell: (row) => html`<a href=${link(["topics", topic, "records"], { mode: "from_offset", partition: row.partition_id, offset: row.start_offset })}>${count(row.start_offset)}</a>` },
    { id: "state", label: "State", value: (row) => row.is_hanging, cell: (row) => html`<span class=${`badge ${row.is_hanging ? "bad" : "warn"}`}>${row.is_hanging ? "hangs" : "open"}</span>` },
    { id: "id", label: "Transactional id", value: (row) => row.transactional_id, cell: (row) => row.transactional_id ?? "–" },
    { id: "producer", label: "Producer and epoch", value: (row) => row.producer_id, cell: (row) => `${row.producer_id} : ${row.producer_epoch}`, isNumber: true },
    { id: "last", label: "Last record", value: (row) => row.last_timestamp, cell: (row) => (row.last_timestamp === null ? "–" : time(row.last_timestamp, isUtc.value)) },
    { id: "action", label: "Change", value: () => "", cell: (row) => may("admin") && row.is_hanging && html`<button type="button" class="danger" onClick=${() => setAborted(row)}>Abort</button>` },
  ];
  return html`<p class="small">Readers of committed records stop at the first of these in each partition. One that hangs has no coordinator that would end it.</p>
    <${Shown} of=${loaded}>${(/** @type {any} */ found) => html`<${Table} caption=${`Open transactions of ${topic}`} noun="transaction" rows=${found.data} columns=${columns}
      keyOf=${(/** @type {any} */ row) => `${row.partition_id}:${row.producer_id}`} empty="No transaction is open in this topic." />`}</${Shown}>
    ${aborted && html`<${AbortInPartition} topic=${topic} row=${aborted} close=${() => setAborted(null)} done=${loaded.reload} />`}`;
}

export function Screen() {
  const withEnded = parameter("all") === "1";
  const [aborted, setAborted] = useState(/** @type {any} */ (null));
  const loaded = useLoaded((signal) => list("/api/v1/transactions", { open: withEnded ? "false" : "" }, signal), [withEnded], true);
  /** @type {import("../parts/table.js").Column[]} */
  const columns = [
    { id: "id", label: "Transactional id", value: (row) => row.transactional_id },
    { id: "state", label: "State", value: (row) => row.state, cell: (row) => html`<span class=${`badge ${row.state === "Ongoing" ? "warn" : ""}`}>${row.state}</span>` },
    { id: "age", label: "Open for", value: (row) => row.age_ms, cell: (row) => (row.age_ms === null ? "–" : duration(row.age_ms / 1000)), isNumber: true },
    { id: "started", label: "Began", value: (row) => row.started_at, cell: (row) => (row.started_at === null ? "–" : time(row.started_at, isUtc.value)) },
    { id: "producer", label: "Producer and epoch", value: (row) => row.producer_id, cell: (row) => `${row.producer_id} : ${row.producer_epoch}`, isNumber: true },
    { id: "timeout", label: "Timeout", value: (row) => row.timeout_ms, cell: (row) => duration(row.timeout_ms / 1000), isNumber: true },
    { id: "partitions", label: "Partitions", value: (row) => row.partitions_count, cell: (row) => html`${row.partitions.slice(0, NAMED).map((/** @type {any} */ each, /** @type {number} */ number) => html`${number > 0 && ", "}<a
        href=${link(["topics", each.topic_name])}>${each.topic_name}</a>:${each.partition_id}`)}${row.partitions_count > NAMED && ` and ${count(row.partitions_count - NAMED)} more`}` },
    { id: "action", label: "Change", value: () => "", cell: (row) => may("admin") && row.state === "Ongoing" && html`<button type="button" class="danger" onClick=${() => setAborted(row)}>Abort</button>` },
  ];
  return html`<h1>Transactions</h1>
    <${Shown} of=${loaded}>${(/** @type {any[]} */ rows) => html`<${Table} caption="Transactions" noun="transaction" rows=${rows} columns=${columns} first="-age"
      keyOf=${(/** @type {any} */ row) => row.transactional_id} textOf=${(/** @type {any} */ row) => `${row.transactional_id} ${row.state}`} empty="No transaction is open."
      tools=${html`<${Check} label="those that ended too" isOn=${withEnded} onInput=${(/** @type {boolean} */ isOn) => change({ all: isOn ? 1 : null })} />`} />`}</${Shown}>
    ${aborted && html`<${Abort} row=${aborted} close=${() => setAborted(null)} done=${loaded.reload} />`}`;
}
