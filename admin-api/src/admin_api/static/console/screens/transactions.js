/** Transactions that are open, of the coordinator and of a topic's logs; the end of one that hangs. */

import { html, useState } from "../vendor/preact.js";
import { alter, at, list } from "../core/api.js";
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
