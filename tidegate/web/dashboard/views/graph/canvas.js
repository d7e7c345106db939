// The drawing of the graph: moved by dragging, zoomed by the wheel, the buttons or + and -.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../core/html.js";
import { Icon } from "../../parts/icons.js";
import { EdgeLabel, EdgeLine } from "./edge.js";
import { HEIGHT, laidOut, WIDTH } from "./layout.js";
import { Node } from "./node.js";

const CLOSEST = 1.6;
const FARTHEST = 0.05;
const READABLE = 0.75;

const structureOf = (vertices, edges) => JSON.stringify([vertices.map(({ id }) => id), edges.map(({ id, source, target }) => [id, source, target])]);

export function Canvas({ vertices, edges, chosen, open, sample }) {
  const structure = useMemo(() => structureOf(vertices, edges), [vertices, edges]);
  const layout = useMemo(() => laidOut(vertices, edges), [structure]);
  const box = useRef(null);
  const [view, setView] = useState(null);

  const fit = () => {
    const { clientWidth: width, clientHeight: height } = box.current;
    const scale = Math.max(FARTHEST, Math.min(1, width / layout.width, height / layout.height));
    setView({ scale, x: (width - scale * layout.width) / 2, y: (height - scale * layout.height) / 2 });
  };
  const zoom = (factor, x = box.current.clientWidth / 2, y = box.current.clientHeight / 2) =>
    setView((now) => {
      const scale = Math.min(CLOSEST, Math.max(FARTHEST, now.scale * factor));
      const grown = scale / now.scale;
      return { scale, x: x - grown * (x - now.x), y: y - grown * (y - now.y) };
    });

  useLayoutEffect(() => {
    const element = box.current;
    const place = layout.places[chosen];
    if (!place) return fit();
    // The drawer takes room: center the chosen vertex at a readable size.
    const scale = Math.max(view?.scale ?? 0, READABLE);
    setView({ scale, x: element.clientWidth / 2 - scale * (place.x + WIDTH / 2), y: element.clientHeight / 2 - scale * (place.y + HEIGHT / 2) });
  }, [layout, chosen]);
  useEffect(() => {
    // Not as an attribute: only a listener that is not passive may keep the page from scrolling.
    const wheel = (event) => {
      event.preventDefault();
      const { left, top } = box.current.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 400), event.clientX - left, event.clientY - top);
    };
    const element = box.current;
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const drag = (event) => {
    if (event.button || event.target.closest("button")) return;
    const element = box.current;
    let { clientX, clientY } = event;
    const move = (next) => {
      const [dx, dy] = [next.clientX - clientX, next.clientY - clientY];
      [clientX, clientY] = [next.clientX, next.clientY];
      setView((now) => ({ ...now, x: now.x + dx, y: now.y + dy }));
    };
    const end = () => {
      element.classList.remove("dragging");
      element.removeEventListener("pointermove", move);
    };
    element.setPointerCapture(event.pointerId);
    element.classList.add("dragging");
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", end, { once: true });
    element.addEventListener("pointercancel", end, { once: true });
  };
  const onKey = (event) => {
    if (event.key === "+" || event.key === "=") zoom(1.25);
    if (event.key === "-") zoom(0.8);
    if (event.key === "0") fit();
  };

  // Keep the same element while nothing changes, so that moving and zooming render no vertex again.
  const drawing = useMemo(
    () => html`
      <svg class="edges" width=${layout.width} height=${layout.height} aria-hidden="true">
        ${edges.map((edge) => html`<${EdgeLine} key=${edge.id} id=${edge.id} line=${layout.routes[edge.id].line} />`)}
      </svg>
      ${vertices.map((vertex) => html`<${Node} key=${vertex.id} id=${vertex.id} place=${layout.places[vertex.id]} isChosen=${vertex.id === chosen} open=${open} />`)}
      ${edges.map((edge) => html`<${EdgeLabel} key=${edge.id} id=${edge.id} place=${layout.routes[edge.id].label} sample=${sample} />`)}`,
    [layout, chosen],
  );
  const style = view && { transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})`, width: `${layout.width}px`, height: `${layout.height}px` };
  return html`<div class="graph" ref=${box} onPointerDown=${drag} onKeyDown=${onKey} role="group" aria-label="Graph of the job">
    <div class="graph-tools">
      <button class="icon" aria-label="Zoom in" onClick=${() => zoom(1.25)}><${Icon} name="plus" /></button>
      <button class="icon" aria-label="Zoom out" onClick=${() => zoom(0.8)}><${Icon} name="minus" /></button>
      <button class="icon" aria-label="Show the whole graph" onClick=${fit}><${Icon} name="fit" /></button>
    </div>
    ${view && html`<div class="world ${view.scale < 0.45 ? "far" : ""}" style=${style}>
      ${drawing}
    </div>`}
    <div class="graph-key">
      <span class="key"><i class="busy"></i>busy</span>
      <span class="key"><i class="held"></i>held back</span>
      <span class="key"><i class="idle"></i>idle</span>
    </div>
  </div>`;
}
