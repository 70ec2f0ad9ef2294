/**
 * A tail: the newest records of a topic, each once, over breaks of the connection. They come as server-sent events, read
 * with fetch: a pause goes on after the last event, and no number is rounded.
 */

import { ApiError, at, list, send, urlOf } from "./api.js";
import { content } from "./bytes.js";
import { parse, parseRecords } from "./exact_json.js";

/** Rows that are kept. */
export const ROWS_MAX = 500;
/** Time between two drawings, and over which the rate is the mean, in ms. */
const DRAW_MS = 250;
const RATE_MS = 5000;
/** Time between two tries, in ms. */
const RETRY_MS = 1000;
/** HTTP status of a topic or a request that will not do later either. */
const isFinal = (/** @type {unknown} */ error) => error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429 && error.status !== 408;

/** Partitions that an id can name. */
const PARTITIONS_MAX = 256;

/**
 * Return the id of an event that a tail would have sent last, so that it misses nothing before its first event.
 * @param {string} topic @param {boolean} isCommitted
 */
export async function firstId(topic, isCommitted) {
  const rows = await list(at`/api/v1/topics/${topic}/partitions`);
  if (rows.length > PARTITIONS_MAX) return "";
  return rows.map((each) => `${each.partition_id}:${BigInt(isCommitted ? each.last_stable_offset : each.log_end_offset) - 1n}`).join(",");
}

/** Return the error that an event is about. @param {string} data */
function errorOf(data) {
  const { error_code: code, message } = parse(data);
  return new ApiError(Math.floor(code / 100), code, message, "");
}

/** Return a record of the API with its contents. @param {any} found */
export function recordOf(found) {
  return { ...found, id: `${found.partition}:${found.offset}`, key: content(found, "key"), value: content(found, "value") };
}

/** Reads events from text that comes in pieces (HTML Standard, 9.2.6; without CR as a line's end). */
export class EventReader {
  constructor() {
    this.rest = "";
    /** Id of the last event. */
    this.lastId = "";
  }

  /** Return the events that a piece completes. @param {string} piece @returns {StreamEvent[]} */
  read(piece) {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop() ?? "";
    /** @type {StreamEvent[]} */
    const events = [];
    for (const block of blocks) {
      let name = "message";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("data: ")) data.push(line.slice(6));
        else if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("id: ")) this.lastId = line.slice(4);
      }
      if (data.length) events.push({ name, data: data.join("\n") });
    }
    return events;
  }
}

/**
 * Follow a stream until it ends; return the id to go on after. Raises ApiError, or AbortError on a signal.
 * @param {string} path @param {Query} query @param {string} lastId
 * @param {(events: StreamEvent[], lastId: string) => void} received @param {AbortSignal} signal
 */
async function follow(path, query, lastId, received, signal) {
  const headers = { accept: "text/event-stream", ...(lastId ? { "last-event-id": lastId } : {}) };
  const answer = await send("GET", urlOf(path, query), { signal, headers });
  if (answer.body === null) return;
  const reader = new EventReader();
  reader.lastId = lastId;
  received([], lastId);
  const stream = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await stream.read();
    if (done) return;
    received(reader.read(value), reader.lastId);
  }
}

export class Tail {
  /** @param {string} topic @param {Query} query @param {(state: TailState) => void} draw */
  constructor(topic, query, draw) {
    this.topic = topic;
    this.query = query;
    this.draw = draw;
    /** Partition -> the last offset that was received. @type {Map<number, bigint>} */
    this.last = new Map();
    this.lastId = "";
    /** @type {any[]} */
    this.held = [];
    /** @type {number[]} */
    this.times = [];
    this.isPaused = false;
    this.timer = 0;
    this.end = new AbortController();
    /** @type {TailState} */
    this.state = { rows: [], received: 0, dropped: 0n, rate: 0, state: "connecting", reason: null, held: 0 };
  }

  /** Receive until `stop` is called, or until the server refuses. */
  async run() {
    const clock = setInterval(() => this.show(), 1000);
    while (!this.end.signal.aborted) {
      try {
        if (!this.lastId) this.lastId = await firstId(this.topic, String(this.query.isolation) === "read_committed");
        await follow(at`/api/v1/topics/${this.topic}/tail`, this.query, this.lastId, (events, lastId) => this.take(events, lastId), this.end.signal);
      } catch (error) {
        if (this.end.signal.aborted) break;
        this.state.reason = /** @type {Error} */ (error);
        if (isFinal(error)) {
          this.state.state = "ended";
          this.show();
          break;
        }
      }
      if (this.end.signal.aborted) break;
      this.state.state = "broken";
      this.show();
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    clearInterval(clock);
  }

  stop() {
    this.end.abort();
    clearTimeout(this.timer);
  }

  /** @param {boolean} isPaused */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.show();
  }

  /** @param {StreamEvent[]} events @param {string} lastId */
  take(events, lastId) {
    /** @type {ApiError | null} */
    let reason = null;
    for (const each of events) {
      reason = null;
      if (each.name === "message") this.add(recordOf(parseRecords(each.data)));
      else if (each.name === "dropped") this.drop(parse(each.data));
      else if (each.name === "error") throw errorOf(each.data);
      else if (each.name === "waiting") reason = errorOf(each.data); // until `resumed`, or the stream ends
    }
    this.lastId = lastId;
    this.state.state = reason === null ? "live" : "broken";
    this.state.reason = reason;
    if (!this.timer) this.timer = setTimeout(() => this.show(), DRAW_MS);
  }

  /** @param {any} record */
  add(record) {
    const offset = BigInt(record.offset);
    // A stream that broke before an id sends some records again.
    if (offset <= (this.last.get(record.partition) ?? -1n)) return;
    this.last.set(record.partition, offset);
    this.state.received += 1;
    this.times.push(Date.now());
    this.held.push(record);
    if (this.held.length > ROWS_MAX) this.held.shift();
  }

  /** @param {any} dropped */
  drop(dropped) {
    const first = BigInt(dropped.from_offset);
    const last = BigInt(dropped.to_offset);
    this.state.dropped += last - first + 1n;
    this.last.set(dropped.partition, last);
  }

  show() {
    clearTimeout(this.timer);
    this.timer = 0;
    const since = Date.now() - RATE_MS;
    while (this.times.length && this.times[0] < since) this.times.shift();
    this.state.rate = (this.times.length * 1000) / RATE_MS;
    if (!this.isPaused && this.held.length) {
      this.state.rows = [...this.held.reverse(), ...this.state.rows].slice(0, ROWS_MAX);
      this.held = [];
    }
    this.state.held = this.held.length;
    this.draw({ ...this.state });
  }
}
