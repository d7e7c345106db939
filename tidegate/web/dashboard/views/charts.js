// Rates, lag and sizes over the last minutes or hours.
import { html, useMemo, useState } from "../core/html.js";
import { bytes, duration, rate, short } from "../core/format.js";
import { points } from "../core/live.js";
import { Ring } from "../core/ring.js";
import { useResource } from "../core/resource.js";
import { isArchived, useJob } from "../core/job.js";
import { Card, Loaded, Tabs } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";

const SPANS = [["1", "10 minutes"], ["15", "12 hours"]]; // By the seconds between two points.
const CHARTS = [
  ["Throughput", rate, [["records-in-per-second", "in"], ["records-out-per-second", "out"]]],
  ["Records waiting to be read", short, [["lag", "waiting"]]],
  ["Watermark lag", duration, [["watermark-lag", "event time behind the clock"]]],
  ["Step duration", duration, [["step-duration", "slowest pipeline"]]],
  ["Memory of the slots", bytes, [["memory", "memory"]]],
  ["State size", bytes, [["state-size", "state"]]],
];

export function Charts({ jid }) {
  const job = useJob(jid);
  const [chosen, setSpan] = useState("1");
  const span = isArchived.value ? "15" : chosen;
  const history = useResource(`/tidegate/jobs/${jid}/history?resolution=${span}`, { every: span === "1" ? null : 15000 });
  return html`
    ${!isArchived.value && html`<div class="row"><${Tabs} label="Span of time" items=${SPANS} chosen=${span} choose=${setSpan} /></div>`}
    <${Loaded} resource=${history} lines=${8}>${(data) => html`<${Drawn} key=${span} data=${data} isLive=${span === "1"} job=${job} />`}<//>`;
}

function Drawn({ data, isLive, job }) {
  // The history of the driver first, then what has come since; both have the same columns.
  const ring = useMemo(() => {
    const filled = new Ring(isLive ? 600 : 2880);
    filled.add(data);
    return filled;
  }, [data]);
  if (isLive && points.version.value && points.times.length) ring.add(points.since(ring.times.at(-1)));
  const version = ring.version.peek();
  const vertices = job?.vertices.slice(0, 4) ?? [];
  return html`<div class="cards">
    ${CHARTS.map(([title, format, lines]) => html`<${Card} key=${title} title=${title}>
      <${Chart} label=${title} times=${ring.times} format=${format} version=${version} series=${lines.map(([name, label]) => ({ label, values: ring.column(name) }))} />
    <//>`)}
    ${vertices.length > 0 && html`<${Card} title="Busy, by vertex">
      <${Chart} label="Busy, by vertex" times=${ring.times} format=${(value) => (typeof value === "number" ? `${Math.round(100 * value)} %` : "–")} version=${version}
        series=${vertices.map((vertex) => ({ label: vertex.name, values: ring.column(`${vertex.id}/busy`) }))} />
    <//>`}
  </div>`;
}
