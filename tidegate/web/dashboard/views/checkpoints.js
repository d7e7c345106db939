// Are checkpoints taken, how long do they take, and why did one fail?
import { html } from "../core/html.js";
import { bytes, count, duration, time } from "../core/format.js";
import { live } from "../core/live.js";
import { go } from "../core/router.js";
import { useResource } from "../core/resource.js";
import { Badge, Card, Copy, Empty, Facts, Loaded, Pairs, State } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { CheckpointCharts } from "./checkpoints/columns.js";
import { Details } from "./checkpoints/details.js";

const NEVER = 2 ** 62;
const KINDS = { CHECKPOINT: "checkpoint", SAVEPOINT: "savepoint", SYNC_SAVEPOINT: "stop" };

const COLUMNS = [
  { id: "id", label: "Id", number: true, value: (row) => row.id },
  { id: "status", label: "State", value: (row) => row.status, show: (row) => html`<${State} of=${row.status} />` },
  { id: "kind", label: "Kind", value: (row) => row.checkpoint_type, show: (row) => KINDS[row.checkpoint_type] ?? row.checkpoint_type },
  { id: "acks", label: "Acknowledged", number: true, show: (row) => `${row.num_acknowledged_subtasks} of ${row.num_subtasks}` },
  { id: "at", label: "Triggered", value: (row) => row.trigger_timestamp, show: (row) => time(row.trigger_timestamp) },
  { id: "duration", label: "Duration", number: true, value: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
  { id: "written", label: "Written", number: true, value: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
  { id: "size", label: "Full size", number: true, value: (row) => row.state_size, show: (row) => bytes(row.state_size) },
  { id: "more", label: "Path or cause", wide: true, show: (row) => row.failure_message ? html`<span class="bad">${row.failure_message}</span>` : html`<span class="mono small">${row.external_path}</span>` },
];

export function Checkpoints({ jid, rest: [chosen] }) {
  const pace = live.value?.checkpoints; // Ask again as soon as one begins or ends.
  const changes = pace && `${pace.completed} ${pace.failed} ${pace["in-progress"]}`;
  const resource = useResource(`/jobs/${jid}/checkpoints`, { every: pace?.["in-progress"] ? 700 : 3000, changes });
  const open = (row) => go(String(row.id) === chosen ? ["jobs", jid, "checkpoints"] : ["jobs", jid, "checkpoints", String(row.id)]);
  return html`<${Loaded} resource=${resource} lines=${6}>${(data) => html`
    <${Facts} items=${facts(data)} />
    ${data.history.length
      ? html`
        <${CheckpointCharts} history=${data.history} chosen=${chosen} open=${open} />
        ${chosen && html`<${Details} key=${chosen} jid=${jid} id=${chosen} row=${data.history.find((row) => String(row.id) === chosen)} />`}
        <${Card} title="History" plain>
          <${Table} name="History of checkpoints" columns=${COLUMNS} rows=${data.history} rowKey=${(row) => String(row.id)} open=${open} chosen=${chosen} />
        <//>`
      : html`<${Card}><${Empty} title="No checkpoint yet">Turn them on with <code>env.enable_checkpointing("10 s")</code>, or take one now.<//><//>`}
    <div class="cards">
      <${Card} title="Savepoints"><${SavepointsTaken} rows=${data.history.filter((row) => row.is_savepoint && row.status === "COMPLETED")} /><//>
      <${Configured} jid=${jid} />
    </div>`}<//>`;
}

function facts({ counts, summary, latest }) {
  return [
    ["Completed", count(counts.completed)],
    ["In progress", count(counts.in_progress)],
    ["Failed", html`<span class=${counts.failed ? "bad" : ""}>${count(counts.failed)}</span>`],
    ["Restored", count(counts.restored), latest.restored && `last #${latest.restored.id}`],
    ["Duration, median", duration(summary.end_to_end_duration.p50), `max ${duration(summary.end_to_end_duration.max)}`],
    ["Size, median", bytes(summary.state_size.p50), `max ${bytes(summary.state_size.max)}`],
    ["Written, median", bytes(summary.checkpointed_size.p50)],
  ];
}

function SavepointsTaken({ rows }) {
  if (!rows.length) return html`<${Empty} title="No savepoint in this history">Take one to upgrade the program, to rescale from, or to keep.<//>`;
  return html`<div class="stack">${rows.map((row) => html`<div class="stack tight" key=${row.id}>
    <div class="row spread"><strong>Savepoint ${row.id} ${row.discarded && html`<${Badge}>deleted<//>`}</strong><span class="small soft">${time(row.trigger_timestamp)} · ${bytes(row.state_size)}</span></div>
    <div class="row"><code class="grow break">${row.external_path}</code><${Copy} text=${row.external_path} label="Copy the path" /></div>
  </div>`)}</div>`;
}

function Configured({ jid }) {
  const resource = useResource(`/jobs/${jid}/checkpoints/config`);
  return html`<${Card} title="Configuration"><${Loaded} resource=${resource}>${(config) => html`<${Pairs} items=${[
    ["Interval", config.interval > NEVER ? "no periodic checkpoints" : duration(config.interval)],
    ["Mode", config.mode.replaceAll("_", " ")],
    ["Timeout", duration(config.timeout)],
    ["Pause between two", duration(config.min_pause)],
    ["At the same time", count(config.max_concurrent)],
    ["Failures tolerated", count(config.tolerable_failed_checkpoints)],
    ["State backend", config.state_backend],
    ["Storage", config.checkpoint_storage],
    ["Kept after the end", config.externalization.enabled ? (config.externalization.delete_on_cancellation ? "unless cancelled" : "yes") : "no"],
  ]} />`}<//><//>`;
}
