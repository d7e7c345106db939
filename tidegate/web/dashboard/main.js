// Starts the page: log in, learn what it may do, follow the job of the address, draw.
import { App } from "./app.js";
import { logInByAddress } from "./core/api.js";
import { effect, html, render } from "./core/html.js";
import { follow, isConnected } from "./core/live.js";
import { route } from "./core/router.js";
import { loadSession } from "./core/session.js";

await logInByAddress();
effect(() => {
  const { parts } = route.value;
  follow(parts[0] === "jobs" && parts[1] ? parts[1] : null);
});
effect(() => {
  if (isConnected.value) loadSession(); // Again after a break: another driver may answer.
});
render(html`<${App} />`, document.getElementById("app"));
