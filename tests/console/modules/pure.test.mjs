// The console's modules that need no browser: `node --test tests/console/modules`.

import assert from "node:assert/strict";
import test from "node:test";

const at = new URL("../../../admin-api/src/admin_api/static/console/core/", import.meta.url);
const { parse, parseRecords, tree, indented, stringify, Raw } = await import(new URL("exact_json.js", at));
const { content, hexDump, numbersOf, preview, producible, schemaId, toBytes } = await import(new URL("bytes.js", at));
const { count, duration, size, time, timeOf } = await import(new URL("format.js", at));
const router = await import(new URL("router.js", at));
const { EventReader } = await import(new URL("tail.js", at));
const { difference } = await import(new URL("difference.js", at));
const { quoted } = await import(new URL("api.js", at));
const { Tail } = await import(new URL("tail.js", at));

test("whole numbers keep every digit, others are numbers", () => {
  assert.deepEqual({ ...parse('{"a": 9223372036854775807, "b": -9007199254740993, "c": 1.5, "d": 12}') }, {
    a: 9223372036854775807n, b: -9007199254740993n, c: 1.5, d: 12,
  });
  assert.equal(stringify({ a: 9223372036854775807n, b: undefined, c: [null, "x"] }), '{"a":9223372036854775807,"c":[null,"x"]}');
});

test("contents of records stay as they came", () => {
  const text = '{"id": 1e400, "id": 10000000000000000000000, "s": "}\\"{"}';
  const [record] = parseRecords(`{"data":[{"key":"k","value":${text},"offset":9223372036854775807}]}`).data;
  assert.equal(record.key, "k");
  assert.ok(record.value instanceof Raw);
  assert.equal(record.value.text, text);
  assert.equal(record.offset, 9223372036854775807n);
});

test("a tree keeps digits, order and names that come twice", () => {
  const found = tree('{"b":0.10,"10":[],"b":{"__proto__":null}}');
  assert.deepEqual(found.entries.map(([name]) => name), ["b", "10", "b"]);
  assert.equal(indented(found), '{\n  "b": 0.10,\n  "10": [],\n  "b": {\n    "__proto__": null\n  }\n}');
});

test("what is not JSON is refused", () => {
  for (const text of ["", "{", "[1,]", '{"a"}', "01", '"\\x"', "tru", "1 2", '"\n"', "[1 2]", "{,}"]) assert.throws(() => tree(text), SyntaxError, text);
  assert.throws(() => tree("[".repeat(5000)), RangeError);
  assert.equal(tree(`"${"x\\\\".repeat(500_000)}"`).text.length, 1_000_000);
});

test("bytes are shown as hexadecimal and as the numbers that they can be", () => {
  const bytes = new Uint8Array([0, 0, 0, 0, 0, 0, 0, 77]);
  assert.equal(hexDump(bytes), "00000000  00 00 00 00 00 00 00 4d                          .......M");
  assert.deepEqual(numbersOf(bytes), [["int64", "77"], ["double", "3.8e-322"]]);
  assert.equal(schemaId(new Uint8Array([0, 0, 0, 1, 2, 9])), 258);
  assert.equal(schemaId(toBytes("text")), null);
  assert.equal(preview(content({ value: "\u0000\u0001", value_format: "utf8", value_size: 2 }, "value")), "00 01");
});

test("a route is its hash and back", () => {
  const hash = router.link(["groups", "a/b ü", "x?y#z"], { where: ["a = 1", "b = 2"], q: "", n: null });
  assert.equal(hash, "#/groups/a%2Fb%20%C3%BC/x%3Fy%23z?where=a+%3D+1&where=b+%3D+2");
  const { path, query } = router.parse(hash);
  assert.deepEqual(path, ["groups", "a/b ü", "x?y#z"]);
  assert.deepEqual({ ...query }, { where: ["a = 1", "b = 2"] });
  assert.deepEqual(router.parse("#/%E0%A4%A").path, ["%E0%A4%A"]);
});

test("figures are for people", () => {
  assert.equal(count(9223372036854775807n), "9,223,372,036,854,775,807");
  assert.deepEqual([0, 999, 1000, 123_456, 5e9].map(size), ["0 B", "999 B", "1.0 kB", "123 kB", "5.0 GB"]);
  assert.deepEqual([0.5, 90, 3600, 7200, 864_000].map(duration), ["500 ms", "90 s", "60 min", "2 h", "10 days"]);
  assert.equal(time(0, true), "1970-01-01 00:00:00.000 UTC");
  assert.equal(timeOf("2026-01-31 12:00:00", true), Date.UTC(2026, 0, 31, 12));
  assert.equal(timeOf("1769860800000", true), 1769860800000);
  assert.equal(timeOf("yesterday", true), null);
});

