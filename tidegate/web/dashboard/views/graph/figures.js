// The live figures of one vertex or edge. A component that reads them through here is drawn
// again only when its own figures change, not with every event of the stream.
import { computed, signal, useMemo } from "../../core/html.js";

/** The document that the graph shows; the view sets it. */
export const shown = signal(null);

const vertices = computed(() => new Map(shown.value?.vertices.map((vertex) => [vertex.id, vertex])));
const edges = computed(() => new Map(shown.value && bundled(shown.value.edges).map((edge) => [edge.id, edge])));

/** Edges between the same two vertices as one, with the id of the first: side outputs, mostly. */
export function bundled(all) {
  const found = new Map();
  for (const edge of all) {
    const between = `${edge.source} ${edge.target}`;
    const first = found.get(between);
    found.set(between, first ? together(first, edge) : edge);
  }
  return [...found.values()];
}

function together(one, other) {
  const sum = (name) => (typeof one[name] === "number" || typeof other[name] === "number" ? (one[name] ?? 0) + (other[name] ?? 0) : one[name]);
  return { ...one, "records-per-second": sum("records-per-second"), "bytes-per-second": sum("bytes-per-second") };
}

/** `texts` makes an object of strings and numbers from a vertex; equal ones are one. */
export const useVertex = (id, texts) => useFigures(vertices, id, texts);
export const useEdge = (id, texts) => useFigures(edges, id, texts);

function useFigures(source, id, texts) {
  const figures = useMemo(() => computed(() => JSON.stringify(source.value.has(id) ? texts(source.value.get(id)) : {})), [id]);
  return JSON.parse(figures.value);
}
