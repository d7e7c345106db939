// The frame of the page: navigation on the left, one view on the right.
import { html, useEffect } from "./core/html.js";
import { isTokenWanted } from "./core/api.js";
import { isArchived } from "./core/job.js";
import { connection, isGone, jobs, live } from "./core/live.js";
import { link, route } from "./core/router.js";
import { mustLogIn, session, theme, toggleTheme } from "./core/session.js";
import { Icon, Mark } from "./parts/icons.js";
import { Empty } from "./parts/basics.js";
import { Login } from "./parts/login.js";
import { JobHeader } from "./parts/job_header.js";
import { Elsewhere } from "./views/elsewhere.js";
import { Jobs } from "./views/jobs.js";
import { Savepoints } from "./views/state.js";
import { VIEWS } from "./views/index.js";

export function App() {
  return html`<div class="frame">
    <a class="skip" href="#content">Skip to content</a>
    <${Side} />
    <main class="main" id="content" tabindex="-1">
      <${Banner} />
      ${isTokenWanted.value ? html`<div class="page"><${Login} /></div>` : html`<${Page} />`}
    </main>
  </div>`;
}

function Page() {
  useEffect(() => {
    document.title = live.value ? `${live.value.name}, ${live.value.state.toLowerCase()} · Tidegate` : "Tidegate";
  }, [live.value?.name, live.value?.state]);
  const { parts } = route.value;
  const [place, jid, view = "graph"] = parts;
  useEffect(() => {
    document.getElementById("content").scrollTop = 0;
    document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [place, jid, view]);
  if (place === "savepoints") return html`<div class="page"><h1>Savepoints and checkpoints</h1><${mustLogIn.value ? Login : Savepoints} /></div>`;
  if (place !== "jobs" || !jid) return html`<${Jobs} />`;
  const found = VIEWS.find((each) => each.id === view);
  const entry = jobs.value?.find((job) => job.jid === jid);
  if (isGone.value || (entry && !entry.here)) return html`<div class="page"><${Elsewhere} job=${entry} /></div>`;
  return html`<div class="page ${found?.isFull ? "full" : ""}" key=${jid}>
    <${JobHeader} jid=${jid} />
    ${found
      ? html`<${found.isPrivate && mustLogIn.value ? Login : found.view} key=${view} jid=${jid} rest=${parts.slice(3)} />`
      : html`<${Empty} title="There is no such page"><a href="#/">All jobs of this machine</a><//>`}
  </div>`;
}

function Side() {
  const { parts } = route.value;
  const [place, jid, view = "graph"] = parts;
  const name = live.value?.name ?? jobs.value?.find((job) => job.jid === jid)?.name;
  const here = (isHere) => (isHere ? "page" : undefined);
  return html`<div class="side">
    <a class="brand" href="#/"><${Mark} /><span>Tidegate</span></a>
    <nav aria-label="Views">
      <a href="#/" aria-current=${here(!place || (place === "jobs" && !jid))}><${Icon} name="jobs" />Jobs</a>
      <a href="#/savepoints" aria-current=${here(place === "savepoints")}><${Icon} name="state" />Savepoints</a>
      ${place === "jobs" && jid && isHere(jid) && html`<div class="side-title" title=${name}>${name ?? jid}</div>
        ${VIEWS.filter((each) => !each.needsDriver || !isArchived.value).map(({ id, label, icon }) => html`<a key=${id} href=${link(["jobs", jid, id])} aria-current=${here(view === id)}>
          <${Icon} name=${icon} />${label}<${Tally} of=${id} />
        </a>`)}`}
    </nav>
    <div class="side-foot">
      <div class="row"><${Connection} />
        <button class="quiet icon" onClick=${toggleTheme} aria-label=${theme.value === "dark" ? "Light theme" : "Dark theme"} title="Change the theme">
          <${Icon} name=${theme.value === "dark" ? "sun" : "moon"} />
        </button>
      </div>
      <div class="row version">${session.value && html`<span>Tidegate ${session.value.version}</span>`}</div>
    </div>
  </div>`;
}

const isHere = (jid) => !isGone.value && (jobs.value?.find((job) => job.jid === jid)?.here ?? true);

function Tally({ of }) {
  const restarts = live.value?.restarts;
  return of === "failures" && restarts ? html`<span class="tally bad">${restarts}</span>` : null;
}

const WORDS = { connecting: ["Connecting", ""], live: ["Live", "is-good"], lost: ["No answer", "is-bad"] };

function Connection() {
  const [word, tone] = WORDS[connection.value];
  return html`<span class="badge ${tone}" role="status">${word}</span>`;
}

function Banner() {
  if (connection.value !== "lost") return null;
  return html`<div class="banner" role="alert">The driver does not answer. What you see is the last that it said; the page resumes when it is back.</div>`;
}
