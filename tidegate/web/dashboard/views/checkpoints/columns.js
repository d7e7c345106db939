// One column for every checkpoint: how long and on what, how large and how much of it written.
import { html } from "../../core/html.js";
import { bytes, duration, percent } from "../../core/format.js";
import { Card } from "../../parts/basics.js";

const CHARTS = [
  {
    label: "Duration",
    keys: [["tone-4", "until the barrier"], ["tone-1", "alignment"], ["tone-2", "synchronous"], ["tone-3", "asynchronous"], ["tone-5", "publication"], ["tone-bad", "failed"]],
    value: (row) => row.end_to_end_duration,
    show: duration,
    parts: stages,
  },
  {
    label: "Size",
    keys: [["tone-3", "written"], ["tone-4", "as in the one before"]],
    value: (row) => row.state_size,
    show: bytes,
    parts: (row) => [["tone-4", Math.max(0, row.state_size - row.checkpointed_size)], ["tone-3", row.checkpointed_size]],
  },
];

export function CheckpointCharts({ history: rows, chosen, open }) {
  return html`<div class="cards">${CHARTS.map((chart) => html`<${Card} key=${chart.label} title="${chart.label} of the last ${rows.length}"><div class="stack">
    <${Columns} chart=${chart} rows=${rows} chosen=${chosen} open=${open} />
    <div class="row wrap">${chart.keys.map(([tone, word]) => html`<span class="key" key=${tone}><i class=${tone}></i>${word}</span>`)}</div>
  </div><//>`)}</div>`;
}

function Columns({ chart, rows, chosen, open }) {
  const most = Math.max(1, ...rows.map(chart.value));
  return html`<div style=${{ maxWidth: `${38 * rows.length}px` }}><div class="columns" role="group" aria-label="${chart.label} of checkpoints">
    ${rows.map((row) => html`<button key=${row.id} aria-pressed=${String(row.id) === chosen} title=${title(row)} aria-label=${title(row)} onClick=${() => open(row)}>
      ${chart.parts(row).map(([tone, part]) => html`<i key=${tone} class=${tone} style=${{ height: `${(100 * part) / most}%` }}></i>`)}
    </button>`)}
  </div>
  <div class="row spread small soft"><span>${rows.at(-1).id}</span>${rows.length > 8 && html`<span>most ${chart.show(most)}</span>`}${rows.length > 1 && html`<span>${rows[0].id}</span>`}</div></div>`;
}

/** How the slowest subtask spent the time, from top to bottom. */
function stages(row) {
  const total = row.end_to_end_duration;
  if (row.status === "FAILED") return [["tone-bad", total]];
  if (row.status !== "COMPLETED" || !row.tidegate.slowest) return [["tone-4", total]];
  const { start_delay: delay, alignment, checkpoint } = row.tidegate.slowest;
  const rest = total - delay - alignment.duration - checkpoint.sync - checkpoint.async;
  return [["tone-5", Math.max(0, rest)], ["tone-3", checkpoint.async], ["tone-2", checkpoint.sync], ["tone-1", alignment.duration], ["tone-4", delay]];
}

function title(row) {
  const written = row.state_size ? `, ${bytes(row.state_size)}, ${percent(row.checkpointed_size / row.state_size)} of it written` : "";
  return `Checkpoint ${row.id}, ${row.status.toLowerCase().replace("_", " ")}: ${duration(row.end_to_end_duration)}${written}`;
}
