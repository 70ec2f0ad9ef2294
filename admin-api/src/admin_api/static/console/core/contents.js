/** Records that are copied, and produced again. */

import { quoted } from "./api.js";
import { stringify } from "./exact_json.js";

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
  if (content.format === "json") return ["JSON", content.text];
  return content.format === "base64" ? ["BINARY", content.text] : ["STRING", content.text];
}

