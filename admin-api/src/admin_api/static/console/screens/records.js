/**
 * Records of a topic: pages from a place on, searched; or as they come. What is searched is in the URL. One record: its
 * key, value and headers in several forms, and what to do with it.
 */

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { at, curl, getText, list, urlOf } from "../core/api.js";
import { asJson, bytesOf, content as contentOf, hexDump, isBinary, kcat, numbersOf, preview, schemaId } from "../core/bytes.js";
import { indented, parseRecords, tree } from "../core/exact_json.js";
import { count, plural, rate, size, time, timeOf } from "../core/format.js";
import { filters, isUtc, moment } from "../core/preferences.js";
import { change, go, link, parameter, route } from "../core/router.js";
import { session } from "../core/session.js";
import { recordOf, ROWS_MAX, Tail } from "../core/tail.js";
import { Check, Copy, Field, say, useForm } from "../parts/dialog.js";
import { badge, button, Failure, kept, useAction } from "../parts/screen.js";
import { Tree } from "../parts/tree.js";
import { choices, draft } from "./produce.js";

/** Characters of a text and bytes of a dump that are shown at first. */
const TEXT_MAX = 20_000;
const DUMP_MAX = 4096;
/** What the API says of bytes that are not to be decoded. */
const NO_SCHEMA = "It names no schema.";
const HEADERS_MAX = 50;

/** Parameters of the API that decode keys and values by their schemas. */
const formats = () => (session.value?.hasRegistry && !parameter("raw") ? { key_format: "schema", value_format: "schema" } : {});

/** The address of the first broker, for commands. @type {Promise<string> | null} */
let broker = null;
/** @returns {Promise<string>} */
function address() {
  broker ??= list("/v3/clusters/-/brokers").then(([first]) => (first ? `${first.host}:${first.port}` : "localhost:9092"), () => "localhost:9092");
  return broker;
}

/** @param {{label: string, content: Content}} props */
function ContentView({ label, content }) {
  const node = useMemo(() => {
    if (content.format !== "json" && content.format !== "utf8") return null;
    try {
      const found = tree(content.text);
      return content.format === "json" || found.kind === "object" || found.kind === "array" ? found : null;
    } catch {
      return null;
    }
  }, [content]);
  const binary = isBinary(content);
  const forms = content.schema ? ["Tree", "Text"].slice(node ? 0 : 1) : content.format === "base64" ? ["Hex", "Base64"] : binary ? ["Hex", "Text"] : node ? ["Tree", "Text", "Hex"] : ["Text", "Hex"];
  const [form, setForm] = useState(forms[0]);
  const [isWhole, setWhole] = useState(false);
  if (content.format === null) {
    return html`<h3>${label} ${badge(label === "Value" ? "null: a tombstone" : "null")}</h3>`;
  }
  const bytes = form === "Hex" || binary ? bytesOf(content) : null;
  const schema = binary && bytes ? schemaId(bytes) : null;
  const text = form === "Hex" ? hexDump(/** @type {Uint8Array} */ (bytes).subarray(0, isWhole ? undefined : DUMP_MAX)) : form === "Text" && node && content.format === "json" ? indented(node) : content.text;
  const rest = form === "Hex" ? !isWhole && /** @type {Uint8Array} */ (bytes).length > DUMP_MAX : !isWhole && text.length > TEXT_MAX;
  return html`<h3>${label} ${badge(size(content.size) + (content.isCut ? ", cut off" : ""))}
      ${schema !== null && badge(`schema id ${schema}`)}
      ${content.schema && html`<span class="badge">${content.schema.type} <a href=${link(["schemas", content.schema.subject], { version: content.schema.version })}>${content.schema.subject}</a>, version ${content.schema.version}</span>`}
      ${bytes && binary && numbersOf(bytes).map(([name, digits]) => badge(`${name} ${digits}`))}
      <span class="choice" role="group" aria-label=${`Form of the ${label.toLowerCase()}`}>${forms.map(
        (each) => html`<button type="button" key=${each} aria-pressed=${each === form} onClick=${() => setForm(each)}>${each}</button>`,
      )}</span>
      <${Copy} label=${`Copy ${label.toLowerCase()}`} text=${() => (form === "Tree" && node ? indented(node) : text)} /></h3>
    ${form === "Tree" && node ? html`<div class="box"><${Tree} node=${node} /></div>` : html`<pre class=${form === "Hex" ? "hex" : ""} tabindex="0" aria-label=${`${label} as ${form.toLowerCase()}`}>${rest && form !== "Hex" ? text.slice(0, TEXT_MAX) : text}</pre>`}
    ${content.fault && content.fault !== NO_SCHEMA && html`<p class="small">Not decoded. ${content.fault}</p>`}
    ${rest && html`<p>${button(`Show all of ${size(content.size)}`, () => setWhole(true))}</p>`}`;
}

