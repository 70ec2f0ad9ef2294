/** Dialogs, and the messages that say what was done. */

import { html, signal, useEffect, useRef, useState } from "../vendor/preact.js";
import { Failure } from "./loading.js";

/** How long a message stays, in ms. */
const SHOWN_MS = 6000;
let number = 0;

/** @type {import("../vendor/preact.js").Signal<{id: number, text: string}[]>} */
const messages = signal([]);

/** Say what was done, for as long as it is read. @param {string} text */
export function say(text) {
  number += 1;
  const id = number;
  messages.value = [...messages.value.slice(-2), { id, text }];
  setTimeout(() => {
    messages.value = messages.value.filter((each) => each.id !== id);
  }, SHOWN_MS);
}

export function Messages() {
  return html`<div class="messages" role="status" aria-live="polite">${messages.value.map((each) => html`<p key=${each.id}>${each.text}</p>`)}</div>`;
}

/**
 * A dialog over the page for as long as it is rendered. Escape and the cross call `close`; the focus goes back by itself.
 * @param {{title: string, close: () => void, children?: unknown, isWide?: boolean}} props
 */
export function Dialog({ title, close, children, isWide = false }) {
  const own = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const shown = own.current;
    shown?.showModal();
    /** @type {HTMLElement | null | undefined} */ (shown?.querySelector("input, select, textarea, form button"))?.focus();
    return () => {
      shown?.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<dialog ref=${own} class=${isWide ? "wide" : ""} aria-label=${title} onCancel=${(/** @type {Event} */ event) => {
    event.preventDefault();
    close();
  }}>
    <header><h2>${title}</h2><button type="button" class="plain" aria-label="Close" onClick=${close}>✕</button></header>
    ${children}
  </dialog>`;
}

/**
 * A form in a dialog. `act` does it, then `close` is called. An error that it throws is shown; null keeps the dialog open.
 * @param {{title: string, action: string, act: () => Promise<unknown>, close: () => void, children?: unknown,
 *   isDangerous?: boolean, isReady?: boolean, isWide?: boolean}} props
 */
export function FormDialog({ title, action, act, close, children, isDangerous = false, isReady = true, isWide = false }) {
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    if (isBusy || !isReady) return;
    setBusy(true);
    setError(null);
    try {
      await act();
      close();
    } catch (caught) {
      setError(/** @type {Error} */ (caught));
    }
    setBusy(false);
  }
  return html`<${Dialog} title=${title} close=${close} isWide=${isWide}>
    <form onSubmit=${submit}>
      ${children}
      <${Failure} error=${error} />
      <p class="buttons">
        <button type="submit" class=${isDangerous ? "danger" : "main"} disabled=${!isReady || isBusy}>${isBusy ? "Working …" : action}</button>
        <button type="button" onClick=${close}>Cancel</button>
      </p>
    </form>
  </${Dialog}>`;
}

/**
 * A dialog for what cannot be undone: the button works once the name is typed.
 * @param {{title: string, text: string, name: string, action: string, act: () => Promise<unknown>, close: () => void}} props
 */
export function NameDialog({ title, text, name, action, act, close }) {
  const [typed, setTyped] = useState("");
  return html`<${FormDialog} title=${title} action=${action} act=${act} close=${close} isDangerous isReady=${typed === name}>
    <p>${text}</p>
    <${Field} label=${html`Type <code>${name}</code> to go on`} value=${typed} onInput=${setTyped} />
  </${FormDialog}>`;
}

/**
 * A labelled field of a form. `options` makes it a choice, `lines` a larger one.
 * @param {{label: unknown, value: any, onInput: (value: string) => void, options?: (string | [string, string])[], lines?: number,
 *   hint?: unknown, type?: string, placeholder?: string, isShort?: boolean}} props
 */
export function Field({ label, value, onInput, options, lines, hint, type = "text", placeholder, isShort = false }) {
  const given = (/** @type {any} */ event) => onInput(event.target.value);
  const [id] = useState(() => {
    number += 1;
    return `field-${number}`;
  });
  const described = hint ? `${id}-hint` : undefined;
  return html`<div class=${`field ${isShort ? "short" : ""}`}><label for=${id}>${label}</label>
    ${options
      ? html`<select id=${id} value=${value} onChange=${given}>${options.map((each) => {
          const [code, name] = Array.isArray(each) ? each : [each, each];
          return html`<option key=${code} value=${code} selected=${code === value}>${name}</option>`;
        })}</select>`
      : lines
        ? html`<textarea id=${id} rows=${lines} value=${value} onInput=${given} spellcheck=${false} aria-describedby=${described}></textarea>`
        : html`<input id=${id} type=${type} value=${value} onInput=${given} spellcheck=${false} autocomplete="off" placeholder=${placeholder} aria-describedby=${described} />`}
    ${hint && html`<small id=${described}>${hint}</small>`}
  </div>`;
}

/** @param {{label: unknown, isOn: boolean, onInput: (isOn: boolean) => void}} props */
export function Check({ label, isOn, onInput }) {
  return html`<label class="check"><input type="checkbox" checked=${isOn} onChange=${(/** @type {any} */ event) => onInput(event.target.checked)} /> ${label}</label>`;
}

/** A button that copies a text. @param {{label: string, text: () => string}} props */
export function Copy({ label, text }) {
  return html`<button type="button" onClick=${async () => {
    try {
      await navigator.clipboard.writeText(text());
      say(`${label}: copied.`);
    } catch {
      say("The browser does not let this page copy.");
    }
  }}>${label}</button>`;
}
