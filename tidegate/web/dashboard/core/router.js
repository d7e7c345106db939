// The address after # is the whole state of what is shown, so links and reloads lead back here.
import { computed, signal } from "./html.js";

const address = signal(location.hash);
addEventListener("hashchange", () => (address.value = location.hash));

/** The parts of the path, and the query. */
export const route = computed(() => {
  const [path, query] = address.value.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: new URLSearchParams(query) };
});

/** The address of a path, with a query of the values that are set. */
export function link(parts, query = {}) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(known).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

export function go(parts, query = {}) {
  location.hash = link(parts, query);
}

/** Change the query of the current address without a new entry in the history. */
export function narrow(query) {
  const { parts, query: present } = route.value;
  history.replaceState(null, "", link(parts, { ...Object.fromEntries(present), ...query }));
  address.value = location.hash;
}
