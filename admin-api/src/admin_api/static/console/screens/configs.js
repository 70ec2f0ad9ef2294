/** Configs of a topic or a broker: what is set and where, changed as a difference that is seen first. */

import { html, useState } from "../vendor/preact.js";
import { alter, get } from "../core/api.js";
import { plural } from "../core/format.js";
import { change, parameter } from "../core/router.js";
import { may } from "../core/session.js";
import { Check, Field, FormDialog, say } from "../parts/dialog.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Table } from "../parts/table.js";

/** @type {Record<string, string>} */
const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: "this topic",
  DYNAMIC_GROUP_CONFIG: "this group",
  DYNAMIC_BROKER_CONFIG: "this broker",
  DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
  STATIC_BROKER_CONFIG: "start of the broker",
  DEFAULT_CONFIG: "default",
};

/** @param {string | null} value */
const shown = (value) => (value === null ? html`<i class="quiet">none</i>` : value === "" ? html`<i class="quiet">empty</i>` : html`<code>${value}</code>`);

/** @param {{path: string, name: string, config: any, close: () => void, done: () => void}} props */
function Edit({ path, name, config, close, done }) {
  const [value, setValue] = useState(config.value ?? "");
  const [isChecked, setChecked] = useState(false);
  const [isReset, setReset] = useState(false);
  const after = isReset ? config.default : value;
  async function act() {
    const data = [isReset ? { name: config.name, operation: "DELETE" } : { name: config.name, value, operation: "SET" }];
    await alter("POST", path, { data, validate_only: !isChecked });
    if (!isChecked) {
      setChecked(true);
      throw null; // stays open: the difference is seen before it is applied
    }
    say(`${config.name} of ${name} is ${isReset ? "the default again" : "changed"}.`);
    done();
  }
  return html`<${FormDialog} title=${config.name} action=${isChecked ? "Apply" : "Check"} act=${act} close=${close}
    isReady=${isReset ? !config.is_default : value !== (config.value ?? "")}>
    ${config.documentation && html`<p class="small">${config.documentation}</p>`}
    <${Field} label="Value" value=${isReset ? config.default ?? "" : value} onInput=${(/** @type {string} */ text) => {
      setValue(text);
      setReset(false);
      setChecked(false);
    }} />
    ${!config.is_default && html`<${Check} label="the default again" isOn=${isReset} onInput=${(/** @type {boolean} */ isOn) => {
      setReset(isOn);
      setChecked(false);
    }} />`}
    ${isChecked && html`<p class="notice" role="status">The server accepts it. <code>${config.name}</code>: ${shown(config.value)} → ${shown(after)}</p>`}
  </${FormDialog}>`;
}

/** @param {{path: string, name: string, id?: string}} props `path` is that of the API, which lists and alters them */
export function Configs({ path, name, id = "" }) {
  const isAll = parameter("set") !== "1";
  const [edited, setEdited] = useState(/** @type {any} */ (null));
  const loaded = useLoaded(async (signal) => (await get(path, {}, signal)).data, [path]);
  /** @type {import("../parts/table.js").Column[]} */
  const columns = [
    {
      id: "name",
      label: "Config",
      value: (row) => row.name,
      cell: (row) => html`${may("admin") && !row.is_read_only
        ? html`<button type="button" class="plain" onClick=${() => setEdited(row)}>${row.name}</button>` : row.name}${
        row.documentation && html`<br /><span class="small">${row.documentation}</span>`}`,
    },
    { id: "value", label: "Value", value: (row) => row.value, cell: (row) => (row.is_sensitive ? html`<i class="quiet">hidden</i>` : shown(row.value)) },
    { id: "default", label: "Default", value: (row) => row.default, cell: (row) => (row.is_sensitive ? "" : shown(row.default)) },
    { id: "source", label: "Set by", value: (row) => SOURCES[row.source] ?? row.source,
      cell: (row) => html`<span class=${`badge ${row.is_default ? "" : "good"}`}>${SOURCES[row.source] ?? row.source}</span>${row.is_read_only && html` <span class="badge">read-only</span>`}` },
  ];
  return html`<${Shown} of=${loaded}>${(/** @type {any[]} */ rows) => {
      const set = rows.filter((each) => !each.is_default);
      return html`<${Table} id=${id} caption=${`Configs of ${name}`} noun="config" rows=${isAll ? rows : set} columns=${columns} keyOf=${(/** @type {any} */ row) => row.name}
        textOf=${(/** @type {any} */ row) => `${row.name} ${row.value}`} empty="None is set: all are defaults."
        tools=${html`<${Check} label=${`only the ${plural(set.length, "config")} that is set`.replace(/s that is/, "s that are")} isOn=${!isAll} onInput=${(/** @type {boolean} */ isOn) => change({ set: isOn ? 1 : null })} />`} />`;
    }}</${Shown}>
    ${edited && html`<${Edit} path=${path} name=${name} config=${edited} close=${() => setEdited(null)} done=${loaded.reload} />`}`;
}
