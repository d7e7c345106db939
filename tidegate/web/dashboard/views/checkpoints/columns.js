// One column for every checkpoint: how long, and on what.
import { html } from "../../core/html.js";
import { useJob } from "../../core/job.js";
import { bytes, duration, percent } from "../../core/format.js";
import { useSplits } from "./splits.js";

export function CheckpointColumns({ jid, history, chosen, open }) {
  const splits = useSplits(jid, history, useJob(jid)?.vertices ?? []);
  const rows = [...history].reverse();
  const longest = Math.max(1, ...rows.map((row) => row.end_to_end_duration));
  return html`<div style=${{ maxWidth: `${38 * rows.length}px` }}><div class="columns" role="group" aria-label="Duration of checkpoints">
    ${rows.map((row) => html`<button key=${row.id} aria-pressed=${String(row.id) === chosen} title=${title(row)} aria-label=${title(row)} onClick=${() => open(row)}>
      ${parts(row, splits.get(row.id)).map(([tone, share]) => html`<i key=${tone} class=${tone} style=${{ height: `${(100 * share * row.end_to_end_duration) / longest}%` }}></i>`)}
    </button>`)}
  </div>
  <div class="row spread small soft"><span>${history.at(-1).id}</span>${history.length > 8 && html`<span>longest ${duration(longest)}</span>`}${history.length > 1 && html`<span>${history[0].id}</span>`}</div></div>`;
}

/** Shares of the duration, from top to bottom. */
function parts(row, split) {
  if (row.status === "FAILED") return [["tone-bad", 1]];
  if (!split) return [["tone-4", 1]];
  const { alignment, sync, async: asynchronous } = split;
  const total = Math.max(row.end_to_end_duration, alignment + sync + asynchronous, 1);
  const waiting = total - alignment - sync - asynchronous;
  return [["tone-3", asynchronous / total], ["tone-2", sync / total], ["tone-1", alignment / total], ["tone-4", waiting / total]];
}

function title(row) {
  const written = row.state_size ? `, ${bytes(row.state_size)}, ${percent(row.checkpointed_size / row.state_size)} of it written` : "";
  return `Checkpoint ${row.id}, ${row.status.toLowerCase().replace("_", " ")}: ${duration(row.end_to_end_duration)}${written}`;
}
