/** Who uses this page, and what the server lets them do. */

import { signal } from "../vendor/preact.js";
import { alter, get, needsLogin } from "./api.js";

const PATH = "/api/v1/session";
const ROLES = ["public", "read", "write", "admin"];

/** @type {Signal<Session | null>} */
export const session = signal(null);
/** Whether users with a password log in, or holders of tokens alone. */
export const hasUsers = signal(false);

/** Ask who uses this page. With a login, log in first. Raises ApiError. @param {{token: string} | {user: string, password: string}} [login] */
export async function loadSession(login) {
  const found = login === undefined ? await get(PATH) : await alter("POST", PATH, login);
  hasUsers.value = found.login === "users";
  needsLogin.value = found.login !== "none" && !found.is_logged_in;
  session.value = null;
  if (needsLogin.value) return;
  const me = await get("/api/v1/me").catch(() => ({})); // without it, the server alone refuses
  session.value = {
    role: found.role,
    name: found.name ?? null,
    isReadOnly: found.read_only === true,
    canLogOut: found.login !== "none",
    operations: me.cluster_operations,
    hasRegistry: me.has_schema_registry === true,
  };
}

export async function logOut() {
  await alter("DELETE", PATH);
  session.value = null;
  needsLogin.value = true;
}

/** Whether ACLs let the user do this. @param {string} operation @param {string[]} [operations] those allowed; else on the cluster */
export const has = (operation, operations = session.value?.operations) => !operations || operations.includes(operation);

/**
 * Whether changes are let through: write adds topics and records and moves offsets, admin does all.
 * @param {"write" | "admin"} role @param {string} [operation] that ACLs must allow, too @param {string[]} [operations]
 */
export function may(role, operation, operations) {
  const own = session.value;
  return own !== null && !own.isReadOnly && ROLES.indexOf(own.role) >= ROLES.indexOf(role) && (!operation || has(operation, operations));
}
