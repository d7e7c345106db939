// Requests to the driver. `tidegate ui` opens the page with a code in its address, which can be
// exchanged for one token. The token is kept for the session of the tab.
import { signal } from "./html.js";

const KEPT = "tidegate.token";
const CODE = /([#?&])login=([^&]+)&?/;

/** Whether a request was refused because it had no token: the page then asks for one. */
export const isTokenWanted = signal(false);

addEventListener("hashchange", () => (isTokenWanted.value = false)); // Another view may need none.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEPT, token);
  isTokenWanted.value = false;
}

/** Exchange the code in the address for a token, and remove it from the address. */
export async function logInByAddress() {
  const found = CODE.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", `#${location.hash.replace(CODE, "$1").replace(/^#|[?&]$/g, "")}`);
  try {
    await logIn(decodeURIComponent(found[2]));
  } catch {
    // The code has been used: the tab may have a token already, or the page asks for one.
  }
}

/** Accepts a link of `tidegate ui`, the code in it, or a token. */
export async function logIn(text) {
  const code = CODE.exec(text)?.[2] ?? text;
  try {
    setToken((await request("POST", "/tidegate/session", { code })).token);
  } catch (error) {
    if (error.status !== 401 || CODE.test(text)) throw error;
    setToken(text);
  }
}

export function headers() {
  const token = sessionStorage.getItem(KEPT);
  return token ? { authorization: `Bearer ${token}` } : {};
}

export const get = (path, signal) => request("GET", path, undefined, signal);

/** A document from the driver; throws an ApiError with a message to show. */
export async function request(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path.replace(/^\//, ""), {
      method,
      signal,
      headers: { ...headers(), ...(body !== undefined && { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The driver does not answer.");
  }
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const document = isJson ? await response.json() : await response.text();
  if (response.ok) return document;
  if (response.status === 401) isTokenWanted.value = true;
  throw new ApiError(response.status, sentence(document?.errors?.join(" ") ?? response.statusText));
}

/** A path with a query of the values that are set. */
export function path(base, query) {
  const known = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return known.length ? `${base}?${new URLSearchParams(known)}` : base;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
