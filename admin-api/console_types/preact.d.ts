// Types of static/console/vendor/preact.js, as far as the console uses it: for an editor, and for
// `npx -p typescript tsc -p admin-api/console_types`.

export interface Signal<T> {
  value: T;
  peek(): T;
}
export interface Ref<T> {
  current: T;
}
export class Component {
  props: any;
}
export function signal<T>(value: T): Signal<T>;
export function effect(run: () => void): () => void;
export function html(parts: TemplateStringsArray, ...values: unknown[]): any;
export function render(node: unknown, place: Element): void;
export function useEffect(run: () => void | (() => void), inputs?: unknown[]): void;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useRef<T>(value: T): Ref<T>;
export function useState<T>(value: T | (() => T)): [T, (value: T | ((old: T) => T)) => void];
