/** Contents of records: bytes, text and numbers; records that are copied, and produced again. */

import { quoted } from "./api.js";
import { Raw, stringify } from "./exact_json.js";

/** @param {string} text base64 @returns {Uint8Array} */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}

/** @param {Uint8Array} bytes */
export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

const encoder = new TextEncoder();

/** @param {string} text */
export const toBytes = (text) => encoder.encode(text);

/** Return a content of the API's answer, `name` of `record`. @param {any} record @param {string} name @returns {Content} */
export function content(record, name) {
  const value = record[name];
  const [schema, format] = [record[`${name}_schema`], record[`${name}_format`]];
  const isDecoded = schema || format === "decoded";
  return {
    schema,
    fault: record[`${name}_schema_fault`],
    format: !isDecoded ? format : typeof value === "string" ? "utf8" : "json",
    size: record[`${name}_size`] ?? 0,
    isCut: record[`${name}_truncated`] === true,
    text: value instanceof Raw ? value.text : (value ?? (isDecoded ? "null" : "")),
  };
}

/** Return the bytes of a content: of JSON those of the text that came. @param {Content} content */
export function bytesOf(content) {
  return content.format === "base64" ? fromBase64(content.text) : toBytes(content.text);
}

/** @param {Iterable<number>} bytes */
const hexOf = (bytes) => [...bytes].map((each) => each.toString(16).padStart(2, "0")).join(" ");

/** Return lines of 16 bytes: offset, hexadecimal, printable ASCII. @param {Uint8Array} bytes */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(row).padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/**
 * Return the numbers that bytes can mean: 4 or 8 bytes as whole numbers and floats, big-endian as Kafka's serializers
 * write them.
 * @param {Uint8Array} bytes @returns {[string, string][]} name and digits
 */
export function numbersOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length === 4) {
    return [["int32", String(view.getInt32(0))], ["float", String(view.getFloat32(0))]];
  }
  if (bytes.length === 8) {
    return [["int64", String(view.getBigInt64(0))], ["double", String(view.getFloat64(0))]];
  }
  return [];
}

/** Return the schema id of Confluent's wire format: a zero byte, then four bytes; null for others. @param {Uint8Array} bytes */
export function schemaId(bytes) {
  if (bytes.length < 5 || bytes[0] !== 0) return null;
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(1);
}

/** Whether a text is rather bytes: it has control characters that no line of text has. @param {Content} content */
export function isBinary(content) {
  return content.format === "base64" || (content.format === "utf8" && /[\0-\x08\x0e-\x1f\x7f]/.test(content.text));
}

/** Return a short line of a content, at most `most` characters. @param {Content} content */
export function preview(content, most = 200) {
  if (content.format === null) return "null";
  if (isBinary(content)) {
    const bytes = content.format === "base64" ? fromBase64(content.text.slice(0, 64)) : toBytes(content.text.slice(0, 48));
    return hexOf(bytes) + (content.size > bytes.length ? " …" : "");
  }
  return content.text.length > most ? `${content.text.slice(0, most)}…` : content.text;
}

/** Return a record as one JSON object. Bytes are in base64, JSON is as it was. @param {any} record */
export function asJson(record) {
  const shown = (/** @type {Content} */ each) =>
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
 * Return the value in the form that a request to produce has it. @param {Content} content
 * @returns {[string, string]} type and text
 */
export function producible(content) {
  if (content.format === null) return ["null", ""];
  if (content.schema) return ["SCHEMA", content.format === "json" ? content.text : JSON.stringify(content.text)];
  if (content.format === "json") return ["JSON", content.text];
  return content.format === "base64" ? ["BINARY", content.text] : ["STRING", content.text];
}
