// How a savepoint's state fits a program: `tidegate plan`.
import { html, useEffect, useState } from "../../core/html.js";
import { request } from "../../core/api.js";
import { bytes } from "../../core/format.js";
import { narrow } from "../../core/router.js";
import { Badge, Card, Command, Empty, Loaded, Problem } from "../../parts/basics.js";

/** In place of the id of a job whose program is known. */
export const ANY_PROGRAM = "any";

const TONES = { restored: "good", added: "info", new: "info", dropped: "bad", blocked: "bad" };

export function Plan({ savepoint, jid }) {
  const [state, setState] = useState({});
  const check = async (program) => {
    setState({ isWaiting: true });
    try {
      setState({ plan: await request("POST", "/tidegate/plan", { savepoint, jid: program ? null : (jid ?? null), program: program || null, arguments: [] }) });
    } catch (error) {
      setState({ error });
    }
  };
  useEffect(() => void (jid && check("")), [savepoint, jid]);
  const submit = (event) => {
    event.preventDefault();
    check(new FormData(event.currentTarget).get("program").trim());
  };
  const { plan, error, isWaiting } = state;
  return html`
    <${Card} title="Plan" tools=${html`<button onClick=${() => narrow({ plan: null })}>Back</button>`}>
      <form class="stack" onSubmit=${submit}>
        <p class="soft">What happens to the state of this savepoint if a program starts from it. Nothing is run.</p>
        <code class="break">${savepoint}</code>
        <div class="row"><input class="grow" name="program" placeholder=${jid ? "The program of this job, or the path of another one" : "/path/to/job.py"} aria-label="Program" required=${!jid} /><button class="primary" disabled=${isWaiting}>Check</button></div>
        <${Command} text="tidegate plan ${savepoint} job.py" />
      </form>
    <//>
    ${error && html`<${Problem} error=${error} />`}
    ${isWaiting && html`<${Card}><${Loaded} resource=${{}} /><//>`}
    ${plan && html`<${Fates} plan=${plan} />`}`;
}

function Fates({ plan }) {
  return html`
    <div class=${plan.fits ? "note" : "problem"} role="status">${plan.fits ? "The program can resume from it." : "The program cannot resume from it."}
      ${plan["bytes-not-restored"] > 0 && ` ${bytes(plan["bytes-not-restored"])} would not be restored.`}
      ${plan.obstacles.map((text) => html`<div key=${text}>${text}</div>`)}</div>
    ${plan.operators.length === 0 && html`<${Card}><${Empty} title="No operator has state" /><//>`}
    ${plan.operators.map((operator) => html`<${Card} key=${operator.id ?? operator.uid} title=${operator.name ?? operator.uid ?? operator.id}
        tools=${html`<${Badge} tone=${TONES[operator.fate]}>${operator.fate}<//><span class="small soft">${bytes(operator.bytes)}</span>`}>
      <div class="stack tight">
        ${operator.states.map((state) => html`<div class="row wrap" key=${state.name}><span class="mono grow">${state.name}</span><${Badge} tone=${TONES[state.fate]}>${state.fate}<//>
          <span class="small soft break">${state.stored === state.declared || !state.declared ? state.stored : `${state.stored ?? "nothing"} → ${state.declared}`}</span></div>`)}
        ${operator.obstacles.map((text) => html`<p class="bad" key=${text}>${text}</p>`)}
        ${operator.remarks.map((text) => html`<p class="soft" key=${text}>${text}</p>`)}
        ${!operator.states.length && !operator.remarks.length && !operator.obstacles.length && html`<span class="soft small">No state.</span>`}
      </div>
    <//>`)}`;
}
