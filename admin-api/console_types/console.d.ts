// Types that modules of the console share: for an editor, and for `npx -p typescript tsc -p admin-api/console_types`.
// They are here and not in comments of the modules, which a browser loads.

type Signal<T> = import("../src/admin_api/static/console/vendor/preact.js").Signal<T>;
/** Parameters of a request by name. */
type Query = Record<string, unknown>;
interface ApiRequest {
  method: string;
  url: string;
  body: string | null;
}
interface StreamEvent {
  name: string;
  data: string;
}
/** A screen's address: the path's segments, and the parameters. */
interface Route {
  path: string[];
  query: Record<string, string[]>;
}
interface Session {
  role: string;
  name: string | null;
  isReadOnly: boolean;
  canLogOut: boolean;
  hasRegistry: boolean;
  /** What ACLs let the user do to the cluster; absent if the server did not say. */
  operations?: string[];
}
/** A JSON value as it was written. A word is true, false or null. */
type JsonNode =
  | { kind: "object"; entries: [string, JsonNode][] }
  | { kind: "array"; items: JsonNode[] }
  | { kind: "string"; text: string }
  | { kind: "number" | "word"; text: string };
/** What is made of JSON that is read; `raw` are members that stay text. */
interface Made {
  raw?: string[];
  object: (entries: [string, any][]) => unknown;
  array: (items: any[]) => unknown;
  string: (text: string) => unknown;
  number: (text: string) => unknown;
  word: (text: string) => unknown;
}
/** A key, a value or a header's value. JSON is also what the API makes of records of Kafka's own topics. */
interface Content {
  format: "json" | "utf8" | "base64" | null;
  /** Bytes of all of it. */
  size: number;
  /** Whether `text` is the beginning alone. */
  isCut: boolean;
  /** In base64 where the format is base64. */
  text: string;
  /** The schema that it was decoded by. */
  schema?: { type: string; subject: string; version: number };
  /** Why it could not be decoded. */
  fault?: string;
}
interface TailState {
  rows: any[];
  received: number;
  dropped: bigint;
  rate: number;
  state: "connecting" | "live" | "broken" | "ended";
  reason: Error | null;
  /** Rows that came during the pause. */
  held: number;
}
interface Loaded<T> {
  data: T | null;
  error: Error | null;
  isLoading: boolean;
}
type Cell = (value: any, row: any) => unknown;
interface Column {
  id: string;
  label: string;
  /** Makes a cell of the value. */
  shown?: Cell;
  /** What rows are sorted by; absent: the field that the id names. */
  value?: (row: any) => any;
  isNumber?: boolean;
}
/** What a table has besides its rows. */
interface Look {
  noun: string;
  columns: Column[];
  /** Tells rows apart; absent: the first column. */
  keyOf?: (row: any) => string;
  /** Fields to search; without them there is no search. */
  search?: string[];
  empty?: unknown;
  /** Begins the names of the table's parameters, since a screen may have two tables. */
  id?: string;
  /** The order at first. */
  first?: string;
  tools?: unknown;
}
interface FieldProps {
  label: unknown;
  value: any;
  onInput: (value: string) => void;
  /** Makes it a choice. */
  options?: (string | [string, string])[];
  /** Makes it a field of so many lines. */
  lines?: number;
  hint?: unknown;
  type?: string;
  placeholder?: string;
  autocomplete?: string;
  isShort?: boolean;
}
interface FormDialogProps {
  title: string;
  /** The name of the button. */
  action: string;
  act: () => Promise<unknown>;
  /** What is said afterwards. */
  done?: string;
  children?: unknown;
  isDangerous?: boolean;
  isReady?: boolean;
  isWide?: boolean;
}
/** Fields of the form that produces records; a header is a name, a value, and whether that is base64. */
interface RecordForm {
  keyType: string;
  key: string;
  valueType: string;
  value: string;
  partition: string;
  headers: [string, string, boolean][];
  count: string;
}
