// The layout of the graph: chains from left to right, with dagre.
import { Graph, layout } from "../../vendor/dagre.js";

export const WIDTH = 212;
export const HEIGHT = 118;
const MARGIN = 40;
const MANY = 60; // Beyond, the faster of two good rankings.

/**
 * `{width, height, places: {id: {x, y}}, routes: {edge id: {line, label}}}` in pixels.
 *
 * Depends on the structure only, so it is computed once, not for every figure that changes.
 */
export function laidOut(vertices, edges) {
  const graph = new Graph({ multigraph: true });
  const ranker = vertices.length > MANY ? "tight-tree" : "network-simplex";
  graph.setGraph({ rankdir: "LR", nodesep: 28, edgesep: 24, ranksep: 44, marginx: MARGIN, marginy: MARGIN, ranker });
  for (const { id } of vertices) graph.setNode(id, { width: WIDTH, height: HEIGHT });
  for (const { id, source, target } of edges) graph.setEdge(source, target, { width: 70, height: 34, labelpos: "c" }, String(id));
  layout(graph);

  const { width, height } = graph.graph();
  const places = {};
  for (const { id } of vertices) {
    const { x, y } = graph.node(id);
    places[id] = { x: x - WIDTH / 2, y: y - HEIGHT / 2 };
  }
  const routes = {};
  for (const { id, source, target } of edges) {
    const { points, x, y } = graph.edge(source, target, String(id));
    const from = { x: places[source].x + WIDTH, y: places[source].y + HEIGHT / 2 };
    const to = { x: places[target].x, y: places[target].y + HEIGHT / 2 };
    routes[id] = { line: curve([from, ...points.slice(1, -1), to]), label: { x, y } };
  }
  return { width: Math.max(width, 1), height: Math.max(height, 1), places, routes };
}

/** A smooth line: each piece leaves and arrives horizontally. */
function curve(points) {
  const [start, ...others] = points;
  let line = `M${start.x},${start.y}`;
  let last = start;
  for (const point of others) {
    const middle = (last.x + point.x) / 2;
    line += `C${middle},${last.y} ${middle},${point.y} ${point.x},${point.y}`;
    last = point;
  }
  return line;
}
