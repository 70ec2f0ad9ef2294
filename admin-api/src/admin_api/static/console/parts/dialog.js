/** The dialog over a screen, fields of forms, and the messages that say what was done. */

import { html, signal, useEffect, useRef, useState } from "../vendor/preact.js";
import { alter } from "../core/api.js";
import { change, go, parameter } from "../core/router.js";
import { button, Failure, reload, useAction } from "./screen.js";

/** How long a message stays, in ms. */
const SHOWN_MS = 6000;
let number = 0;

/** @type {Signal<{id: number, text: string}[]>} */
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

/** The dialog that is open. @type {Signal<unknown>} */
const dialog = signal(null);
export const OpenDialog = () => dialog.value;

/** Show a dialog until it is closed, or another screen is shown. @param {unknown} shown */
export function open(shown) {
  dialog.value = shown;
}
export const close = () => open(null);

/**
 * A dialog. Escape and the cross close it; the focus goes back by itself.
 * @param {{title: string, children?: unknown, isWide?: boolean}} props
 */
export function Dialog({ title, children, isWide = false }) {
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
 * A form in a dialog. `act` does it; then the dialog closes, and the screen loads again. An error that it throws is shown;
 * null keeps the dialog open.
 * @param {FormDialogProps} props
 */
export function FormDialog({ title, action, act, children, done, isDangerous = false, isReady = true, isWide = false }) {
  const [error, isBusy, submit] = useAction(async () => {
    await act();
    if (done) say(done);
    close();
    reload();
  });
  return html`<${Dialog} title=${title} isWide=${isWide}>
    <form onSubmit=${submit}>
      ${children}
      <${Failure} error=${error} />
      <p class="buttons">
        <button type="submit" class=${isDangerous ? "danger" : "main"} disabled=${!isReady || isBusy}>${isBusy ? "Working …" : action}</button>
        ${button("Cancel", close)}
      </p>
    </form>
  </${Dialog}>`;
}

/**
 * A dialog for what cannot be undone: the button works once the name is typed.
 * @param {FormDialogProps & {text: string, name: string}} props
 */
export function NameDialog({ title, text, name, action, act }) {
  const [typed, setTyped] = useState("");
  return html`<${FormDialog} title=${title} action=${action} act=${act} isDangerous isReady=${typed === name}>
    <p>${text}</p>
    <${Field} label=${html`Type <code>${name}</code> to go on`} value=${typed} onInput=${setTyped} />
  </${FormDialog}>`;
}

/** Delete what a path names, once its name is typed. @param {string} what @param {string} name @param {string} text @param {string} path @param {string[]} [next] screen */
export const openDelete = (what, name, text, path, next) => open(html`<${NameDialog} title=${`Delete ${what}`} action=${`Delete ${what}`} name=${name} text=${text}
  act=${async () => {
    await alter("DELETE", path);
    say(`Deleted: ${what} ${name}.`);
    if (next) go(next);
  }} />`);

/**
 * Return the values of a form, what changes some of them, and what gives a field its value.
 * @template {Record<string, any>} T @param {T | (() => T)} first @returns {[T, (changes: Partial<T>) => void, (name: keyof T) => object]}
 */
export function useForm(first) {
  const [form, setForm] = useState(first);
  const set = (/** @type {Partial<T>} */ changes) => setForm((old) => ({ ...old, ...changes }));
  return [form, set, (name) => ({ value: form[name], onInput: (/** @type {any} */ value) => set(/** @type {any} */ ({ [name]: value })) })];
}

/** A labelled field of a form. @param {FieldProps} props */
export function Field({ label, value, onInput, options, lines, hint, type = "text", placeholder, autocomplete = "off", isShort = false }) {
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
        : html`<input id=${id} type=${type} step="any" value=${value} onInput=${given} spellcheck=${false} autocomplete=${autocomplete} placeholder=${placeholder} aria-describedby=${described} />`}
    ${hint && html`<small id=${described}>${hint}</small>`}
  </div>`;
}

/** @param {{label: unknown, isOn: boolean, onInput: (isOn: boolean) => void}} props */
export function Check({ label, isOn, onInput }) {
  return html`<label class="check"><input type="checkbox" checked=${isOn} onChange=${(/** @type {any} */ event) => onInput(event.target.checked)} /> ${label}</label>`;
}

/** A choice that is a parameter of the screen. @param {{label: unknown, name: string}} props */
export const Toggle = ({ label, name }) => html`<${Check} label=${label} isOn=${parameter(name) !== ""} onInput=${(/** @type {boolean} */ isOn) => change({ [name]: isOn && 1 })} />`;

/** A button that copies a text. @param {{label: string, text: () => string}} props */
export const Copy = ({ label, text }) =>
  button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      say(`${label}: copied.`);
    } catch {
      say("The browser does not let this page copy.");
    }
  });
