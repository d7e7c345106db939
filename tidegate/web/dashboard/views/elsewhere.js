// A job that this server does not serve: it runs in another driver, or has ended.
import { html, useEffect, useState } from "../core/html.js";
import { request } from "../core/api.js";
import { duration, time } from "../core/format.js";
import { session } from "../core/session.js";
import { restart } from "../parts/action_list.js";
import { ActionDialog } from "../parts/actions.js";
import { Card, Command, Empty, Pairs, Problem, State, Trace } from "../parts/basics.js";

export function Elsewhere({ job }) {
  if (!job) return html`<${Card}><${Empty} title="This job is not known here"><a href="#/">All jobs of this machine</a><//><//>`;
  return job["end-time"] > 0 || job.state === "LOST" ? html`<${Ended} job=${job} />` : html`<${Redirected} job=${job} />`;
}

/** Leads to the page of the driver that runs the job. */
function Redirected({ job }) {
  const [error, setError] = useState(null);
  useEffect(() => {
    request("POST", `/tidegate/jobs/${job.jid}/link`).then(({ url }) => location.replace(url), setError);
  }, [job.jid]);
  return html`<${Card} title=${job.name}><div class="stack">
    ${error ? html`<${Problem} error=${error} />` : html`<p class="soft">Opening the page of its driver …</p>`}
    <${Command} text="tidegate ui ${job.jid.slice(0, 8)}" />
  </div><//>`;
}

function Ended({ job }) {
  const [action, setAction] = useState(null);
  const items = [
    ["Id", html`<code class="break">${job.jid}</code>`],
    ["Started", time(job["start-time"])],
    ["Ended", time(job["end-time"])],
    ["Ran for", duration(job.duration)],
    ["Log", job.log && html`<code class="break">${job.log}</code>`],
    ["Checkpoints", job["checkpoint-directory"] && html`<code class="break">${job["checkpoint-directory"]}</code>`],
    ["Command", job.command?.length && html`<code class="break">${job.command.join(" ")}</code>`],
  ].filter(([, value]) => value);
  return html`
    <div class="row spread wrap job-header">
      <div class="row grow"><h1 class="clip">${job.name}</h1><${State} of=${job.state} /></div>
      ${session.value?.["may-act"] && html`<button onClick=${() => setAction(restart(job, "latest"))}>Start again</button>`}
      ${action && html`<${ActionDialog} action=${action} job=${job} close=${() => setAction(null)} />`}
    </div>
    ${job.state === "LOST" && html`<div class="problem">Its driver ended without saying how. The log may tell why.</div>`}
    ${job.failure && html`<${Trace} text=${job.failure} />`}
    <${Card} title="What is known"><${Pairs} items=${items} /><//>`;
}