test("a shell reads a word as it was", () => {
  assert.equal(quoted("http://x/y?a=1"), "'http://x/y?a=1'");
  assert.equal(quoted("it's $HOME"), "'it'\\''s $HOME'");
});

test("events come in any pieces", () => {
  const text = 'retry: 2000\n\nid: 0:4\n\ndata: {"a":1}\nid: 0:5\n\nevent: dropped\ndata: {}\n\n:\n\n';
  for (const step of [1, 7, 1000]) {
    const reader = new EventReader();
    const events = [];
    for (let from = 0; from < text.length; from += step) events.push(...reader.read(text.slice(from, from + step)));
    assert.deepEqual(events, [{ name: "message", data: '{"a":1}' }, { name: "dropped", data: "{}" }]);
    assert.equal(reader.lastId, "0:5");
  }
});

const record = (offset, partition = 0) => ({ name: "message", data: `{"partition":${partition},"offset":${offset},"key":null,"value":null,"headers":[]}` });

test("a tail shows a record once, and keeps 500", () => {
  let state;
  const tail = new Tail("", {}, (now) => (state = now));
  tail.take([record(0), record(1), record(0, 1)], "0:1,1:0");
  tail.take([record(1), record(2), { name: "dropped", data: '{"partition":1,"from_offset":1,"to_offset":9}' }, record(9, 1), record(10, 1)], "0:2,1:10");
  tail.show();
  assert.deepEqual(state.rows.map((each) => each.id), ["1:10", "0:2", "1:0", "0:1", "0:0"]);
  assert.equal(state.dropped, 9n);
  tail.pause(true);
  tail.take(Array.from({ length: 700 }, (_, number) => record(number + 3)), "");
  tail.show();
  assert.deepEqual([state.rows.length, state.held], [5, 500]);
  tail.pause(false);
  assert.deepEqual([state.rows.length, state.rows[0].id, state.rows[499].id], [500, "0:702", "0:203"]);
  tail.stop();
});

test("a tail says that the broker is away until it is back", () => {
  let state;
  const tail = new Tail("", {}, (now) => (state = now));
  tail.take([record(0), { name: "waiting", data: '{"error_code":50302,"message":"Nobody answers."}' }], "0:0");
  tail.show();
  assert.deepEqual([state.state, state.reason.message, state.reason.status], ["broken", "Nobody answers.", 503]);
  tail.take([{ name: "resumed", data: "{}" }, record(1)], "0:1");
  tail.show();
  assert.deepEqual([state.state, state.reason, state.received], ["live", null, 2]);
  assert.throws(() => tail.take([{ name: "error", data: '{"error_code":40403,"message":"gone"}' }], "0:1"), { status: 404 });
  tail.stop();
});

test("a chart leaves gaps where there are no figures", async () => {
  const { pathOf, topOf } = await import(new URL("../parts/chart.js", at));
  const points = [[0, 0], [10, 5], [20, null], [30, 10], [40, 0]].map(([at, value]) => ({ at, value }));
  assert.equal(pathOf(points, 10), "M0.0 100.0L150.0 50.0M450.0 0.0L600.0 100.0");
  assert.deepEqual([0, 1, 2, 19, 4206].map(topOf), [1, 1, 2, 20, 5000]);
});

test("a difference names the lines that one text alone has", () => {
  const shown = (before, after) => difference(before, after).map((each) => each.join("")).join("\n");
  assert.equal(shown("a\nb\nc\nd", "a\nx\nc\nd\ne"), " a\n-b\n+x\n c\n d\n+e");
  assert.equal(shown("a", "a"), " a");
  assert.equal(shown("", "a"), "-\n+a");
  const [one, two] = ["a", "b"].map((each) => Array(3000).fill(each).join("\n"));
  assert.deepEqual(difference(one, two).map(([sign]) => sign).join(""), "-".repeat(3000) + "+".repeat(3000));
});

test("a record that a schema decoded is shown as what it became", () => {
  const [record] = parseRecords('{"data":[{"key":"k","key_format":"utf8","key_schema_fault":"It names no schema.","value":null,"value_format":"avro","value_schema":{"type":"AVRO","subject":"s","version":1}}]}').data;
  const value = content(record, "value");
  assert.deepEqual([value.format, value.text, value.schema.subject], ["json", "null", "s"]);
  assert.deepEqual([content(record, "key").format, content(record, "key").fault], ["utf8", "It names no schema."]);
  assert.deepEqual(producible({ ...value, format: "utf8", text: "a" }), ["SCHEMA", '"a"']);
});
