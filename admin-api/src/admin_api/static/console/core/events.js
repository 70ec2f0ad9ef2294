/** Server-sent events, read with fetch: a pause goes on after the last event, and no number is rounded. */

import { send, urlOf } from "./api.js";

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
export async function follow(path, query, lastId, received, signal) {
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
