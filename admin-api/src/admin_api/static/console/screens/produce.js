/** A form to produce records, which may be filled with a record that is there. */

import { html, signal, useState } from "../vendor/preact.js";
import { at, send, urlOf } from "../core/api.js";
import { producible, toBase64, toBytes } from "../core/bytes.js";
import { parse, Raw, stringify, tree } from "../core/exact_json.js";
import { plural } from "../core/format.js";
import { link } from "../core/router.js";
import { session } from "../core/session.js";
import { Field, useForm } from "../parts/dialog.js";
import { button, Failure, useAction } from "../parts/screen.js";

/** A record that fills the form the next time it is shown. @type {Signal<any>} */
export const draft = signal(null);

/** Records of one request. */
const COUNT_MAX = 1000;
/** @type {[string, string][]} */
const TYPES = [["STRING", "text"], ["JSON", "JSON"], ["BINARY", "base64"], ["null", "null"], ["SCHEMA", "JSON, by the newest schema"]];

const types = () => TYPES.slice(0, session.value?.hasRegistry ? 5 : 4);

/** The choices of a partition. @param {string} none @param {number} partitions */
export const choices = (none, partitions) => [["", none], ...Array.from({ length: Math.min(partitions, 1000) }, (_, each) => String(each))];

/** @param {string} type @param {string} text @param {string} name @returns {unknown} */
function data(type, text, name) {
  if (type === "null") return undefined;
  if (type !== "JSON" && type !== "SCHEMA") return { type, data: text };
  try {
    tree(text);
  } catch {
    throw new Error(`The ${name} is not JSON.`);
  }
  return { type: type === "JSON" ? type : undefined, data: new Raw(text) };
}

/** @param {{topic: string, partitions: number}} props */
export function Produce({ topic, partitions }) {
  const [form, set, bind] = useForm(/** @returns {RecordForm} */ () => {
    const record = draft.peek();
    draft.value = null;
    if (!record) return { keyType: "STRING", key: "", valueType: "STRING", value: "", partition: "", headers: [], count: "1" };
    const [keyType, key] = producible(record.key);
    const [valueType, value] = producible(record.value);
    const headers = record.headers.map((/** @type {any} */ each) => [each.name, each.value ?? "", each.value_format === "base64"]);
    return { keyType, key, valueType, value, partition: String(record.partition), headers, count: "1" };
  });
  const [written, setWritten] = useState(/** @type {any[]} */ ([]));
  const [error, isBusy, submit] = useAction(async () => {
    setWritten([]);
    const record = stringify({
      partition_id: form.partition === "" ? undefined : Number(form.partition),
      key: data(form.key === "" && form.keyType === "STRING" ? "null" : form.keyType, form.key, "key"),
      value: data(form.valueType, form.value, "value"),
      headers: form.headers.filter(([name]) => name).map(([name, value, isBase64]) => ({ name, value: isBase64 ? value : toBase64(toBytes(value)) })),
    });
    const body = Array.from({ length: Math.min(Number(form.count) || 1, COUNT_MAX) }, () => record).join("\n");
    const answer = await send("POST", urlOf(at`/v3/clusters/-/topics/${topic}/records`), { body, isText: true });
    const reports = (await answer.text()).split(/(?<=\})\s*(?=\{)/).filter((each) => each.trim()).map(parse);
    const failed = reports.find((each) => each.error_code !== 200);
    if (failed) throw new Error(failed.message);
    setWritten(reports);
  });
  const last = written.at(-1);
  return html`<form class="form" onSubmit=${submit}>
    <div class="row">
      <${Field} label="Partition" isShort ...${bind("partition")}
        options=${choices("by the key", partitions)} />
      <${Field} label="How many" type="number" isShort ...${bind("count")} />
    </div>
    <div class="row"><${Field} label="Key is" options=${types()} isShort ...${bind("keyType")} />
      ${form.keyType !== "null" && html`<${Field} label="Key" hint=${form.keyType === "STRING" ? "Empty: no key" : undefined} ...${bind("key")} />`}</div>
    <div class="row"><${Field} label="Value is" options=${types()} isShort ...${bind("valueType")} /></div>
    ${form.valueType === "null" ? html`<p class="small">A tombstone: in a compacted topic it deletes its key.</p>`
      : html`<${Field} label="Value" lines=${8} ...${bind("value")} />`}
    ${form.headers.map(([name, value, isBase64], each) => html`<div class="row" key=${each}>
      <${Field} label=${`Header ${each + 1}`} value=${name} onInput=${(/** @type {string} */ text) => set({ headers: form.headers.with(each, [text, value, isBase64]) })} />
      <${Field} label=${isBase64 ? "Its value (base64)" : "Its value"} value=${value} onInput=${(/** @type {string} */ text) => set({ headers: form.headers.with(each, [name, text, isBase64]) })} />
      ${button("Remove", () => set({ headers: form.headers.toSpliced(each, 1) }))}</div>`)}
    <${Failure} error=${error} />
    ${last && html`<p class="notice good" role="status">${plural(written.length, "record")} written. The last one is
      <a href=${link(["topics", topic, "records"], { mode: "from_offset", partition: last.partition_id, offset: last.offset, open: 1 })}>partition ${last.partition_id}, offset ${String(last.offset)}</a>.</p>`}
    <p class="buttons"><button type="submit" class="main" disabled=${isBusy}>${isBusy ? "Writing …" : "Produce"}</button>
      ${button("Add a header", () => set({ headers: [...form.headers, ["", "", false]] }))}</p>
  </form>`;
}
