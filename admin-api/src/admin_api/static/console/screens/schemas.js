/** Schemas: the subjects of the registry; one of them with its versions, and what is different between two. */

import { html } from "../vendor/preact.js";
import { at, get } from "../core/api.js";
import { difference } from "../core/difference.js";
import { indented, tree } from "../core/exact_json.js";
import { change, link, parameter } from "../core/router.js";
import { Copy, Field } from "../parts/dialog.js";
import { Head, List, shown, text, useGet, useList, useLoaded } from "../parts/screen.js";

const PATH = "/api/v1/schemas/subjects";
/** @type {Record<string, string>} */
const ELEMENTS = { " ": "span", "-": "del", "+": "ins" };

const COLUMNS = [
  text("subject", "Subject", (name) => html`<a href=${link(["schemas", name])}>${name}</a>`),
  text("topic", "Topic", (topic) => topic && html`<a href=${link(["topics", topic])}>${topic}</a>`, (row) => /^(.+)-(key|value)$/.exec(row.subject)?.[1]),
];

export const Screen = () => html`<h1>Schemas</h1><${List} of=${useList(PATH)} noun="subject" columns=${COLUMNS} search=${["subject"]} empty="The registry has no subject yet." />`;

/** Return the text of a schema, JSON on many lines. @param {any} version */
const readable = ({ type, text }) => (type === "PROTOBUF" ? text : indented(tree(text)));

/** One version, or what is different from another one. @param {{path: string, version: string, other: string}} props */
function Version({ path, version, other }) {
  const loaded = useLoaded((signal) => Promise.all([version, other].filter(Boolean).map((each) => get(`${path}/${each}`, {}, signal))), [path, version, other]);
  return shown(loaded, ([own, before]) => html`
    <p class="facts">${own.type} · schema id ${own.schema_id}${own.references.map((/** @type {any} */ each) => html` · needs
      <a href=${link(["schemas", each.subject], { version: each.version })}>${each.name}</a>, version ${each.version}`)}</p>
    <pre class="box" tabindex="0" aria-label="Schema">${!before ? readable(own)
      : difference(readable(before), readable(own)).map(([sign, line]) => html`<${ELEMENTS[sign]}>${`${sign} ${line}\n`}</>`)}</pre>
    <p><${Copy} label="Copy the schema" text=${() => own.text} /></p>`);
}

/** @param {{name: string}} props */
export function Inner({ name: subject }) {
  const path = `${PATH}${at`/${subject}/versions`}`;
  return html`<${Head} of="Schemas" path=${["schemas"]} name=${subject} />${shown(useGet(path), ({ versions }) => {
    const numbers = versions.map(String).reverse();
    const [version, other] = [parameter("version") || numbers[0], parameter("other")];
    return html`<div class="row">
        <${Field} label="Version" isShort value=${version} options=${numbers} onInput=${(/** @type {string} */ version) => change({ version })} />
        <${Field} label="Compared with" isShort value=${other} options=${[["", "none"], ...numbers]} onInput=${(/** @type {string} */ other) => change({ other })} /></div>
      <${Version} path=${path} version=${version} other=${other} />`;
  })}`;
}
