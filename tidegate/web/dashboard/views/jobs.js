// All jobs of this user on this machine, with the latest figures of those of this driver.
import { html } from "../core/html.js";
import { ago, count, duration, rate, time } from "../core/format.js";
import { connection, jobs } from "../core/live.js";
import { go } from "../core/router.js";
import { session } from "../core/session.js";
import { useResource } from "../core/resource.js";
import { Badge, Command, Empty, Loaded, State } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { id: "name", label: "Name", value: (job) => job.name, show: (job) => html`<strong>${job.name}</strong>`, wide: true },
  { id: "state", label: "State", value: (job) => job.state, show: (job) => html`<${State} of=${job.state} />` },
  { id: "start", label: "Started", value: (job) => job["start-time"], show: (job) => time(job["start-time"]) },
  { id: "duration", label: "Runs for", number: true, value: (job) => job.duration, show: (job) => duration(job.duration) },
  { id: "in", label: "Records/s", number: true, value: (job) => job.live?.["records-in-per-second"], show: (job) => rate(job.live?.["records-in-per-second"]) },
  { id: "restarts", label: "Restarts", number: true, value: (job) => job.live?.restarts, show: (job) => count(job.live?.restarts) },
  { id: "checkpoint", label: "Last checkpoint", value: (job) => job.live?.checkpoints?.last?.completed, show: (job) => ago(job.live?.checkpoints?.last?.completed) },
  { id: "guarantees", label: "Sinks", show: (job) => html`<${Guarantees} of=${job.live?.guarantees} />` },
  { id: "id", label: "Id", show: (job) => html`<code class="soft" title=${job.jid}>${job.jid.slice(0, 8)}</code>` },
];

export function Jobs() {
  const figures = useFigures(jobs.value);
  const open = (job) => go(["jobs", job.jid]);
  const rows = jobs.value?.map((job) => ({ ...job, live: figures.get(job.jid) }));
  return html`<div class="page">
    <div class="row spread wrap">
      <h1>Jobs</h1>
      <span class="soft small">${session.value?.server === "registry" ? "No job runs in this process" : session.value && `Process ${session.value.pid} on ${session.value.host}`}</span>
    </div>
    <div class="card">
      ${rows?.length
        ? html`<${Table} name="Jobs" columns=${COLUMNS} rows=${rows} rowKey=${(job) => job.jid} open=${open} tall />`
        : rows
          ? html`<${Empty} title="No job has run yet"><p>Start one; it appears here.</p><${Command} text="tidegate run job.py" /><//>`
          : html`<div class="body"><${Loaded} resource=${{ error: connection.value === "lost" ? new Error("The driver does not answer.") : null }} /></div>`}
    </div>
  </div>`;
}

/** The live documents of the jobs that this driver runs, by id. */
function useFigures(listed) {
  const here = (listed ?? []).filter((job) => job.here && !job.archived);
  const { data } = useResource(here.map((job) => `/tidegate/jobs/${job.jid}/live`), { every: 2000 });
  return new Map((data ?? []).map((job) => [job.jid, job]));
}

function Guarantees({ of }) {
  if (!of?.length) return null;
  const words = [...new Set(of.map((each) => each.guarantee))];
  const why = of.map((each) => `${each.sink}: ${each.guarantee}${each.why ? `, ${each.why}` : ""}`).join("\n");
  return html`<span class="row" title=${why}>${words.map((word) => html`<${Badge} key=${word} tone=${word === "exactly-once" ? "good" : null}>${word}<//>`)}</span>`;
}
