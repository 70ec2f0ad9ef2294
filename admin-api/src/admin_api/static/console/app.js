/** The console: the frame around the screens, and which screen an address shows. */

import { effect, html, render, useEffect } from "./vendor/preact.js";
import { curl, needsLogin, requests } from "./core/api.js";
import { listen, SCREENS } from "./core/keyboard.js";
import { INTERVALS_S, THEMES, intervalS, isUtc, theme } from "./core/preferences.js";
import { follow, link, route } from "./core/router.js";
import { has, hasUsers, session, loadSession, logOut } from "./core/session.js";
import { close, Copy, Dialog, Field, Messages, open, OpenDialog, useForm } from "./parts/dialog.js";
import { button, Failure, useAction, useLoaded } from "./parts/screen.js";

/** First part of a path -> the module of its screen, and of that of one thing. @type {Record<string, () => Promise<{Screen: any, Inner?: any}>>} */
const MODULES = {
  "": () => import("./screens/overview.js"),
  topics: () => import("./screens/topics.js"),
  groups: () => import("./screens/groups.js"),
  transactions: () => import("./screens/transactions.js"),
  brokers: () => import("./screens/configs.js"),
  storage: () => import("./screens/storage.js"),
  schemas: () => import("./screens/schemas.js"),
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

const Choices = () => html`<div class="choices">
  <${Field} label="Theme" value=${theme.value} options=${THEMES} onInput=${(/** @type {string} */ value) => (theme.value = value)} />
  <${Field} label="Times" value=${isUtc.value ? "UTC" : "local"} options=${["local", "UTC"]} onInput=${(/** @type {string} */ value) => (isUtc.value = value === "UTC")} />
  <${Field} label="Refresh" value=${String(intervalS.value)} options=${INTERVALS_S.map((each) => [String(each), each ? `${each} s` : "off"])} onInput=${(/** @type {string} */ value) => (intervalS.value = Number(value))} />
</div>`;

function Requests() {
  if (!requests.value.length) return null;
  return html`<details class="requests"><summary>Requests of this screen, as curl</summary>
    <ul>${requests.value.map((each) => html`<li key=${each.method + each.url}><code>${curl(each)}</code><${Copy} label="Copy" text=${() => curl(each)} /></li>`)}</ul>
  </details>`;
}

function Main() {
  const [first = "", name] = route.value.path;
  const loaded = useLoaded(async () => {
    if (!MODULES[first]) throw new Error("There is no such screen.");
    return { of: first, ...(await MODULES[first]()) };
  }, [first]);
  if (loaded.error) return html`<h1>Not found</h1><${Failure} error=${loaded.error} />`;
  if (loaded.data?.of !== first) return html`<p class="loading">Loading …</p>`;
  const { Screen, Inner = Screen } = loaded.data;
  return html`<${name === undefined ? Screen : Inner} key=${name} name=${name} />`;
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
      <ul>${Object.values(SCREENS).filter(([, , right, flag]) => (!right || has(right)) && (!flag || session.value?.[flag])).map(([name, to]) => html`<li key=${name}>
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
let shown = "";
effect(() => {
  const path = route.value.path;
  document.title = [...path.slice(0, 3).reverse(), "Millrace"].join(" – ");
  const [first, name] = path;
  if (shown !== link([first, name])) requests.value = [];
  shown = link([first, name]);
});
await loadSession().catch(() => {});
render(html`<${Console} />`, /** @type {Element} */ (document.getElementById("console")));
