/** One record: its key, value and headers in several forms, and what to do with it. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { at, curl, getText, list, urlOf } from "../core/api.js";
import { asJson, bytesOf, content as contentOf, hexDump, isBinary, kcat, numbersOf, preview, schemaId } from "../core/bytes.js";
import { indented, parseRecords, tree } from "../core/exact_json.js";
import { count, plural, size } from "../core/format.js";
import { go } from "../core/router.js";
import { recordOf } from "../core/tail.js";
import { Copy } from "../parts/dialog.js";
import { badge, button, Failure } from "../parts/screen.js";
import { Tree } from "../parts/tree.js";
import { draft } from "./produce.js";

/** Characters of a text and bytes of a dump that are shown at first. */
const TEXT_MAX = 20_000;
const DUMP_MAX = 4096;
const HEADERS_MAX = 50;

/** The address of the first broker, for commands. @type {Promise<string> | null} */
let broker = null;
/** @returns {Promise<string>} */
function address() {
  broker ??= list("/v3/clusters/-/brokers").then(([first]) => (first ? `${first.host}:${first.port}` : "localhost:9092"), () => "localhost:9092");
  return broker;
}

/** @param {{label: string, content: Content}} props */
function ContentView({ label, content }) {
  const node = useMemo(() => {
    if (content.format !== "json" && content.format !== "utf8") return null;
    try {
      const found = tree(content.text);
      return content.format === "json" || found.kind === "object" || found.kind === "array" ? found : null;
    } catch {
      return null;
    }
  }, [content]);
  const binary = isBinary(content);
  const forms = content.format === "base64" ? ["Hex", "Base64"] : binary ? ["Hex", "Text"] : node ? ["Tree", "Text", "Hex"] : ["Text", "Hex"];
  const [form, setForm] = useState(forms[0]);
  const [isWhole, setWhole] = useState(false);
  if (content.format === null) {
    return html`<h3>${label} ${badge(label === "Value" ? "null: a tombstone" : "null")}</h3>`;
  }
  const bytes = form === "Hex" || binary ? bytesOf(content) : null;
  const schema = binary && bytes ? schemaId(bytes) : null;
  const text = form === "Hex" ? hexDump(/** @type {Uint8Array} */ (bytes).subarray(0, isWhole ? undefined : DUMP_MAX)) : form === "Text" && node && content.format === "json" ? indented(node) : content.text;
  const rest = form === "Hex" ? !isWhole && /** @type {Uint8Array} */ (bytes).length > DUMP_MAX : !isWhole && text.length > TEXT_MAX;
  return html`<h3>${label} ${badge(size(content.size) + (content.isCut ? ", cut off" : ""))}
      ${schema !== null && badge(`schema id ${schema}`)}
      ${bytes && binary && numbersOf(bytes).map(([name, digits]) => badge(`${name} ${digits}`))}
      <span class="choice" role="group" aria-label=${`Form of the ${label.toLowerCase()}`}>${forms.map(
        (each) => html`<button type="button" key=${each} aria-pressed=${each === form} onClick=${() => setForm(each)}>${each}</button>`,
      )}</span>
      <${Copy} label=${`Copy ${label.toLowerCase()}`} text=${() => (form === "Tree" && node ? indented(node) : text)} /></h3>
    ${form === "Tree" && node ? html`<div class="box"><${Tree} node=${node} /></div>` : html`<pre class=${form === "Hex" ? "hex" : ""} tabindex="0" aria-label=${`${label} as ${form.toLowerCase()}`}>${rest && form !== "Hex" ? text.slice(0, TEXT_MAX) : text}</pre>`}
    ${rest && html`<p>${button(`Show all of ${size(content.size)}`, () => setWhole(true))}</p>`}`;
}

/** @param {{headers: any[], total: number}} props */
function Headers({ headers, total }) {
  const [most, setMost] = useState(HEADERS_MAX);
  if (!total) return null;
  return html`<h3>Headers ${badge(count(total))}</h3>
    <dl class="box headers">${headers.slice(0, most).map((each, at) => html`<div key=${at}>
      <dt>${each.name}${each.name_format === "base64" && html` ${badge("base64")}`}</dt>
      <dd>${each.value === null ? html`<i class="quiet">null</i>` : preview(contentOf(each, "value"), Infinity)}${each.value_format === "base64" && html` ${badge("hex")}`}</dd></div>`)}</dl>
    ${headers.length > most && html`<p>${button(`Show all ${headers.length} headers`, () => setMost(Infinity))}</p>`}`;
}

/** @param {{topic: string, record: any, canProduce: boolean}} props */
export function RecordView({ topic, record, canProduce }) {
  const isCut = record.key.isCut || record.value.isCut || record.headers.length < record.headers_count || record.headers.some((/** @type {any} */ each) => each.value_truncated);
  const [whole, setWhole] = useState(isCut ? null : record);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [bootstrap, setBootstrap] = useState("localhost:9092");
  const path = at`/api/v1/topics/${topic}/records/${record.partition}/${record.offset}`;
  useEffect(() => {
    address().then(setBootstrap);
    if (isCut) getText(path).then((text) => setWhole(recordOf(parseRecords(text))), setError);
  }, []);
  const shown = whole ?? record;
  return html`<div class="record">
    <p class="actions">
      <${Copy} label="Copy as JSON" text=${() => asJson(shown)} />
      <${Copy} label="Copy as curl" text=${() => curl({ method: "GET", url: urlOf(path), body: null })} />
      <${Copy} label="Copy as kcat" text=${() => kcat(topic, record, bootstrap)} />
      ${canProduce && button("Produce again", () => {
        draft.value = shown;
        go(["topics", topic, "produce"]);
      })}
      <span class="small">${plural(shown.headers_count, "header")}</span>
    </p>
    ${isCut && !whole && !error && html`<p class="loading">Loading the whole record …</p>`}
    <${Failure} error=${error} />
    <${ContentView} key=${`key ${whole !== null}`} label="Key" content=${shown.key} />
    <${ContentView} key=${`value ${whole !== null}`} label="Value" content=${shown.value} />
    <${Headers} headers=${shown.headers} total=${shown.headers_count} />
  </div>`;
}
