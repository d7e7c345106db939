// The job as a graph: what it does now, and where it is slow.
import { html, useLayoutEffect } from "../core/html.js";
import { ago, bytes, duration, rate, short } from "../core/format.js";
import { useJob } from "../core/job.js";
import { go } from "../core/router.js";
import { Facts, Loaded } from "../parts/basics.js";
import { Canvas } from "./graph/canvas.js";
import { bundled, shown } from "./graph/figures.js";
import { Drawer } from "./vertex/drawer.js";

export function Graph({ jid, rest: [chosen, tab] }) {
  const job = useJob(jid);
  useLayoutEffect(() => void (shown.value = job), [job]);
  if (!job) return html`<${Loaded} resource=${{}} />`;
  const vertex = job.vertices.find((each) => each.id === chosen);
  const close = () => {
    go(["jobs", jid, "graph"]);
    document.querySelector('.node[aria-expanded="true"]')?.focus();
  };
  return html`
    <${Facts} items=${facts(job)} />
    <div class="with-drawer">
      <${Canvas} vertices=${job.vertices} edges=${bundled(job.edges)} chosen=${chosen}
        open=${(id) => (id === chosen ? close() : go(["jobs", jid, "graph", id]))}
        sample=${(id) => go(["jobs", jid, "sample"], { edge: id })} />
      ${vertex && html`<${Drawer} key=${vertex.id} jid=${jid} vertex=${vertex} tab=${tab} close=${close} />`}
    </div>`;
}

function facts(job) {
  const last = job.checkpoints?.last;
  return [
    ["Records in", rate(job["records-in-per-second"]), `${short(job["records-in"])} so far`],
    ["Records out", rate(job["records-out-per-second"]), `${short(job["records-out"])} so far`],
    ["Waiting", short(job.lag), job["records-to-repeat"] ? `${short(job["records-to-repeat"])} to repeat` : "records to read"],
    ["Watermark lag", duration(job["watermark-lag"]), "of event time"],
    ["Step", duration(job["step-duration"]), "slowest one"],
    ["State", bytes(job["state-size"]), "last checkpoint"],
    ["Memory", bytes(job.memory), "of the slots"],
    ["Last checkpoint", last ? ago(last.completed, job.now) : "none", last ? `number ${last.id}` : "not yet"],
  ];
}
