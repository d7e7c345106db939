// What went wrong: the newest failure first, each with the user's own traceback.
import { html } from "../core/html.js";
import { ago, count, duration, time } from "../core/format.js";
import { useJob } from "../core/job.js";
import { link } from "../core/router.js";
import { useResource } from "../core/resource.js";
import { Badge, Card, Empty, Facts, Loaded, Pairs, Trace } from "../parts/basics.js";

export function Failures({ jid }) {
  const job = useJob(jid);
  const resource = useResource(`/jobs/${jid}/exceptions?maxExceptions=20`, { every: 3000, changes: `${job?.restarts} ${job?.state}` });
  return html`<${Loaded} resource=${resource}>${(data) => {
    const entries = data.exceptionHistory.entries;
    if (!entries.length) return html`<${Card}><${Empty} title="No failure">The job has not failed since it was started.<//><//>`;
    return html`
      <${Facts} items=${facts(job, entries)} />
      <${Timeline} entries=${entries} start=${job?.["start-time"]} end=${job?.["end-time"] > 0 ? job["end-time"] : job?.now} />
      <div class="timeline">${entries.map((entry) => html`<${Failure} key=${entry.timestamp} jid=${jid} entry=${entry} job=${job} />`)}</div>
      ${data.exceptionHistory.truncated && html`<p class="soft small">Older failures are not kept; the log may have them.</p>`}`;
  }}<//>`;
}

function facts(job, entries) {
  const times = entries.map((entry) => entry.tidegate?.["recovery-time"]).filter((value) => value >= 0);
  return [
    ["Restarts", count(job?.restarts)],
    ["Last failure", ago(entries[0].timestamp, job?.now)],
    ["Time to recovery, last", duration(times[0])],
    ["Time to recovery, longest", times.length ? duration(Math.max(...times)) : "–"],
    ["Job", job ? job.state.toLowerCase() : "–", job?.restart],
  ];
}

/** The life of the job as a line; downtime is red. */
function Timeline({ entries, start, end }) {
  if (!start || !end || end <= start) return null;
  const at = (when) => `${(100 * Math.min(1, Math.max(0, (when - start) / (end - start)))).toFixed(3)}%`;
  return html`<figure class="life" aria-hidden="true">
    <div class="life-line">${entries.map((entry) => {
      const recovered = entry.tidegate?.recovered > 0 ? entry.tidegate.recovered : entry.timestamp;
      return html`<i key=${entry.timestamp} style=${{ left: at(entry.timestamp), width: `max(3px, ${(100 * (recovered - entry.timestamp)) / (end - start)}%)` }}></i>`;
    })}</div>
    <figcaption class="row spread small soft"><span>${time(start)}</span><span>${time(end)}</span></figcaption>
  </figure>`;
}

function Failure({ jid, entry, job }) {
  const ours = entry.tidegate ?? {};
  const region = (ours.vertices ?? []).map((id) => job?.vertices.find((vertex) => vertex.id === id)?.name ?? id);
  const headline = ours.traceback?.trim().split("\n").at(-1) ?? entry.stacktrace.trim().split("\n")[0];
  const items = [
    ["Operator", ours.operator ? `${ours.operator}${ours.uid ? ` (${ours.uid})` : ""}` : entry.taskName],
    ["Subtask", ours.subtask],
    ["Where", entry.endpoint],
    ["Record", ours.record !== null && ours.record !== undefined && html`<code class="break">${ours.record}</code>`],
    ["Restarted", region.length > 0 && region.join(", ")],
    ["From checkpoint", ours["checkpoint-id"] && html`<a href=${link(["jobs", jid, "checkpoints", String(ours["checkpoint-id"])])}>${ours["checkpoint-id"]}</a>`],
    ["Time to recovery", ours["recovery-time"] >= 0 && duration(ours["recovery-time"])],
  ].filter(([, value]) => value !== false && value !== null && value !== undefined);
  return html`<article class="card">
    <header>
      <h2 class="break">${headline}</h2>
      <${Badge} tone=${ours.restarted ? "warn" : "bad"}>${ours.restarted ? "restarted" : "ended the job"}<//>
      <span class="small soft" title=${ago(entry.timestamp)}>${time(entry.timestamp)}</span>
    </header>
    <div class="body stack">
      ${ours.traceback && html`<${Trace} text=${ours.traceback} />`}
      <${Pairs} items=${items} />
      <details open=${!ours.traceback}><summary>Everything that is known</summary><${Trace} text=${entry.stacktrace} /></details>
    </div>
  </article>`;
}
