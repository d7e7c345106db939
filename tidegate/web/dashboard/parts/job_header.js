// The header of every view of a job: its name, state and actions.
import { html } from "../core/html.js";
import { duration } from "../core/format.js";
import { useJob } from "../core/job.js";
import { session } from "../core/session.js";
import { State } from "./basics.js";
import { ActionButtons } from "./actions.js";

export function JobHeader({ jid }) {
  const job = useJob(jid);
  return html`<div class="row spread wrap job-header">
    <div class="row grow">
      <h1 class="clip" title=${jid}>${job?.name ?? "…"}</h1>
      ${job && html`<${State} of=${job.state} />`}
      ${job && html`<span class="soft small since">${since(job)}</span>`}
    </div>
    ${session.value && html`<${ActionButtons} job=${job} jid=${jid} />`}
  </div>`;
}

function since(job) {
  if (job["end-time"] > 0) return `ran for ${duration(job.duration)}`;
  if (job.restart) return job.restart;
  return `for ${duration(job.uptime ?? job.duration)}`;
}
