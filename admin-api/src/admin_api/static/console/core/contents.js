/** Contents of the broker's own topics, and of records that are copied. */

import { bytesOf } from "./bytes.js";
import { quoted } from "./api.js";
import { stringify } from "./exact_json.js";

/** Reads the fields of a message of Kafka's schemas. */
class Fields {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.bytes = bytes;
    this.at = 0;
  }
  /** @param {number} size */
  skip(size) {
    this.at += size;
    return this.at - size;
  }
  int8() {
    return this.view.getInt8(this.skip(1));
  }
  int16() {
    return this.view.getInt16(this.skip(2));
  }
  int32() {
    return this.view.getInt32(this.skip(4));
  }
  int64() {
    return this.view.getBigInt64(this.skip(8));
  }
  string() {
    const size = this.int16();
    return size < 0 ? null : new TextDecoder().decode(this.bytes.subarray(this.skip(size), this.at));
  }
}

const STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"];

/**
 * Return what a record of __consumer_offsets or __transaction_state says, as names and values; null for others and for
 * versions that are not known (Kafka's OffsetCommitKey, OffsetCommitValue, TransactionLogKey, TransactionLogValue).
 * @param {string} topic @param {any} record @returns {[string, string][] | null}
 */
export function decoded(topic, record) {
  if (topic !== "__consumer_offsets" && topic !== "__transaction_state") return null;
  try {
    const key = new Fields(bytesOf(record.key));
    const value = record.value.format === null ? null : new Fields(bytesOf(record.value));
    const version = key.int16();
    if (topic === "__transaction_state") return transaction(key, value);
    if (version > 1) return [["group", String(key.string())], ["content", value ? "state of the group and its members" : "deleted"]];
    /** @type {[string, unknown][]} */
    const rows = [["group", key.string()], ["topic", key.string()], ["partition", key.int32()]];
    if (value) {
      const valueVersion = value.int16();
      rows.push(["offset", value.int64()]);
      if (valueVersion >= 3) rows.push(["leader epoch", value.int32()]);
      rows.push(["metadata", value.string()], ["committed at, in ms", value.int64()]);
    } else rows.push(["offset", "deleted"]);
    return rows.map(([name, each]) => [name, String(each)]);
  } catch {
    return null;
  }
}

/** @param {Fields} key @param {Fields | null} value @returns {[string, string][]} */
function transaction(key, value) {
  /** @type {[string, unknown][]} */
  const rows = [["transactional id", key.string()]];
  if (value === null) rows.push(["state", "deleted"]);
  else {
    const version = value.int16();
    if (version > 0) return [["transactional id", String(rows[0][1])]];
    rows.push(["producer id", value.int64()], ["producer epoch", value.int16()], ["timeout in ms", value.int32()]);
    const state = value.int8();
    rows.push(["state", STATES[state] ?? state]);
  }
  return rows.map(([name, each]) => [name, String(each)]);
}

/** Return a record as one JSON object. Bytes are in base64, JSON is as it was. @param {any} record */
export function asJson(record) {
  const shown = (/** @type {import("./bytes.js").Content} */ each) =>
    each.format === "json" ? each.text : each.format === null ? "null" : JSON.stringify(each.text);
  const headers = record.headers.map((/** @type {any} */ each) => ({ name: each.name, value: each.value }));
  const rest = { partition: record.partition, offset: record.offset, timestamp: record.timestamp, key_format: record.key.format, value_format: record.value.format };
  return `${stringify(rest).slice(0, -1)},"key":${shown(record.key)},"value":${shown(record.value)},"headers":${stringify(headers)}}`;
}

/** Return kcat's command for a record. @param {string} topic @param {any} record @param {string} address host:port */
export function kcat(topic, record, address) {
  return `kcat -b ${quoted(address)} -C -t ${quoted(topic)} -p ${record.partition} -o ${record.offset} -c 1 -e -q`;
}

/**
 * Return the value in the form that a request to produce has it. @param {import("./bytes.js").Content} content
 * @returns {[string, string]} type and text
 */
export function producible(content) {
  if (content.format === null) return ["null", ""];
  if (content.format === "json") return ["JSON", content.text];
  return content.format === "base64" ? ["BINARY", content.text] : ["STRING", content.text];
}

