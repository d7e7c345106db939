// Starts the page: logs in, finds out what it may do, follows the job in the address, renders.
import { App } from "./app.js";
import { logInByAddress } from "./core/api.js";
import { effect, html, render } from "./core/html.js";
import { follow, isConnected, jobs } from "./core/live.js";
import { route } from "./core/router.js";
import { loadSession } from "./core/session.js";

await logInByAddress();
effect(() => {
  const [place, jid] = route.value.parts;
  const isSilent = jobs.value?.some((job) => job.jid === jid && (!job.here || job.archived));
  follow(place === "jobs" && jid && !isSilent ? jid : null);
});
effect(() => {
  if (isConnected.value) loadSession(); // Again after a break: another driver may answer.
});
render(html`<${App} />`, document.getElementById("app"));
