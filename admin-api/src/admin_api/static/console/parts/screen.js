/** What screens are made of: buttons, badges and tabs; what is loaded of the API, again at an interval. */

import { Component, html, signal, useEffect, useState } from "../vendor/preact.js";
import { list } from "../core/api.js";
import { intervalS } from "../core/preferences.js";
import { link } from "../core/router.js";

/** @param {unknown} label @param {(event: any) => unknown} act @param {"" | "main" | "danger" | "plain"} [look] */
export const button = (label, act, look = "") => html`<button type="button" class=${look} onClick=${act}>${label}</button>`;

/** @param {unknown} text @param {string} [look] */
export const badge = (text, look = "") => html`<span class=${`badge ${look}`}>${text}</span>`;

/** @param {{of: string, base: string[], tabs: string[][], now: string}} props `tabs` are ids and names */
export const Tabs = ({ of, base, tabs, now }) => html`<div class="tabs" role="navigation" aria-label=${of}>${tabs.map(
  ([id, name]) => html`<a key=${id} href=${link([...base, id])} aria-current=${id === now ? "page" : undefined}>${name}</a>`,
)}</div>`;

const changes = signal(0);

/** Load again what the screen shows: something of it was changed. */
export function reload() {
  changes.value += 1;
}

/**
 * Load for as long as a component is shown. `isLive` loads again at the chosen interval, while the page is visible.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} inputs @param {boolean} [isLive]
 * @returns {Loaded<T>}
 */
export function useLoaded(load, inputs, isLive = false) {
  const [state, setState] = useState(/** @type {{data: T | null, error: Error | null, isLoading: boolean}} */ ({ data: null, error: null, isLoading: true }));
  const seconds = isLive ? intervalS.value : 0;
  useEffect(() => {
    setState((old) => ({ ...old, data: null, error: null, isLoading: true }));
  }, inputs);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    async function run() {
      clearTimeout(timer);
      if (!document.hidden || !seconds) {
        try {
          const data = await load(stop.signal);
          if (!stop.signal.aborted) setState({ data, error: null, isLoading: false });
        } catch (error) {
          if (!stop.signal.aborted) setState((old) => ({ ...old, error: /** @type {Error} */ (error), isLoading: false }));
        }
      }
      if (seconds && !stop.signal.aborted) timer = setTimeout(run, seconds * 1000);
    }
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...inputs, seconds, changes.value]);
  return state;
}

/** Load a list of the API. @param {string} path @param {Query} [query] @param {boolean} [isLive] */
export const useList = (path, query = {}, isLive = false) => useLoaded((signal) => list(path, query, signal), [path, ...Object.values(query)], isLive);

/** An error with the id under which the server's log has it. @param {{error: any, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <p>${error.message}</p>
    ${error.requestId && html`<p class="small">Error ${error.code}, X-Request-Id <code>${error.requestId}</code></p>`}
    ${retry && button("Try again", retry)}
  </div>`;
}

/** Draw what depends on an answer, or why there is none. @param {Loaded<any>} of @param {(data: any) => unknown} draw */
export const shown = (of, draw) => html`<${Failure} error=${of.error} retry=${reload} />
  ${of.data !== null ? draw(of.data) : of.isLoading && html`<p class="loading" role="status">Loading …</p>`}`;

/** The head of a screen within another one. @param {{of: string, path: string[], name: string, children?: unknown}} props `of` names the other, `children` are buttons */
export const Head = ({ of, path, name, children }) => html`<p class="back"><a href=${link(path)} data-back>← ${of}</a></p>
  <div class="title"><h1 class="name">${name}</h1>${children && html`<div class="actions">${children}</div>`}</div>`;

/**
 * Return the error of the last try, whether one is under way, and what tries `act` when a form is sent.
 * @param {() => Promise<unknown>} act @returns {[any, boolean, (event: Event) => Promise<void>]}
 */
export function useAction(act) {
  const [state, setState] = useState(/** @type {{error: unknown, isBusy: boolean}} */ ({ error: null, isBusy: false }));
  return [state.error, state.isBusy, async (event) => {
    event.preventDefault();
    if (state.isBusy) return;
    setState({ error: null, isBusy: true });
    setState({ error: await act().then(() => null, (error) => error), isBusy: false });
  }];
}

/** Return a component that is drawn again only when a prop or a signal is another. @param {(props: any) => unknown} draw */
export const kept = (draw) =>
  class extends Component {
    /** @param {any} next @param {any} state another one if a signal has changed */
    shouldComponentUpdate(next, state) {
      return state !== /** @type {any} */ (this).state || Object.keys(next).some((each) => next[each] !== this.props[each]);
    }
    /** @param {any} props */
    render(props) {
      return draw(props);
    }
  };
