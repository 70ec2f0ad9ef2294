/** Access: who uses the page; users with their passwords, ACLs and quotas. */

import { html } from "../vendor/preact.js";
import { alter, at, list } from "../core/api.js";
import { count, plural } from "../core/format.js";
import { change, parameter, parameterText, route } from "../core/router.js";
import { has, may } from "../core/session.js";
import { Field, FormDialog, open, openDelete, say, useForm } from "../parts/dialog.js";
import { badge, button, List, number, shown, Table, Tabs, text, useGet, useList, useLoaded } from "../parts/screen.js";

/** Ids, names, and the right to the cluster that each needs. */
const TABS = [["users", "Users", "DESCRIBE"], ["acls", "ACLs", "DESCRIBE"], ["quotas", "Quotas", "DESCRIBE_CONFIGS"]];

/** @param {(row: any) => unknown} buttons */
const changing = (buttons) => text("change", "Change", (_, row) => html`<span class="actions">${buttons(row)}</span>`);

/** @param {{name?: string}} props without a name that of a new user */
function Password({ name }) {
  const [form, set, bind] = useForm({ name: name ?? "", password: "", mechanism: "" });
  const act = () => {
    set({ password: "" });
    return alter("PUT", at`/api/v1/users/${form.name}`, { password: form.password, mechanism: form.mechanism || undefined });
  };
  return html`<${FormDialog} title=${name ? `Password of ${name}` : "Create a user"} action="Set the password" act=${act} done=${`The password of ${form.name} is set.`} isReady=${form.name && form.password}>
    ${!name && html`<${Field} label="Name" hint="A user of this name gets the new password." ...${bind("name")} />`}
    <${Field} label="Password" type="password" autocomplete="new-password" ...${bind("password")} />
    <${Field} label="For logins by" options=${[["", "SCRAM-SHA-256 and SCRAM-SHA-512"], "SCRAM-SHA-256", "SCRAM-SHA-512"]} ...${bind("mechanism")} />
  </${FormDialog}>`;
}

/** @param {string} name */
const deleteUser = (name) => openDelete("the user", name, "No new login then has its password. ACLs and quotas of the name stay.", at`/api/v1/users/${name}`);

const USER_COLUMNS = [
  text("user_name", "User"),
  text("credentials", "Logs in by", (all) => all.map((/** @type {any} */ each) => `${each.mechanism} (${count(each.iterations)} iterations)`).join(", ")),
  changing(({ user_name: name }) => may("admin", "ALTER") && [button("Password", () => open(html`<${Password} name=${name} />`)), button("Delete", () => deleteUser(name), "danger")]),
];

function Users() {
  return html`<${List} of=${useList("/api/v1/users")} noun="user" columns=${USER_COLUMNS} search=${["user_name"]} empty="No user has a password."
    tools=${may("admin", "ALTER") && button("Create a user", () => open(html`<${Password} />`), "main")} />`;
}

