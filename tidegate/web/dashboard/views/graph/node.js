// A vertex of the graph: a chain of operators that runs as one.
import { html } from "../../core/html.js";
import { count, duration, percent, rate, watermark } from "../../core/format.js";
import { Load } from "../../parts/basics.js";
import { HEIGHT, WIDTH } from "./layout.js";
import { useVertex } from "./figures.js";

const texts = (vertex) => ({
  name: vertex.name,
  status: vertex.status,
  parallelism: vertex.parallelism,
  busy: vertex.busy && Math.round(100 * vertex.busy) / 100,
  held: vertex["back-pressured"] && Math.round(100 * vertex["back-pressured"]) / 100,
  input: vertex["records-in-per-second"] === undefined ? count(vertex["records-in"]) : rate(vertex["records-in-per-second"]),
  output: vertex["records-out-per-second"] === undefined ? count(vertex["records-out"]) : rate(vertex["records-out-per-second"]),
  watermark: watermark(vertex.watermark),
  lag: vertex["watermark-lag"] > 0 ? duration(vertex["watermark-lag"]) : null,
  skewed: vertex.skew > 0.5 && vertex.parallelism > 1 && vertex["records-in-per-second"] > 1,
  skipped: vertex.skipped || 0,
});

export function Node({ id, place, isChosen, open }) {
  const vertex = useVertex(id, texts);
  const style = { left: `${place.x}px`, top: `${place.y}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` };
  const isBad = ["FAILED", "FAILING", "CANCELED"].includes(vertex.status);
  return html`<button class="node ${isBad ? "is-bad" : ""}" style=${style} aria-expanded=${isChosen} onClick=${() => open(id)} title=${vertex.name}>
    <${Load} busy=${vertex.busy} held=${vertex.held} />
    <span class="inner">
      <span class="name">${(vertex.name ?? "").replaceAll(" -> ", " → ")}</span>
      <span class="line foot"><span>in <b>${vertex.input}</b></span><span>out <b>${vertex.output}</b></span></span>
      <span class="line"><span>${note(vertex)}</span><span>× ${vertex.parallelism}</span></span>
    </span>
  </button>`;
}

function note(vertex) {
  if (vertex.status !== "RUNNING") return (vertex.status ?? "").toLowerCase();
  if (vertex.skipped) return html`<b class="bad">${count(vertex.skipped)} skipped</b>`;
  if (vertex.skewed) return html`<b class="warn">skewed</b>`;
  if (vertex.watermark !== "–") return vertex.lag ? `watermark ${vertex.lag} behind` : `watermark ${vertex.watermark}`;
  return typeof vertex.busy === "number" ? `${percent(vertex.busy)} busy` : "running";
}
