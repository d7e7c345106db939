// What the operators of a vertex keep: their states in the last checkpoint.
import { html } from "../../core/html.js";
import { bytes, count } from "../../core/format.js";
import { link } from "../../core/router.js";
import { useResource } from "../../core/resource.js";
import { live } from "../../core/live.js";
import { path } from "../../core/api.js";
import { Empty, Loaded } from "../../parts/basics.js";

export function VertexState({ jid, vertex }) {
  const operators = useResource(`/jobs/${jid}/vertices/${vertex.id}`);
  return html`<${Loaded} resource=${operators}>${(data) => html`<${InCheckpoint} jid=${jid} own=${data.tidegate?.operators ?? []} />`}<//>`;
}

function InCheckpoint({ jid, own }) {
  const last = live.value?.checkpoints?.last;
  const stored = last?.path?.startsWith("/") || last?.path?.includes(":") ? last.path : null;
  const resource = useResource(stored && path("/tidegate/state", { path: stored }));
  if (!stored) return html`<${Empty} title="No checkpoint in files yet">States are listed from the last checkpoint that is stored in a directory.<//>`;
  return html`<${Loaded} resource=${resource}>${(state) => {
    const ids = new Set(own.flatMap((operator) => [operator.id, operator.uid]));
    const found = state.operators.filter((operator) => (ids.has(operator.uid) || ids.has(operator.id)) && operator.states.length);
    if (!found.length) return html`<${Empty} title="No state">The operators of this vertex keep none.<//>`;
    return html`<p class="small soft">In checkpoint ${last.id}, ${stored}</p>
      ${found.map((operator) => html`<div class="stack" key=${operator.id}>
        <h3>${operator.name ?? operator.uid ?? operator.id}</h3>
        ${operator.states.map((each) => html`<a key=${each.name} class="row spread" href=${link(["jobs", jid, "state"], { path: stored, operator: operator.uid ?? operator.id, state: each.name })}>
          <span class="mono">${each.name}</span>
          <span class="small soft">${each.kind} · ${each.type} · ${count(each.entries)} entries · ${bytes(each.size)}</span>
        </a>`)}
      </div>`)}`;
  }}<//>`;
}
