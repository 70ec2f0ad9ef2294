/** Overview: health with its reasons, brokers, disk, what comes in, and groups that fall behind. */

import { html } from "../vendor/preact.js";
import { get, list } from "../core/api.js";
import { count, duration, plural, rate, size, trend } from "../core/format.js";
import { link } from "../core/router.js";
import { has } from "../core/session.js";
import { Chart } from "../parts/chart.js";
import { shown, useLoaded } from "../parts/screen.js";

/** Groups that are named. */
const GROUPS_SHOWN = 5;

/** Return the last bytes a second of a series as text. @param {any} series */
const speed = ({ points }) => (points.at(-1)?.value == null ? "–" : `${size(points.at(-1).value)} / s`);

/** @param {string} name @param {unknown} text */
const figure = (name, text) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`;

/** Load what the user may see: health and the sums of all topics are rights to the cluster. @param {AbortSignal} signal */
async function load(signal) {
  const seesCluster = has("DESCRIBE");
  const range = (/** @type {string} */ metric) => (seesCluster ? get("/api/v1/metrics/range", { metric }, signal) : { points: [] });
  const [health, brokers, topics, groups, records, bytesIn, bytesOut, lag] = await Promise.all([
    seesCluster ? get("/api/v1/health", {}, signal) : {},
    list("/v3/clusters/-/brokers", {}, signal),
    list("/api/v1/topics", {}, signal),
    list("/api/v1/consumer-groups", { sort: "lag" }, signal),
    ...["records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "lag"].map(range),
  ]);
  return { seesCluster, health, brokers, topics, groups, records, bytesIn, bytesOut, lag };
}

/** @param {any} data */
function figures({ seesCluster, health, brokers, topics, groups, records, bytesIn, bytesOut, lag }) {
  const fullIn = health.disk?.full_in_s ?? null;
  const free = Number(health.disk?.usable_bytes ?? 0);
  const used = health.disk ? 1 - free / Number(health.disk.total_bytes) : 0;
  const behind = groups.filter((/** @type {any} */ each) => each.lag > 0);
  const total = (/** @type {string} */ name) => topics.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + Number(each[name] ?? 0), 0);
  return html`
    ${seesCluster && html`<section class=${`health ${health.is_healthy ? "good" : "bad"}`} aria-label="Health">
      <h2>${health.is_healthy ? "✓ Healthy" : "✕ Not healthy"}</h2>
      ${health.reasons.map((/** @type {any} */ each) => html`<p key=${each.message}><b>${each.service}</b>: ${each.message}</p>`)}
      <ul class="services">${health.services.map((/** @type {any} */ each) => html`<li key=${each.name}>${each.is_up ? "✓" : "✕"} ${each.name}: ${each.detail}</li>`)}</ul>
    </section>`}
    <dl class="figures">
      ${figure("Topics", html`<a href=${link(["topics"])}>${count(topics.length)}</a>`)}
      ${figure("Records", count(total("records")))}
      ${figure("Records in", `${rate(total("records_in_per_s"))} / s`)}
      ${seesCluster && [figure("Bytes in", speed(bytesIn)), figure("Bytes out", speed(bytesOut))]}
      ${figure("Consumer groups", html`<a href=${link(["groups"])}>${count(groups.length)}</a>`)}
      ${health.disk && html`<div class="wide"><dt>Disk</dt><dd>${size(free)} free</dd>
        <dd class="small"><meter min="0" max="1" high="0.85" value=${used} aria-label="Used share of the disk"></meter> ${Math.round(used * 100)} % used,
          ${fullIn === null ? " not growing" : ` full in ${duration(fullIn)} at this rate`}</dd></div>`}
    </dl>
    ${seesCluster && html`<div class="charts">${[
      ["Records in per second", records, rate], ["Bytes in per second", bytesIn, size], ["Bytes out per second", bytesOut, size], ["Lag of all groups", lag, count],
    ].map(([label, { points }, shown]) => html`<${Chart} label=${label} points=${points} shown=${shown} />`)}</div>`}
    <div class="columns">
      <section><h2>Groups that are behind</h2>
        ${behind.length === 0 ? html`<p class="empty">No group has lag.</p>` : html`<ul class="plainlist">${behind.slice(0, GROUPS_SHOWN).map(
          (/** @type {any} */ each) => html`<li key=${each.consumer_group_id}><a href=${link(["groups", each.consumer_group_id])}>${each.consumer_group_id}</a>
            <span>${plural(each.lag, "record")} ${trend(each.lag, each.lag_before)}</span></li>`,
        )}</ul>`}
        ${behind.length > GROUPS_SHOWN && html`<p><a href=${link(["groups"], { sort: "-lag" })}>All ${behind.length}</a></p>`}
      </section>
      <section><h2>Brokers</h2>
        <ul class="plainlist">${brokers.map((/** @type {any} */ each) => html`<li key=${each.broker_id}>Broker ${each.broker_id} <span><code>${each.host}:${each.port}</code></span></li>`)}</ul>
        ${health.disk && html`<p class="small">Data folder <code>${health.disk.path}</code>. <a href=${link(["storage"])}>Segments</a></p>`}
      </section>
    </div>`;
}

export const Screen = () => html`<h1>Overview</h1>${shown(useLoaded(load, [], true), figures)}`;