const ACLS = "/v3/clusters/-/acls";
const OPERATIONS = ["READ", "WRITE", "ALL", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "TWO_PHASE_COMMIT"];
/** The fields of an ACL: names of the API, labels, choices, and what is there at first. @type {[string, string, string[]?, string?][]} */
const FIELDS = [
  ["principal", "Principal", , "User:"],
  ["permission", "Permission", ["ALLOW", "DENY"]],
  ["operation", "Operation", OPERATIONS],
  ["resource_type", "Resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]],
  ["resource_name", "Its name"],
  ["pattern_type", "Pattern", ["LITERAL", "PREFIXED"]],
  ["host", "Host", , "*"],
];
/** @param {(name: string) => any} valueOf @returns {Record<string, any>} */
const fieldsOf = (valueOf) => Object.fromEntries(FIELDS.map(([name]) => [name, valueOf(name)]));

function CreateAcl() {
  const [form, , bind] = useForm(() => Object.fromEntries(FIELDS.map(([name, , options, first = options?.[0] ?? ""]) => [name, first])));
  return html`<${FormDialog} title="Create an ACL" action="Create" act=${() => alter("POST", ACLS, form)} done="The ACL is in force." isReady=${form.resource_name !== ""}>${FIELDS.map(([name, label, options]) =>
    html`<${Field} key=${name} label=${label} options=${options} hint=${name === "resource_name" && "* is every name; that of the cluster is kafka-cluster."} ...${bind(name)} />`)}</${FormDialog}>`;
}

const ACL_COLUMNS = [
  text("principal", "Principal"),
  text("permission", "Permission", (permission) => badge(permission, permission === "ALLOW" ? "good" : "bad")),
  text("operation", "Operation"),
  text("resource", "Resource", (name, row) => html`${name}${row.pattern_type === "PREFIXED" && html` ${badge("prefix")}`}`, (row) => `${row.resource_type} ${row.resource_name}`),
  text("host", "Host"),
];
const keyOfAcl = (/** @type {any} */ row) => JSON.stringify(fieldsOf((name) => row[name]));

/** Delete the ACLs of a filter, after they were seen. @param {any[]} rows @param {Record<string, any>} filter */
const deleteAcls = (rows, filter) => open(html`<${FormDialog} title="Delete ACLs" action="Delete them" isDangerous isWide
  act=${async () => {
    const found = FIELDS.map(([name, , options]) => [name, filter[name] || (options && "ANY")]);
    const { data } = await alter("DELETE", `${ACLS}?${parameterText(Object.fromEntries(found))}`);
    say(`${plural(data.length, "ACL")} deleted.`);
  }}><p>${plural(rows.length, "ACL")}:</p>
  <${Table} id="d" noun="ACL" rows=${rows} columns=${ACL_COLUMNS} keyOf=${keyOfAcl} /></${FormDialog}>`);

function Acls() {
  const filter = fieldsOf(parameter);
  const [form, , bind] = useForm(filter);
  const loaded = useList(ACLS, filter);
  const canChange = may("admin", "ALTER");
  const columns = canChange ? [...ACL_COLUMNS, changing((row) => button("Delete", () => deleteAcls([row], fieldsOf((name) => row[name])), "danger"))] : ACL_COLUMNS;
  return html`<form class="card" aria-label="Which ACLs" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      change(form);
    }}><div class="row">${FIELDS.map(([name, label, options]) => html`<${Field} key=${name} label=${label} isShort ...${bind(name)}
      options=${options && [["", "any"], ...options, ...(name === "pattern_type" ? [["MATCH", "covers the name"]] : [])]} />`)}</div>
      <p class="buttons"><button type="submit" class="main">Show</button></p></form>
    ${shown(loaded, (rows) => html`<${Table} noun="ACL" rows=${rows} columns=${columns} keyOf=${keyOfAcl}
      empty=${Object.values(filter).some(Boolean) ? "No ACL is like this." : "There is no ACL yet."}
      tools=${canChange && [button("Create an ACL", () => open(html`<${CreateAcl} />`), "main"),
        rows.length > 0 && button("Delete these", () => deleteAcls(rows, filter), "danger")]} />`)}`;
}

const QUOTAS = "/api/v1/quotas";
const VALUES = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
/** @param {string} key */
const labelOf = (key) => key.replaceAll("_", " ");

/** @param {any[]} entity */
const entityText = (entity) => entity.map(({ type, name }) => `${type} ${name === null ? "default" : JSON.stringify(name)}`).join(", ");

/** @param {{quota?: any}} props without a quota a new one */
function SetQuota({ quota }) {
  const [form, , bind] = useForm(/** @returns {Record<string, string>} */ () => ({
    of: "user", user: "", "client-id": "", ip: "", ...Object.fromEntries(VALUES.map((key) => [key, String(quota?.[key] ?? "")])),
  }));
  const entity = quota?.entity ?? form.of.split(",").map((type) => ({ type, name: form[type] || null }));
  const keys = VALUES.filter((key) => (key === "connection_creation_rate") === (entity[0].type === "ip"));
  const values = keys.map((key) => [key, form[key] ? Number(form[key]) : quota?.[key] === undefined ? undefined : null]);
  return html`<${FormDialog} title=${quota ? `Quota of ${entityText(entity)}` : "Set a quota"} action="Set" isReady=${keys.some((key) => form[key])}
    act=${() => alter("PUT", QUOTAS, { entity, values: Object.fromEntries(values) })} done=${`The quota of ${entityText(entity)} is in force.`}>
    ${!quota && html`<${Field} label="Of" options=${["user", "client-id", "user,client-id", "ip"]} ...${bind("of")} />
      ${entity.map((/** @type {any} */ { type }) => html`<${Field} key=${type} label=${`Name of the ${type}`} hint="Empty: the default" ...${bind(type)} />`)}`}
    ${keys.map((key) => html`<${Field} key=${key} label=${labelOf(key)} type="number" ...${bind(key)} />`)}
  </${FormDialog}>`;
}

/** @param {any[]} entity */
const removeQuota = (entity) => open(html`<${FormDialog} title="Remove the quota" action="Remove" isDangerous done=${`The quota of ${entityText(entity)} is removed.`} act=${() => {
  const names = entity.map(({ type, name }) => [type.replace("-", "_") + (name === null ? "_default" : ""), name ?? true]);
  return alter("DELETE", `${QUOTAS}?${parameterText(Object.fromEntries(names))}`);
}}><p>Less specific quotas then bound <code>${entityText(entity)}</code>, if any do.</p></${FormDialog}>`);

const QUOTA_COLUMNS = [
  text("of", "Of"),
  ...VALUES.map((key) => number(key, labelOf(key), count)),
  changing((row) => may("admin", "ALTER_CONFIGS") && [button("Change", () => open(html`<${SetQuota} quota=${row} />`)), button("Remove", () => removeQuota(row.entity), "danger")]),
];

function Quotas() {
  const loaded = useLoaded(async (signal) => (await list(QUOTAS, {}, signal)).map(({ entity, values }) => ({ entity, of: entityText(entity), ...values })), []);
  return html`<${List} of=${loaded} noun="quota" columns=${QUOTA_COLUMNS} search=${["of"]} empty="There is no quota: every client may go as fast as it can."
    tools=${may("admin", "ALTER_CONFIGS") && button("Set a quota", () => open(html`<${SetQuota} />`), "main")} />`;
}

/** @param {any} own */
function parts(own) {
  const tabs = TABS.filter(([id, , right]) => has(right, own.cluster_operations) && (id !== "acls" || own.has_authorizer));
  const tab = (tabs.find(([id]) => id === route.value.path[1]) ?? tabs[0])?.[0];
  return html`
    <p class="facts">You are <code>${own.principal}</code> · role ${own.role} · ${own.is_super_user ? "no ACL bounds you" : `rights to the cluster: ${own.cluster_operations.join(", ") || "none"}`}</p>
    ${!own.has_authorizer && html`<p class="notice">Access control is off, so everybody who gets in may do everything: <code>MILLRACE_AUTHORIZER=acl</code> and <code>MILLRACE_SUPER_USERS</code>,
      for the gateways and admin-api, turn it on at their next start.</p>`}
    ${tab && html`<${Tabs} of="Of access" base=${["access"]} tabs=${tabs} now=${tab} />`}
    ${tab === "users" && html`<${Users} />`}
    ${tab === "acls" && html`<${Acls} />`}
    ${tab === "quotas" && html`<${Quotas} />`}`;
}

export const Screen = () => html`<h1>Access</h1>${shown(useGet("/api/v1/me"), parts)}`;
