// The subtasks of a vertex, and the work of each.
import { html } from "../../core/html.js";
import { bytes, count, percent, rate, watermark } from "../../core/format.js";
import { useResource } from "../../core/resource.js";
import { Load, Loaded, State } from "../../parts/basics.js";
import { Table } from "../../parts/table.js";

const ours = (name) => (row) => row.tidegate?.[name];

const COLUMNS = [
  { id: "subtask", label: "#", number: true, value: (row) => row.subtask },
  { id: "status", label: "State", value: (row) => row.status, show: (row) => html`<${State} of=${row.status} />` },
  { id: "busy", label: "Busy", value: ours("busy"), show: (row) => html`<${Busy} row=${row} />` },
  { id: "in", label: "In", number: true, value: (row) => row.metrics["read-records"], show: (row) => count(row.metrics["read-records"]) },
  { id: "in-rate", label: "In/s", number: true, value: ours("records-in-per-second"), show: (row) => rate(row.tidegate?.["records-in-per-second"]) },
  { id: "out", label: "Out", number: true, value: (row) => row.metrics["write-records"], show: (row) => count(row.metrics["write-records"]) },
  { id: "bytes-in", label: "Bytes in", number: true, value: (row) => row.metrics["read-bytes"], show: (row) => bytes(row.metrics["read-bytes"]) },
  { id: "bytes", label: "Bytes out", number: true, value: (row) => row.metrics["write-bytes"], show: (row) => bytes(row.metrics["write-bytes"]) },
  { id: "state", label: "State size", number: true, value: ours("state-size"), show: (row) => bytes(row.tidegate?.["state-size"]) },
  { id: "watermark", label: "Watermark", number: true, value: ours("watermark"), show: (row) => watermark(row.tidegate?.watermark) },
  { id: "memory", label: "Memory", number: true, value: ours("memory"), show: (row) => bytes(row.tidegate?.memory) },
  { id: "attempt", label: "Attempt", number: true, value: (row) => row.attempt },
  { id: "host", label: "Runs in", value: ours("host"), show: (row) => place(row) },
];

export function Subtasks({ jid, vertex }) {
  const resource = useResource(`/jobs/${jid}/vertices/${vertex.id}`, { every: 2000 });
  return html`<${Loaded} resource=${resource}>${(data) => html`
    <${Skew} subtasks=${data.subtasks} />
    <${Table} name="Subtasks" columns=${COLUMNS} rows=${data.subtasks} rowKey=${(row) => row.subtask} />`}
  <//>`;
}

function Busy({ row }) {
  const { busy, "back-pressured": held } = row.tidegate ?? {};
  if (typeof busy !== "number") return "–";
  return html`<span class="row" title="busy ${percent(busy)}, held back ${percent(held)}"><span class="meter"><${Load} busy=${busy} held=${held} /></span>${percent(busy)}</span>`;
}

function place(row) {
  const { host, pid } = row.tidegate ?? {};
  return host ? `${host}${pid ? `, process ${pid}` : ""}` : row.endpoint;
}

/** How evenly the records are distributed: one column per subtask. */
function Skew({ subtasks }) {
  const received = subtasks.map((row) => row.metrics["read-records"] || row.metrics["write-records"]);
  const most = Math.max(...received);
  if (subtasks.length < 2 || !most) return null;
  const mean = received.reduce((sum, value) => sum + value, 0) / received.length;
  const label = `The subtask with most records has ${(most / mean).toFixed(1)} times the mean.`;
  return html`<figure class="stack skew">
    <svg viewBox="0 0 ${subtasks.length} 32" style=${{ maxWidth: `${24 * subtasks.length}px` }} preserveAspectRatio="none" role="img" aria-label=${label}>
      ${received.map((value, n) => html`<rect key=${n} x=${n + 0.1} width="0.8" y=${32 - (32 * value) / most} height=${(32 * value) / most} class=${value > 2 * mean ? "much" : ""} />`)}
    </svg>
    <figcaption class="small soft">Records by subtask. ${label}</figcaption>
  </figure>`;
}
