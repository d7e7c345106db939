// One savepoint or checkpoint: its operators and states, and what can be done with it.
import { html, useState } from "../../core/html.js";
import { path as pathOf } from "../../core/api.js";
import { bytes, count, time } from "../../core/format.js";
import { jobs, live } from "../../core/live.js";
import { narrow, route } from "../../core/router.js";
import { session } from "../../core/session.js";
import { useResource } from "../../core/resource.js";
import { dispose, restart } from "../../parts/action_list.js";
import { ActionDialog } from "../../parts/actions.js";
import { Card, Copy, Loaded, Pairs } from "../../parts/basics.js";
import { Entries } from "./entries.js";
import { ANY_PROGRAM } from "./plan.js";

export function Inside({ path, jid, refresh, savepoints }) {
  const resource = useResource(pathOf("/tidegate/state", { path }));
  const { query } = route.value;
  return html`<${Loaded} resource=${resource}>${(stored) => {
    const stateless = stored.operators.filter((each) => !each.states.length);
    const operator = stored.operators.find((each) => nameOf(each) === query.get("operator"));
    return html`
      <${Card} title="${stored.kind === "savepoint" ? "Savepoint" : "Checkpoint"} ${stored.id ?? ""} of ${stored.job ?? "a job"}"
          tools=${html`<${Tools} stored=${stored} jid=${jid} refresh=${refresh} savepoints=${savepoints} />`}>
        <div class="stack">
          <div class="row"><code class="grow break">${path}</code><${Copy} text=${path} label="Copy the path" /></div>
          <span class="small soft">${stored.completed ? `Completed ${time(stored.completed)} · ` : ""}${stored.operators.length} operators</span>
        </div>
      <//>
      ${stored.operators.filter((each) => each.states.length).map((each) => html`<${Operator} key=${each.id} operator=${each} chosen=${each === operator ? query.get("state") : null} />
        ${each === operator && query.get("state") && html`<${Entries} key=${query.get("state")} path=${path} operator=${nameOf(operator)} state=${query.get("state")} />`}`)}
      ${stateless.length > 0 && html`<p class="soft small">Without state: ${stateless.map((each) => each.name ?? nameOf(each)).join(", ")}.</p>`}
      ${stored["source-positions"]?.length > 0 && html`<${Card} title="Positions of sources"><${Pairs} items=${stored["source-positions"].map((each, n) => [`${each.uid ?? "source"} · ${each.subtask}`, html`<code class="break" key=${n}>${each.split}</code>`])} /><//>`}`;
  }}<//>`;
}

const nameOf = (operator) => operator.uid ?? operator.id;

function Operator({ operator, chosen }) {
  return html`<${Card} title=${operator.name ?? nameOf(operator)} tools=${html`<span class="small soft">${operator.uid ? `uid ${operator.uid} · ` : ""}parallelism ${operator.parallelism} · ${bytes(operator.size)}</span>`} plain>
    <div class="list">${operator.states.map((state) => html`<button key=${state.name} aria-current=${state.name === chosen} onClick=${() => narrow({ operator: nameOf(operator), state: state.name, search: null })}>
      <span class="row spread"><span class="mono">${state.name}</span><span class="small soft">${state.kind} · ${state.type} · ${count(state.entries)} entries · ${bytes(state.size)}</span></span>
    </button>`)}</div>
  <//>`;
}

function Tools({ stored, jid, refresh, savepoints }) {
  const [action, setAction] = useState(null);
  const [isDeleted, setDeleted] = useState(false);
  const others = savepoints.filter((each) => each.path !== stored.path);
  const mayAct = session.value?.["may-act"];
  const owner = jobs.value?.find((job) => job.jid === (jid ?? stored.jid));
  const hasEnded = owner && owner["end-time"] > 0;
  return html`<div class="row wrap">
    <select aria-label="Compare with" value="" onChange=${(event) => narrow({ after: event.currentTarget.value })}>
      <option value="">Compare with …</option>
      ${others.map((each) => html`<option key=${each.path} value=${each.path}>${each.kind} ${each.id ?? ""} ${time(each.completed)}</option>`)}
    </select>
    ${mayAct && html`<button onClick=${() => narrow({ plan: owner?.command ? owner.jid : ANY_PROGRAM })}>Plan</button>`}
    ${mayAct && hasEnded && html`<button onClick=${() => setAction(restart(owner, stored.path))}>Start from it</button>`}
    ${mayAct && (stored.kind === "savepoint" || hasEnded || !owner) && html`<button class="danger" onClick=${() => setAction(dispose(stored))}>Delete</button>`}
    ${action && html`<${ActionDialog} action=${action} job=${live.value ?? {}} close=${() => {
      setAction(null);
      if (isDeleted) narrow({ path: null, operator: null, state: null });
    }} done=${() => {
      if (action.id !== "dispose") return;
      setDeleted(true);
      refresh();
    }} />`}
  </div>`;
}
