// The metrics of a vertex, those of its functions included: choose some, and they are charted.
import { html, useEffect, useMemo, useRef, useState } from "../../core/html.js";
import { path } from "../../core/api.js";
import { short } from "../../core/format.js";
import { Ring } from "../../core/ring.js";
import { useResource } from "../../core/resource.js";
import { Empty, Loaded } from "../../parts/basics.js";
import { Chart } from "../../parts/chart.js";

const KEPT = 300;
const MOST = 4;

export function Metrics({ jid, vertex }) {
  const base = `/jobs/${jid}/vertices/${vertex.id}/metrics`;
  const resource = useResource(base);
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState([]);
  const toggle = (id) => setChosen((now) => (now.includes(id) ? now.filter((each) => each !== id) : [...now, id].slice(-MOST)));
  return html`<${Loaded} resource=${resource}>${(metrics) => {
    const found = metrics.filter(({ id }) => id.toLowerCase().includes(search.toLowerCase()));
    return html`
      ${chosen.length > 0
        ? html`<${Charted} key=${chosen.join()} base=${base} names=${chosen} />`
        : html`<${Empty} title="Choose a metric to chart">Up to ${MOST} at once. Your own metrics are listed, too.<//>`}
      <input type="search" placeholder="Search ${metrics.length} metrics" aria-label="Search metrics" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />
      <div class="list">${found.slice(0, 200).map(({ id }) => html`<label class="check metric" key=${id}>
        <input type="checkbox" checked=${chosen.includes(id)} onChange=${() => toggle(id)} /><span class="mono break">${id}</span>
      </label>`)}
      ${found.length > 200 && html`<span class="small soft">${found.length - 200} more: search for a part of the name.</span>`}</div>`;
  }}<//>`;
}

function Charted({ base, names }) {
  const ring = useMemo(() => new Ring(KEPT), []);
  const last = useRef(null);
  const { data } = useResource(path(base, { get: names.join(",") }), { every: 2000 });
  useEffect(() => {
    if (!data || data === last.current) return;
    last.current = data;
    const job = Object.fromEntries(data.map(({ id, value }) => [id, [Number(value)]]));
    ring.add({ times: [Date.now() / 1000], job });
  }, [data]);
  ring.version.value;
  return html`<${Chart} label="Metrics" times=${ring.times} format=${short} height=${170}
    series=${names.map((name) => ({ label: name, values: ring.column(name) }))} version=${ring.version.value} />`;
}
