// One checkpoint: its vertices, and the subtasks of one of them.
import { html, useState } from "../../core/html.js";
import { bytes, duration, time } from "../../core/format.js";
import { isArchived, useJob } from "../../core/job.js";
import { useResource } from "../../core/resource.js";
import { Card, Loaded, Problem, State } from "../../parts/basics.js";
import { Table } from "../../parts/table.js";

const WORK = [
  { id: "duration", label: "Duration", number: true, value: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
  { id: "written", label: "Written", number: true, value: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
  { id: "size", label: "Full size", number: true, value: (row) => row.state_size, show: (row) => bytes(row.state_size) },
];

const SUBTASKS = [
  { id: "index", label: "Subtask", number: true, value: (row) => row.index },
  { id: "status", label: "State", value: (row) => row.status, show: (row) => html`<${State} of=${row.status === "completed" ? "COMPLETED" : "IN_PROGRESS"} />` },
  { id: "ack", label: "Acknowledged", value: (row) => row.ack_timestamp, show: (row) => time(row.ack_timestamp) },
  { id: "delay", label: "Until the barrier", number: true, value: (row) => row.start_delay, show: (row) => duration(row.start_delay) },
  { id: "alignment", label: "Alignment", number: true, value: (row) => row.alignment?.duration, show: (row) => duration(row.alignment?.duration) },
  { id: "sync", label: "Synchronous", number: true, value: (row) => row.checkpoint?.sync, show: (row) => duration(row.checkpoint?.sync) },
  { id: "async", label: "Asynchronous", number: true, value: (row) => row.checkpoint?.async, show: (row) => duration(row.checkpoint?.async) },
  ...WORK,
];

export function Details({ jid, id, row }) {
  const every = row?.status === "IN_PROGRESS" ? 700 : null;
  const resource = useResource(`/jobs/${jid}/checkpoints/details/${id}`, { every, changes: row?.status });
  const [vertex, setVertex] = useState(null);
  const job = useJob(jid);
  const name = (vertexId) => job?.vertices.find((each) => each.id === vertexId)?.name ?? vertexId;
  const columns = [
    { id: "name", label: "Vertex", value: (task) => name(task.vertex), wide: true },
    { id: "acks", label: "Acknowledged", number: true, value: (task) => task.num_acknowledged_subtasks, show: (task) => `${task.num_acknowledged_subtasks} of ${task.num_subtasks}` },
    ...WORK,
  ];
  return html`<${Card} title="Checkpoint ${id}" plain>
    ${row?.failure_message && html`<div class="body"><${Problem} error=${row.failure_message} /></div>`}
    <${Loaded} resource=${resource}>${(data) => {
      const tasks = Object.entries(data.tasks).map(([vertexId, task]) => ({ vertex: vertexId, ...task }));
      const shown = vertex ?? tasks[0]?.vertex;
      return html`
        <${Table} name="Vertices of the checkpoint" columns=${columns} rows=${tasks} rowKey=${(task) => task.vertex} open=${(task) => setVertex(task.vertex)} chosen=${shown} />
        ${shown && !isArchived.value && html`<header class="inner-title"><h3>Subtasks of ${name(shown)}</h3></header><${OfVertex} key=${shown} jid=${jid} id=${id} vertex=${shown} every=${every} />`}`;
    }}<//>
  <//>`;
}

function OfVertex({ jid, id, vertex, every }) {
  const resource = useResource(`/jobs/${jid}/checkpoints/details/${id}/subtasks/${vertex}`, { every });
  return html`<${Loaded} resource=${resource}>${(data) => html`<${Table} name="Subtasks of the checkpoint" columns=${SUBTASKS} rows=${data.subtasks} rowKey=${(row) => row.index} />`}<//>`;
}
