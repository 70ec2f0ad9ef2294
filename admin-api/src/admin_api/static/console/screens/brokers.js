/** Brokers and their configs. */

import { html } from "../vendor/preact.js";
import { at, list } from "../core/api.js";
import { Shown, useLoaded } from "../parts/loading.js";
import { Configs } from "./configs.js";

export function Screen() {
  const loaded = useLoaded((signal) => list("/v3/clusters/-/brokers", {}, signal), []);
  return html`<h1>Broker configs</h1>
    <${Shown} of=${loaded}>${(/** @type {any[]} */ brokers) => brokers.map((each) => html`<section key=${each.broker_id}>
      <p class="facts">Broker ${each.broker_id} at <code>${each.host}:${each.port}</code></p>
      <${Configs} path=${at`/api/v1/configs/broker/${each.broker_id}`} name=${`broker ${each.broker_id}`} /></section>`)}</${Shown}>`;
}