/** @param {{headers: any[], total: number}} props */
function Headers({ headers, total }) {
  const [most, setMost] = useState(HEADERS_MAX);
  if (!total) return null;
  return html`<h3>Headers ${badge(count(total))}</h3>
    <dl class="box headers">${headers.slice(0, most).map((each, at) => html`<div key=${at}>
      <dt>${each.name}${each.name_format === "base64" && html` ${badge("base64")}`}</dt>
      <dd>${each.value === null ? html`<i class="quiet">null</i>` : preview(contentOf(each, "value"), Infinity)}${each.value_format === "base64" && html` ${badge("hex")}`}</dd></div>`)}</dl>
    ${headers.length > most && html`<p>${button(`Show all ${headers.length} headers`, () => setMost(Infinity))}</p>`}`;
}

/** @param {{topic: string, record: any, canProduce: boolean}} props */
export function RecordView({ topic, record, canProduce }) {
  const isCut = record.key.isCut || record.value.isCut || record.headers.length < record.headers_count || record.headers.some((/** @type {any} */ each) => each.value_truncated);
  const [whole, setWhole] = useState(isCut ? null : record);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [bootstrap, setBootstrap] = useState("localhost:9092");
  const path = at`/api/v1/topics/${topic}/records/${record.partition}/${record.offset}`;
  useEffect(() => {
    address().then(setBootstrap);
    if (isCut) getText(path, formats()).then((text) => setWhole(recordOf(parseRecords(text))), setError);
  }, []);
  const shown = whole ?? record;
  return html`<div class="record">
    <p class="actions">
      <${Copy} label="Copy as JSON" text=${() => asJson(shown)} />
      <${Copy} label="Copy as curl" text=${() => curl({ method: "GET", url: urlOf(path, formats()), body: null })} />
      <${Copy} label="Copy as kcat" text=${() => kcat(topic, record, bootstrap)} />
      ${canProduce && button("Produce again", () => {
        draft.value = shown;
        go(["topics", topic, "produce"]);
      })}
      <span class="small">${plural(shown.headers_count, "header")}</span>
    </p>
    ${isCut && !whole && !error && html`<p class="loading">Loading the whole record …</p>`}
    <${Failure} error=${error} />
    <${ContentView} key=${`key ${whole !== null}`} label="Key" content=${shown.key} />
    <${ContentView} key=${`value ${whole !== null}`} label="Value" content=${shown.value} />
    <${Headers} headers=${shown.headers} total=${shown.headers_count} />
  </div>`;
}

const PAGE = 50;
const CONDITIONS_MAX = 4;

/** @type {[string, string][]} */
const MODES = [
  ["newest", "Newest first"],
  ["live", "Live"],
  ["oldest", "Oldest first"],
  ["from_offset", "From an offset"],
  ["to_offset", "Before an offset"],
  ["from_timestamp", "From a time"],
  ["to_timestamp", "Before a time"],
];
// mutant: console-filters-sent
const FILTERS = ["partition", "key", "q", "where", "isolation"];

