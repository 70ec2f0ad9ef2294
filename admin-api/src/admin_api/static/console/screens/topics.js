/** Topics: all of them with sizes and rates, and a new one. */

import { html } from "../vendor/preact.js";
import { alter } from "../core/api.js";
import { count, rate, size } from "../core/format.js";
import { go, link, parameter } from "../core/router.js";
import { may } from "../core/session.js";
import { Field, FormDialog, open, say, Toggle, useForm } from "../parts/dialog.js";
import { badge, button, useList } from "../parts/screen.js";
import { List, number, text } from "../parts/table.js";

const COLUMNS = [
  text("topic_name", "Topic", (name, row) => html`<a href=${link(["topics", name])}>${name}</a>${row.is_internal && html` ${badge("internal")}`}${
    row.offline_partitions_count > 0 && html` ${badge(`${row.offline_partitions_count} offline`, "bad")}`
  }`),
  number("partitions_count", "Partitions"),
  number("records", "Records", count),
  number("bytes", "Size", size),
  number("records_in_per_s", "In / s", rate),
  text("cleanup_policy", "Cleanup", (policy) => policy ?? "–"),
  number("consumer_groups", "Groups"),
  number("max_lag", "Largest lag", count),
];

function Create() {
  const [{ name, partitions, policy, retention }, , bind] = useForm({ name: "", partitions: "", policy: "delete", retention: "" });
  async function create() {
    const configs = [];
    if (policy !== "delete") configs.push({ name: "cleanup.policy", value: policy });
    if (retention) configs.push({ name: "retention.ms", value: String(retention === "-1" ? -1 : Math.round(Number(retention) * 3_600_000)) });
    await alter("POST", "/v3/clusters/-/topics", { topic_name: name, partitions_count: partitions ? Number(partitions) : undefined, configs });
    say(`Topic ${name} is created.`);
    go(["topics", name]);
  }
  return html`<${FormDialog} title="Create a topic" action="Create" act=${create} isReady=${name !== ""}>
    <${Field} label="Name" hint="1 to 249 letters, digits, . _ and -" ...${bind("name")} />
    <${Field} label="Partitions" type="number" hint="Empty: the broker's num.partitions" ...${bind("partitions")} />
    <${Field} label="Old records are" ...${bind("policy")}
      options=${[["delete", "deleted (delete)"], ["compact", "compacted by key (compact)"], ["compact,delete", "both (compact,delete)"]]} />
    <${Field} label="Kept for hours" type="number" hint="Empty: the broker's default. -1: for ever" ...${bind("retention")} />
  </${FormDialog}>`;
}

export function Screen() {
  const loaded = useList("/api/v1/topics", { include_internal: parameter("internal") && true }, true);
  return html`<div class="title"><h1>Topics</h1>
      ${may("write") && button("Create a topic", () => open(html`<${Create} />`), "main")}</div>
    <${List} of=${loaded} noun="topic" columns=${COLUMNS} search=${["topic_name"]}
      empty="There is no topic yet. A producer can create one, or the button above."
      tools=${html`<${Toggle} label="internal topics" name="internal" />`} />`;
}
