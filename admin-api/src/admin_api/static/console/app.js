/** The console: the frame around the screens, and which screen an address shows. */

import { effect, html, render, useEffect, useState } from "./vendor/preact.js";
import { curl, needsLogin, requests } from "./core/api.js";
import { listen, SCREENS } from "./core/keyboard.js";
import { INTERVALS_S, THEMES, intervalS, isUtc, theme } from "./core/preferences.js";
import { follow, link, route } from "./core/router.js";
import { hasUsers, session, loadSession, logOut } from "./core/session.js";
import { Copy, Dialog, Messages } from "./parts/dialog.js";
import { Failure } from "./parts/loading.js";

/** First part of a path -> the module of its screen. @type {Record<string, () => Promise<{Screen: any}>>} */
const MODULES = {
  "": () => import("./screens/overview.js"),
  topics: () => (route.peek().path.length > 1 ? import("./screens/topic.js") : import("./screens/topics.js")),
  groups: () => (route.peek().path.length > 1 ? import("./screens/group.js") : import("./screens/groups.js")),
  transactions: () => import("./screens/transactions.js"),
  brokers: () => import("./screens/brokers.js"),
  storage: () => import("./screens/storage.js"),
};

const KEYS = [
  ["/", "go to the search"],
  ["g, then a letter", Object.entries(SCREENS).map(([letter, [name]]) => `${letter} ${name}`).join(", ")],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["Esc", "leave a field, close a dialog, go back"],
  ["?", "this list"],
];

function Login() {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [token, setToken] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  return html`<main id="main" class="login">
    <h1>Log in</h1>
    <p>${hasUsers.value ? "This server wants a user of the cluster, or a token." : "This server wants a token. Its administrator has one for you."}</p>
    <form onSubmit=${async (/** @type {Event} */ event) => {
      event.preventDefault();
      setError(null);
      try {
        await loadSession(user ? { user, password } : { token });
      } catch (caught) {
        setError(/** @type {Error} */ (caught));
      }
    }}>
      ${hasUsers.value && html`
        <label class="field"><span>User</span>
          <input autocomplete="username" value=${user} onInput=${(/** @type {any} */ event) => setUser(event.target.value)} /></label>
        <label class="field"><span>Password</span>
          <input type="password" autocomplete="current-password" value=${password} onInput=${(/** @type {any} */ event) => setPassword(event.target.value)} /></label>`}
      <label class="field"><span>${hasUsers.value ? "or a token" : "Token"}</span>
        <input type="password" autocomplete=${hasUsers.value ? "off" : "current-password"} value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
      <${Failure} error=${error} />
      <p class="buttons"><button type="submit" class="main">Log in</button></p>
    </form>
  </main>`;
}

function Choices() {
  return html`<div class="choices">
    <label><span>Theme</span><select value=${theme.value} onChange=${(/** @type {any} */ event) => (theme.value = event.target.value)}>
      ${THEMES.map((each) => html`<option key=${each} value=${each} selected=${each === theme.value}>${each}</option>`)}</select></label>
    <label><span>Times</span><select onChange=${(/** @type {any} */ event) => (isUtc.value = event.target.value === "utc")}>
      <option value="local" selected=${!isUtc.value}>local</option><option value="utc" selected=${isUtc.value}>UTC</option></select></label>
    <label><span>Refresh</span><select onChange=${(/** @type {any} */ event) => (intervalS.value = Number(event.target.value))}>
      ${INTERVALS_S.map((each) => html`<option key=${each} value=${each} selected=${each === intervalS.value}>${each ? `${each} s` : "off"}</option>`)}</select></label>
  </div>`;
}

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
  const [isHelpShown, showHelp] = useState(false);
  const now = route.value.path[0] ?? "";
  useEffect(() => listen(() => showHelp(true)), []);
  if (needsLogin.value && session.value === null) return html`<${Login} /><${Messages} />`;
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>To the content</a>
    <nav aria-label="Screens">
      <a class="brand" href=${link([])}><img src="icon.svg" alt="" width="24" height="24" />Millrace</a>
      <ul>${Object.values(SCREENS).map(([name, path]) => html`<li key=${name}>
        <a href=${link(path)} aria-current=${(path[0] ?? "") === now ? "page" : undefined}>${name}</a></li>`)}</ul>
    </nav>
    <main id="main" tabindex="-1"><${Main} /><${Requests} /></main>
    <footer>
      <${Choices} />
      <p class="small"><a href="../docs">API</a> <button type="button" class="plain" onClick=${() => showHelp(true)}>Keys</button>
        ${session.value?.name && html` <span>${session.value.name}</span>`}
        ${session.value?.canLogOut && html` <button type="button" class="plain" onClick=${logOut}>Log out</button>`}</p>
      ${session.value?.isReadOnly && html`<p class="badge">read-only</p>`}
    </footer>
    <${Messages} />
    ${isHelpShown && html`<${Dialog} title="Keys" close=${() => showHelp(false)}>
      <dl class="keys">${KEYS.map(([key, text]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl></${Dialog}>`}
  `;
}

follow();
effect(() => {
  const path = route.value.path;
  document.title = [...path.slice(0, 3).reverse(), "Millrace"].join(" – ");
});
await loadSession().catch(() => {});
render(html`<${Console} />`, /** @type {Element} */ (document.getElementById("console")));