/** Return the parameters of the API that the route has. @param {Record<string, string[]>} query */
const filterOf = (query) => ({ ...formats(), ...Object.fromEntries(FILTERS.filter((each) => query[each]?.length).map((each) => [each, query[each]])) });

const Line = kept(({ topic, canProduce, record, isOpen, setOpen }) => {
  const look = (/** @type {any} */ part) => `mono ${part.format === null ? "null" : ""}`;
  // mutant: console-values-are-text
  const key = html`<span class=${look(record.key)}>${preview(record.key, 100)}</span>`;
  return html`<li>
    <button type="button" class="line" data-row aria-expanded=${isOpen} onClick=${() => setOpen(isOpen ? "" : record.id)}>
      <span class="mono">${moment(record.timestamp)}</span>
      <span class="mono">${record.partition} : ${String(record.offset)}</span>
      ${key}
      <span class=${`${look(record.value)} value`}>${record.value.format === null ? "null (tombstone)" : preview(record.value, 300)}</span>
    </button>
    ${isOpen && html`<${RecordView} topic=${topic} record=${record} canProduce=${canProduce} />`}
  </li>`;
});

/** @param {{topic: string, canProduce: boolean, rows: any[], empty: unknown, isFirstOpen?: boolean}} props */
function Rows({ topic, canProduce, rows, empty, isFirstOpen = false }) {
  const [open, setOpen] = useState("");
  useEffect(() => {
    if (isFirstOpen && rows.length) setOpen(rows[0].id);
  }, [isFirstOpen, rows.length > 0]);
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<ul class="records" aria-label="Records">
    <li class="head" aria-hidden="true"><span>Time</span><span>Partition : offset</span><span>Key</span><span>Value</span></li>
    ${rows.map((each) => html`<${Line} key=${each.id} topic=${topic} canProduce=${canProduce} record=${each} isOpen=${open === each.id} setOpen=${setOpen} />`)}
  </ul>`;
}

/** @typedef {{topic: string, query: Record<string, string[]>, canProduce: boolean}} Shown */

/** @param {Shown} props */
function Pages({ topic, query, canProduce }) {
  const [state, setState] = useState(/** @type {any} */ ({ rows: [], scanned: 0, bytes: 0, cursor: "", faults: [], isReading: true, error: null }));
  const stop = useRef(new AbortController());
  const now = useRef(state);
  const path = at`/api/v1/topics/${topic}/records`;
  /** @param {any} changes */
  const set = (changes) => {
    now.current = { ...now.current, ...changes };
    setState(now.current);
  };
  /** Read until as many more rows match, the records end, or `stop`. */
  async function read() {
    stop.current = new AbortController();
    const { signal } = stop.current;
    const wanted = now.current.rows.length + PAGE;
    set({ isReading: true, error: null });
    try {
      while (!signal.aborted && now.current.cursor !== null && now.current.rows.length < wanted) {
        const { cursor, rows, scanned, bytes, faults } = now.current;
        const place = cursor ? { cursor } : { mode: query.mode, offset: query.offset, timestamp: query.timestamp };
        const page = parseRecords(await getText(path, { ...filterOf(query), ...place, limit: wanted - rows.length }, signal));
        set({
          rows: [...rows, ...page.data.map(recordOf)],
          scanned: scanned + page.scanned,
          bytes: bytes + Number(page.bytes ?? 0),
          faults: [...faults, ...page.faults],
          cursor: page.cursor,
        });
      }
    } catch (error) {
      if (!signal.aborted) set({ error });
    }
    if (stop.current.signal === signal) set({ isReading: false });
  }
  useEffect(() => {
    read();
    return () => stop.current.abort();
  }, []);
  const { rows, scanned, bytes, cursor, faults, isReading, error } = state;
  return html`
    <div class="progress" role="status">
      <span>${plural(rows.length, "record")} shown, ${count(scanned)} read (${size(bytes)})${cursor === null ? ": these are all" : ""}</span>
      ${isReading
        ? button("Stop", () => stop.current.abort())
        : cursor !== null && button(rows.length ? `Next ${PAGE}` : "Go on", read)}
    </div>
    <${Failure} error=${error} retry=${read} />
    ${faults.length > 0 && html`<p class="notice">${plural(faults.length, "place")} could not be read: ${faults[0].partition}:${String(faults[0].offset)} ${faults[0].message}</p>`}
    <${Rows} topic=${topic} canProduce=${canProduce} rows=${rows} isFirstOpen=${parameter("open") === "1"}
      empty=${isReading ? "Reading …" : cursor === null ? "No record is there." : "No record so far."} />
    ${!isReading && cursor !== null && rows.length > 0 && html`<p>${button(`Next ${PAGE}`, read)}</p>`}`;
}

/** @param {Shown} props */
function Live({ topic, query, canProduce }) {
  const [state, setState] = useState(/** @type {TailState | null} */ (null));
  const [isPaused, setPaused] = useState(false);
  const tail = useRef(/** @type {Tail | null} */ (null));
  useEffect(() => {
    const own = new Tail(topic, filterOf(query), setState);
    tail.current = own;
    own.run();
    return () => own.stop();
  }, []);
  if (state === null) return html`<p class="loading" role="status">Connecting …</p>`;
  const words = { connecting: "connecting", live: isPaused ? "paused" : "live", broken: "interrupted, trying again", ended: "ended" };
  return html`
    <div class="progress">
      <span role="status"><span class=${`live ${isPaused || state.state !== "live" ? "paused" : ""}`} aria-hidden="true"></span> ${words[state.state]}</span>
      ${button(isPaused ? "Resume" : "Pause", () => {
        setPaused(!isPaused);
        tail.current?.pause(!isPaused);
      })}
      <span>${count(state.received)} received, ${rate(state.rate)} / s${state.received > ROWS_MAX ? `; the last ${ROWS_MAX} are kept` : ""}</span>
      ${state.held > 0 && isPaused && html`<span>${plural(state.held, "record")} waiting</span>`}
      ${state.dropped > 0n && badge(`${count(state.dropped)} left out: more than 200 in a second`, "warn")}
    </div>
    ${state.state !== "live" && html`<${Failure} error=${state.reason} />`}
    <${Rows} topic=${topic} canProduce=${canProduce} rows=${state.rows} empty="Nothing came yet. New records are shown as they are written." />`;
}

/** @param {{topic: string, partitions: number}} props */
function Form({ topic, partitions }) {
  const { query } = route.value;
  const [form, set, bind] = useForm(() => ({
    mode: parameter("mode") || "newest",
    place: parameter("mode").endsWith("_timestamp") ? moment(Number(parameter("timestamp"))).replace(" UTC", "") : parameter("offset"),
    partition: parameter("partition"),
    key: parameter("key"),
    q: parameter("q"),
    where: query.where ?? [],
    committed: parameter("isolation") !== "",
    raw: parameter("raw") !== "",
  }));
  const [name, setName] = useState("");
  const run = Number(parameter("run")) + 1;
  const isTime = (mode = form.mode) => mode.endsWith("_timestamp");
  const isOffset = (mode = form.mode) => mode.endsWith("_offset");
  function apply(mode = form.mode) {
    const timestamp = isTime(mode) ? timeOf(form.place, isUtc.peek()) : null;
    if (isTime(mode) && timestamp === null) throw new Error("Write the time as 2026-01-31 12:00:00, or as milliseconds since 1970.");
    if (isOffset(mode) && !/^\d+$/.test(form.place)) throw new Error("Write the offset as a whole number.");
    change({
      mode: mode !== "newest" && mode,
      offset: isOffset(mode) && form.place,
      timestamp,
      partition: form.partition,
      key: form.key,
      q: form.q,
      where: form.where.filter((each) => each.trim()),
      isolation: form.committed && "read_committed",
      raw: form.raw && 1,
      open: null,
      run,
    });
  }
  const [problem, , show] = useAction(async () => apply());
  const [fault, , keep] = useAction(async () => {
    apply();
    const { run: _, open: __, ...kept } = route.peek().query;
    filters.value = { ...filters.value, [name]: kept };
    say(`The filter ${name} is kept in this browser.`);
  });
  return html`<form onSubmit=${show} class="card" aria-label="Which records">
    <div class="row">
      <${Field} label="Show" value=${form.mode} options=${MODES} onInput=${(/** @type {string} */ mode) => set({ mode, place: "" })} isShort />
      ${isOffset() && html`<${Field} label="Offset" isShort ...${bind("place")} />`}
      ${isTime() && html`<${Field} label=${isUtc.value ? "Time (UTC)" : "Time (local)"} placeholder="2026-01-31 12:00:00" ...${bind("place")} />`}
      <${Field} label="Partition" isShort ...${bind("partition")}
        options=${choices("all", partitions)} />
      <${Field} label="Key has" ...${bind("key")} />
      <${Field} label="Key, value or header has" type="search" ...${bind("q")} />
    </div>
    ${form.where.map((each, at) => html`<div class="row" key=${at}><${Field} label=${`Condition ${at + 1}`} value=${each} placeholder="value.total >= 100"
      onInput=${(/** @type {string} */ text) => set({ where: form.where.with(at, text) })} />
      ${button("Remove", () => set({ where: form.where.toSpliced(at, 1) }))}</div>`)}
    ${form.where.length > 0 && html`<p class="small">A path, an operator and a literal: <code>value.order.total >= 100</code>, <code>headers.source ~ web</code>, <code>key = null</code>. Operators: = != < <= > >= ~ !~</p>`}
    <${Failure} error=${problem ?? fault} />
    <p class="buttons">
      <button type="submit" class="main">Show</button>
      ${form.mode !== "live" && button("Follow live", () => apply("live"))}
      ${form.where.length < CONDITIONS_MAX && button("Add a condition", () => set({ where: [...form.where, ""] }))}
      <${Check} label="committed only" isOn=${form.committed} onInput=${(/** @type {boolean} */ committed) => set({ committed })} />
      ${session.value?.hasRegistry && html`<${Check} label="decode by schema" isOn=${!form.raw} onInput=${(/** @type {boolean} */ isOn) => set({ raw: !isOn })} />`}
      <a class="button" href=${urlOf(at`/api/v1/topics/${topic}/records:download`, filterOf(query))} download>Download NDJSON</a>
    </p>
    <details class="small"><summary>Filters by name</summary>
      <div class="row"><${Field} label="Name" value=${name} onInput=${setName} isShort /><button type="button" disabled=${!name} onClick=${keep}>Keep this filter</button></div>
      <ul class="plainlist">${Object.entries(filters.value).map(([each, kept]) => html`<li key=${each}>
        ${button(each, () => go(route.peek().path, { ...kept, run }), "plain")}
        <button type="button" class="plain" aria-label=${`Forget ${each}`} onClick=${() => {
          const { [each]: ____, ...others } = filters.value;
          filters.value = others;
        }}>Forget</button></li>`)}</ul>
    </details>
  </form>`;
}

/** @param {{topic: string, partitions: number, canProduce: boolean}} props */
export function Records({ topic, partitions, canProduce }) {
  const { query } = route.value;
  const shown = JSON.stringify([topic, query]);
  return html`<${Form} key=${shown} topic=${topic} partitions=${partitions} />
    <${query.mode?.[0] === "live" ? Live : Pages} key=${shown} topic=${topic} query=${query} canProduce=${canProduce} />`;
}
