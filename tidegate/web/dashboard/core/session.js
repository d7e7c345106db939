// What this page may do, and how it looks.
import { get } from "./api.js";
import { computed, signal } from "./html.js";

/** `tidegate` of /config: version, server, read-only, may-act, may-look, ... */
export const session = signal(null);

/** Whether records, state, logs and stacks are hidden from the user of this page. */
export const mustLogIn = computed(() => session.value !== null && !session.value["may-look"]);

export async function loadSession() {
  try {
    session.value = (await get("/config")).tidegate;
  } catch {
    // The banner shows that the driver is unreachable; the next connection tries again.
  }
}

/** "light" or "dark"; charts are drawn again when it changes. */
export const theme = signal(document.documentElement.dataset.theme);
addEventListener("tidegate-theme", () => (theme.value = document.documentElement.dataset.theme));

export function toggleTheme() {
  localStorage.setItem("tidegate.theme", theme.value === "dark" ? "light" : "dark");
  dispatchEvent(new Event("storage"));
}
