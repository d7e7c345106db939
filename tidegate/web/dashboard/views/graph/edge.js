// An edge of the graph, and what moves along it.
import { html } from "../../core/html.js";
import { byteRate, rate } from "../../core/format.js";
import { useEdge } from "./figures.js";

export function EdgeLine({ id, line }) {
  const { isFlowing } = useEdge(id, (edge) => ({ isFlowing: edge["records-per-second"] > 0 }));
  return html`<path d=${line} class=${isFlowing ? "flowing" : ""} />`;
}

const texts = (edge) => ({
  rate: edge["records-per-second"] === undefined || edge["records-per-second"] === null ? null : rate(edge["records-per-second"]),
  bytes: byteRate(edge["bytes-per-second"]),
  strategy: strategy(edge),
});

export function EdgeLabel({ id, place, sample }) {
  const edge = useEdge(id, texts);
  return html`<button class="edge-label" style=${{ left: `${place.x}px`, top: `${place.y}px` }} onClick=${() => sample(id)} title="${edge.strategy}, ${edge.bytes}: sample some records">
    <b>${edge.rate ?? edge.strategy}</b>${edge.rate !== null && html`<span>${edge.bytes === "–" ? edge.strategy : edge.bytes}</span>`}
  </button>`;
}

function strategy(edge) {
  const word = (edge["ship-strategy"] ?? "").toLowerCase();
  return edge["side-output"] ? `${word}, side output ${edge["side-output"]}` : word;
}
