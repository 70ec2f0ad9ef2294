/** Configs of topics, groups and brokers: what is set and where, changed as a difference that is seen first. */

import { html } from "../vendor/preact.js";
import { alter, at } from "../core/api.js";
import { parameter } from "../core/router.js";
import { may } from "../core/session.js";
import { Check, Field, FormDialog, open, say, Toggle, useForm } from "../parts/dialog.js";
import { badge, button, shown, Table, text, useList } from "../parts/screen.js";

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
const content = (value) => (value === null ? html`<i class="quiet">none</i>` : value === "" ? html`<i class="quiet">empty</i>` : html`<code>${value}</code>`);

/** @param {{path: string, name: string, config: any}} props */
function Edit({ path, name, config }) {
  const [{ value, isChecked, isReset }, set] = useForm({ value: config.value ?? "", isChecked: false, isReset: false });
  const after = isReset ? config.default : value;
  async function act() {
    const data = [isReset ? { name: config.name, operation: "DELETE" } : { name: config.name, value, operation: "SET" }];
    await alter("POST", path, { data, validate_only: !isChecked });
    if (!isChecked) {
      set({ isChecked: true });
      throw null; // stays open: the difference is seen before it is applied
    }
    say(`${config.name} of ${name} is ${isReset ? "the default again" : "changed"}.`);
  }
  return html`<${FormDialog} title=${config.name} action=${isChecked ? "Apply" : "Check"} act=${act}
    isReady=${isReset ? !config.is_default : value !== (config.value ?? "")}>
    ${config.documentation && html`<p class="small">${config.documentation}</p>`}
    <${Field} label="Value" value=${isReset ? config.default ?? "" : value} onInput=${(/** @type {string} */ given) => set({ value: given, isChecked: false, isReset: false })} />
    ${!config.is_default && html`<${Check} label="the default again" isOn=${isReset} onInput=${(/** @type {boolean} */ isOn) => set({ isReset: isOn, isChecked: false })} />`}
    ${isChecked && html`<p class="notice" role="status">The server accepts it. <code>${config.name}</code>: ${content(config.value)} → ${content(after)}</p>`}
  </${FormDialog}>`;
}

/** @param {{path: string, name: string, id?: string, rights?: string[]}} props `path` is that of the API, which lists and alters them */
export function Configs({ path, name, id = "", rights }) {
  const isAll = !parameter("set");
  const loaded = useList(path);
  const columns = [
    text("name", "Config", (own, row) => html`${may("admin", "ALTER_CONFIGS", rights) && !row.is_read_only
        ? button(own, () => open(html`<${Edit} path=${path} name=${name} config=${row} />`), "plain") : own}${
        row.documentation && html`<br /><span class="small">${row.documentation}</span>`}`),
    text("value", "Value", (value, row) => (row.is_sensitive ? html`<i class="quiet">hidden</i>` : content(value))),
    text("default", "Default", (value, row) => (row.is_sensitive ? "" : content(value))),
    text("source", "Set by", (source, row) => html`${badge(source, row.is_default ? "" : "good")}${row.is_read_only && html` ${badge("read-only")}`}`,
      (row) => SOURCES[row.source] ?? row.source),
  ];
  return shown(loaded, (/** @type {any[]} */ rows) => {
    const set = rows.filter((each) => !each.is_default);
    return html`<${Table} id=${id} noun="config" rows=${isAll ? rows : set} columns=${columns}
      search=${["name", "value"]} empty="None is set: all are defaults."
      tools=${html`<${Toggle} label=${`only what is set (${set.length})`} name="set" />`} />`;
  });
}

/** The screen of brokers' configs. */
export function Screen() {
  const loaded = useList("/v3/clusters/-/brokers");
  return html`<h1>Broker configs</h1>
    ${shown(loaded, (/** @type {any[]} */ brokers) => brokers.map((each) => html`<section key=${each.broker_id}>
      <p class="facts">Broker ${each.broker_id} at <code>${each.host}:${each.port}</code></p>
      <${Configs} path=${at`/api/v1/configs/broker/${each.broker_id}`} name=${`broker ${each.broker_id}`} /></section>`))}`;
}
