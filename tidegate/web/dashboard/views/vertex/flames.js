// Where a subtask spends its time, sampled on demand.
import { html, useMemo, useState } from "../../core/html.js";
import { get, path } from "../../core/api.js";
import { percent } from "../../core/format.js";
import { Empty, Problem } from "../../parts/basics.js";

const LINE = 21;
const THINNEST = 0.002;

export function Flames({ jid, vertex }) {
  const [subtask, setSubtask] = useState(0);
  const [state, setState] = useState({});
  const sample = async () => {
    setState({ isWaiting: true });
    try {
      setState({ graph: await get(path(`/jobs/${jid}/vertices/${vertex.id}/flamegraph`, { type: "on_cpu", subtaskindex: subtask, seconds: 3 })) });
    } catch (error) {
      setState({ error });
    }
  };
  const { graph, error, isWaiting } = state;
  return html`
    <div class="row wrap">
      <label class="row small soft">Subtask
        <select value=${subtask} onChange=${(event) => setSubtask(Number(event.currentTarget.value))}>
          ${Array.from({ length: vertex.parallelism }, (_, n) => html`<option key=${n} value=${n}>${n}</option>`)}
        </select>
      </label>
      <button class="primary" disabled=${isWaiting} onClick=${sample}>${isWaiting ? "Sampling for 3 s …" : "Sample"}</button>
    </div>
    ${error && html`<${Problem} error=${error} />`}
    ${graph?.tidegate?.note && html`<p class="note small">${graph.tidegate.note}</p>`}
    ${graph?.data?.children?.length
      ? html`<${FlameGraph} root=${graph.data} />`
      : html`<${Empty} title=${graph ? "Nothing ran" : "No sample yet"}>${graph ? "The subtask was idle for the whole time." : "The slot of the subtask is sampled for three seconds; the job keeps running."}<//>`}`;
}

function FlameGraph({ root }) {
  const [zoomed, setZoomed] = useState(root);
  const { boxes, depth } = useMemo(() => boxesOf(zoomed, root), [zoomed]);
  return html`
    <div class="row spread"><span class="small soft">A box is a function, its width its share of the time; yours are tinted. Click to zoom.</span>
      <button class="quiet" disabled=${zoomed === root} onClick=${() => setZoomed(root)}>Whole graph</button></div>
    <div class="flames" style=${{ height: `${depth * LINE + 2}px` }}>
      ${boxes.map((box) => html`<button key=${box.key} class=${box.isOwn ? "own" : ""}
        style=${{ left: `${100 * box.left}%`, width: `${100 * box.width}%`, top: `${box.level * LINE}px` }}
        title="${box.node.name}: ${percent(box.node.value / root.value)}" onClick=${() => setZoomed(box.node)}>${box.node.name}</button>`)}
    </div>`;
}

/** The visible boxes, as shares of the width; those too thin to see are skipped. */
function boxesOf(root, whole) {
  const boxes = [];
  let depth = 0;
  // Your functions and what they call: everything that Tidegate calls, except its own code.
  const add = (node, left, width, level, key, isBelow) => {
    if (width < THINNEST) return;
    const isOurs = /\(tidegate\//.test(node.name);
    boxes.push({ node, left, width, level, key, isOwn: isBelow && !isOurs });
    depth = Math.max(depth, level + 1);
    let at = left;
    (node.children ?? []).forEach((child, n) => {
      const share = (width * child.value) / node.value;
      add(child, at, share, level + 1, `${key}.${n}`, isBelow || isOurs);
      at += share;
    });
  };
  add(root, 0, 1, 0, "0", root !== whole);
  return { boxes, depth };
}
