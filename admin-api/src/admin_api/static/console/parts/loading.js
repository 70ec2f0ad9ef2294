/** What a screen shows of the API: loaded, again at an interval, with the old answer kept while an error is shown. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { intervalS } from "../core/preferences.js";

/**
 * @template T
 * @typedef {{data: T | null, error: Error | null, isLoading: boolean, reload: () => void}} Loaded
 */

/**
 * Load for as long as a component is shown. `isLive` loads again at the chosen interval, while the page is visible.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} inputs @param {boolean} [isLive]
 * @returns {Loaded<T>}
 */
export function useLoaded(load, inputs, isLive = false) {
  const [state, setState] = useState(/** @type {{data: T | null, error: Error | null, isLoading: boolean}} */ ({ data: null, error: null, isLoading: true }));
  const again = useRef(() => {});
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
    again.current = run;
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...inputs, seconds]);
  return { ...state, reload: () => again.current() };
}

/** An error with the id under which the server's log has it. @param {{error: any, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <p>${error.message}</p>
    ${error.requestId && html`<p class="small">Error ${error.code}, X-Request-Id <code>${error.requestId}</code></p>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The parts of a screen that depend on an answer. @param {{of: Loaded<any>, children: (data: any) => unknown}} props */
export function Shown({ of, children }) {
  return html`<${Failure} error=${of.error} retry=${of.reload} />
    ${of.data !== null ? children(of.data) : of.isLoading && html`<p class="loading" role="status">Loading …</p>`}`;
}
