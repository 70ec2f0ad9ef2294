/** The console: the frame around the screens, and which screen an address shows. */

import { effect, html, render, useEffect, useState } from "./vendor/preact.js";
import { curl, needsLogin, requests } from "./core/api.js";
import { listen, SCREENS } from "./core/keyboard.js";
import { INTERVALS_S, THEMES, intervalS, isUtc, theme } from "./core/preferences.js";
import { follow, link, route } from "./core/router.js";
import { has, hasUsers, session, loadSession, logOut } from "./core/session.js";
import { close, Copy, Dialog, Field, Messages, open, OpenDialog, useForm } from "./parts/dialog.js";
import { button, Failure, useAction } from "./parts/screen.js";

/** First part of a path -> the module of its screen. @type {Record<string, () => Promise<{Screen: any}>>} */
const MODULES = {
  "": () => import("./screens/overview.js"),
  topics: () => (route.peek().path.length > 1 ? import("./screens/topic.js") : import("./screens/topics.js")),
  groups: () => (route.peek().path.length > 1 ? import("./screens/group.js") : import("./screens/groups.js")),
  transactions: () => import("./screens/transactions.js"),
  brokers: () => import("./screens/configs.js"),
  storage: () => import("./screens/storage.js"),
  access: () => import("./screens/access.js"),
};

const KEYS = [
  ["/", "go to the search"],
  ["g, then a letter", Object.entries(SCREENS).map(([letter, [name]]) => `${letter} ${name}`).join(", ")],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["Esc", "leave a field, close a dialog, go back"],
  ["?", "this list"],
];

const showKeys = () =>
  open(html`<${Dialog} title="Keys"><dl class="keys">${KEYS.map(([key, text]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl></${Dialog}>`);

function Login() {
  const [{ user, password, token }, set, bind] = useForm({ user: "", password: "", token: "" });
  const [error, , submit] = useAction(() => {
    set({ password: "", token: "" });
    return loadSession(user ? { user, password } : { token });
  });
  return html`<main id="main" class="login">
    <h1>Log in</h1>
    <p>${hasUsers.value ? "This server wants a user of the cluster, or a token." : "This server wants a token. Its administrator has one for you."}</p>
    <form onSubmit=${submit}>
      ${hasUsers.value && html`<${Field} label="User" autocomplete="username" ...${bind("user")} />
        <${Field} label="Password" type="password" autocomplete="current-password" ...${bind("password")} />`}
      <${Field} label=${hasUsers.value ? "or a token" : "Token"} type="password" autocomplete=${hasUsers.value ? "off" : "current-password"} ...${bind("token")} />
      <${Failure} error=${error} />
      <p class="buttons"><button type="submit" class="main">Log in</button></p>
    </form>
  </main>`;
}

/** @param {number} seconds @returns {[string, string]} */
const interval = (seconds) => [String(seconds), seconds ? `${seconds} s` : "off"];

const Choices = () => html`<div class="choices">
  <${Field} label="Theme" value=${theme.value} options=${THEMES} onInput=${(/** @type {string} */ value) => (theme.value = value)} />
  <${Field} label="Times" value=${isUtc.value ? "UTC" : "local"} options=${["local", "UTC"]} onInput=${(/** @type {string} */ value) => (isUtc.value = value === "UTC")} />
  <${Field} label="Refresh" value=${String(intervalS.value)} options=${INTERVALS_S.map(interval)} onInput=${(/** @type {string} */ value) => (intervalS.value = Number(value))} />
</div>`;

function Requests() {
  if (!requests.value.length) return null;
  return html`<details class="requests"><summary>Requests of this screen, as curl</summary>
    <ul>${requests.value.map((each) => html`<li key=${each.method + each.url}><code>${curl(each)}</code><${Copy} label="Copy" text=${() => curl(each)} /></li>`)}</ul>
  </details>`;
}

function Main() {
  const first = route.value.path[0] ?? "";
  const isInner = route.value.path.length > 1;
  const [found, setFound] = useState(/** @type {{Screen: any, of: string} | {error: Error} | null} */ (null));
  const own = `${first}${isInner ? "/" : ""}`;
  useEffect(() => {
    let isWanted = true;
    requests.value = [];
    const load = MODULES[first];
    if (!load) setFound({ error: new Error("There is no such screen.") });
    else load().then(({ Screen }) => isWanted && setFound({ Screen, of: own }), (error) => isWanted && setFound({ error }));
    return () => {
      isWanted = false;
    };
  }, [own]);
  if (found === null) return html`<p class="loading">Loading …</p>`;
  if ("error" in found) return html`<h1>Not found</h1><${Failure} error=${found.error} />`;
  return found.of === own ? html`<${found.Screen} key=${route.value.path.slice(0, 2).join("/")} />` : html`<p class="loading">Loading …</p>`;
}

function Console() {
  const path = route.value.path;
  useEffect(() => listen(showKeys), []);
  useEffect(close, [path.join("/")]);
  if (needsLogin.value && session.value === null) return html`<${Login} /><${Messages} />`;
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>To the content</a>
    <nav aria-label="Screens">
      <a class="brand" href=${link([])}><img src="icon.svg" alt="" width="24" height="24" />Millrace</a>
      <ul>${Object.values(SCREENS).filter(([, , right]) => !right || has(right)).map(([name, to]) => html`<li key=${name}>
        <a href=${link(to)} aria-current=${to[0] === path[0] ? "page" : undefined}>${name}</a></li>`)}</ul>
    </nav>
    <main id="main" tabindex="-1"><${Main} /><${Requests} /></main>
    <footer>
      <${Choices} />
      <p class="small"><a href="../docs">API</a> ${button("Keys", showKeys, "plain")}
        ${session.value?.name && html` <span>${session.value.name}</span>`}
        ${session.value?.canLogOut && html` ${button("Log out", logOut, "plain")}`}</p>
      ${session.value?.isReadOnly && html`<p class="badge">read-only</p>`}
    </footer>
    <${Messages} /><${OpenDialog} />`;
}

follow();
effect(() => {
  const path = route.value.path;
  document.title = [...path.slice(0, 3).reverse(), "Millrace"].join(" – ");
});
await loadSession().catch(() => {});
render(html`<${Console} />`, /** @type {Element} */ (document.getElementById("console")));
