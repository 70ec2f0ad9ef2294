/**
 * JSON that keeps every digit: whole numbers beyond 2^53 become BigInt, and contents of records stay text.
 *
 * A value of a record is shown as a tree of nodes, which keep the text of numbers, repeated names and their order.
 */

/** Text of a JSON value that was not read. */
export class Raw {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
  toJSON() {
    return this.text;
  }
}

/** Levels of brackets; JSON that is deeper is shown as text. */
const DEPTH_MAX = 200;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const WORD = /true|false|null/y;
const LONG_NUMBER = /\d{16}/;

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** @param {RegExp} pattern @returns {string | null} */
  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.at = pattern.lastIndex;
    return found[0];
  }

  fail() {
    return new SyntaxError(`not JSON at character ${this.at}`);
  }

  /** @returns {string} */
  string() {
    if (this.text[this.at] !== '"') throw this.fail();
    let end = this.at;
    let slashes;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) throw this.fail();
      slashes = end - 1;
      while (this.text[slashes] === "\\") slashes -= 1;
    } while ((end - slashes) % 2 === 0);
    const found = this.text.slice(this.at, end + 1);
    this.at = end + 1;
    return /[\\\u0000-\u001f]/.test(found) ? JSON.parse(found) : found.slice(1, -1);
  }

  /**
   * Call `member` at each member of an object or an array; it reads the value. The bracket is the next character.
   * @param {string} close @param {() => void} member
   */
  members(close, member) {
    this.at += 1;
    this.take(SPACE);
    if (this.text[this.at] === close) {
      this.at += 1;
      return;
    }
    for (;;) {
      member();
      this.take(SPACE);
      const next = this.text[this.at];
      this.at += 1;
      if (next === close) return;
      if (next !== ",") throw this.fail();
      this.take(SPACE);
    }
  }

  /** @returns {string} the name of a member; the value is next */
  name() {
    const name = this.string();
    this.take(SPACE);
    if (this.text[this.at] !== ":") throw this.fail();
    this.at += 1;
    return name;
  }

  /** Read a value, and return what `to` makes of it. @param {Made} to @returns {any} */
  read(to, depth = 0) {
    if (depth > DEPTH_MAX) throw new RangeError("JSON of too many levels");
    this.take(SPACE);
    const first = this.text[this.at];
    /** @type {any[]} */
    const members = [];
    if (first === "{") {
      this.members("}", () => {
        const name = this.name();
        members.push([name, to.raw?.includes(name) ? this.raw() : this.read(to, depth + 1)]);
      });
      return to.object(members);
    }
    if (first === "[") {
      this.members("]", () => members.push(this.read(to, depth + 1)));
      return to.array(members);
    }
    if (first === '"') return to.string(this.string());
    const number = this.take(NUMBER);
    if (number) return to.number(number);
    const word = this.take(WORD);
    if (word) return to.word(word);
    throw this.fail();
  }

  /** @returns {Raw | string | null} a string is read, null too; all else stays text */
  raw() {
    this.take(SPACE);
    if (this.text[this.at] === '"') return this.string();
    const start = this.at;
    this.skip();
    const text = this.text.slice(start, this.at);
    return text === "null" ? null : new Raw(text);
  }

  /** Pass a value without reading it: brackets that are not in strings are counted. */
  skip() {
    if (!/[{[]/.test(this.text[this.at] ?? "")) {
      if (this.take(NUMBER) === null && this.take(WORD) === null) throw this.fail();
      return;
    }
    const next = /["{}[\]]/g;
    let depth = 0;
    do {
      next.lastIndex = this.at;
      const found = next.exec(this.text);
      if (found === null) throw this.fail();
      this.at = found.index;
      if (found[0] === '"') this.string();
      else {
        depth += found[0] === "{" || found[0] === "[" ? 1 : -1;
        this.at += 1;
      }
    } while (depth > 0);
  }
}

/** @param {string} text @param {Made} to */
function whole(text, to) {
  const reader = new Reader(text);
  const found = reader.read(to);
  reader.take(SPACE);
  if (reader.at !== text.length) throw reader.fail();
  return found;
}

/** @type {Made} */
const VALUES = {
  object: (entries) => Object.assign(Object.create(null), Object.fromEntries(entries)),
  array: (items) => items,
  string: (text) => text,
  number: (text) => (Number.isSafeInteger(Number(text)) || /[.eE]/.test(text) ? Number(text) : BigInt(text)),
  word: (text) => (text === "null" ? null : text === "true"),
};
const RECORDS = { ...VALUES, raw: ["key", "value"] };
/** @type {Made} */
const NODES = {
  object: (entries) => ({ kind: "object", entries }),
  array: (items) => ({ kind: "array", items }),
  string: (text) => ({ kind: "string", text }),
  number: (text) => ({ kind: "number", text }),
  word: (text) => ({ kind: "word", text }),
};

/** Return an answer of the API. Whole numbers beyond 2^53 are BigInt. @param {string} text */
export function parse(text) {
  return LONG_NUMBER.test(text) ? whole(text, VALUES) : JSON.parse(text);
}

/** Return records, or a page of them. JSON of keys and values stays Raw. @param {string} text */
export function parseRecords(text) {
  return whole(text, RECORDS);
}

/** Return the tree of a JSON text. Throws SyntaxError, or RangeError above 200 levels. @param {string} text @returns {JsonNode} */
export function tree(text) {
  return whole(text, NODES);
}

/** Return the JSON text of a node with two spaces for each level. @param {JsonNode} node @returns {string} */
export function indented(node, margin = "") {
  const inner = `${margin}  `;
  if (node.kind === "object") {
    const lines = node.entries.map(([name, each]) => `${inner}${JSON.stringify(name)}: ${indented(each, inner)}`);
    return lines.length ? `{\n${lines.join(",\n")}\n${margin}}` : "{}";
  }
  if (node.kind === "array") {
    const lines = node.items.map((each) => inner + indented(each, inner));
    return lines.length ? `[\n${lines.join(",\n")}\n${margin}]` : "[]";
  }
  return node.kind === "string" ? JSON.stringify(node.text) : node.text;
}

/** Return JSON text of a value that may have BigInt in it. @param {unknown} value @returns {string} */
export function stringify(value) {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const members = Object.entries(value).filter(([, each]) => each !== undefined);
    return `{${members.map(([name, each]) => `${JSON.stringify(name)}:${stringify(each)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
