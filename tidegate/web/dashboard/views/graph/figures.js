// The live figures of one vertex or edge. A component that reads them through here is drawn
// again only when its own figures change, not with every event of the stream.
import { computed, signal, useMemo } from "../../core/html.js";

/** The document that the graph shows; the view sets it. */
export const shown = signal(null);

const vertices = computed(() => new Map(shown.value?.vertices.map((vertex) => [vertex.id, vertex])));
const edges = computed(() => new Map(shown.value?.edges.map((edge) => [edge.id, edge])));

/** `texts` makes an object of strings and numbers from a vertex; equal ones are one. */
export const useVertex = (id, texts) => useFigures(vertices, id, texts);
export const useEdge = (id, texts) => useFigures(edges, id, texts);

function useFigures(source, id, texts) {
  const figures = useMemo(() => computed(() => JSON.stringify(source.value.has(id) ? texts(source.value.get(id)) : {})), [id]);
  return JSON.parse(figures.value);
}
