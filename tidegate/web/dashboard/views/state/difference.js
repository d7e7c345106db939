// What has changed between two savepoints.
import { html, useState } from "../../core/html.js";
import { path } from "../../core/api.js";
import { count } from "../../core/format.js";
import { narrow } from "../../core/router.js";
import { useResource } from "../../core/resource.js";
import { Badge, Card, Empty, Loaded } from "../../parts/basics.js";

export function Difference({ before, after }) {
  const [trust, setTrust] = useState(false);
  const resource = useResource(path("/tidegate/state/difference", { before, after, trust: trust || null }));
  const back = html`<button onClick=${() => narrow({ after: null })}>Back</button>`;
  const needsTrust = resource.error?.status === 403 && !trust;
  return html`
    <${Card} title="Difference" tools=${back}><div class="stack tight">
      <span class="small soft">from</span><code class="break">${before}</code><span class="small soft">to</span><code class="break">${after}</code>
      ${needsTrust && html`<p class="small">Some values are pickled objects of your own classes; loading them can run any code. <button onClick=${() => setTrust(true)}>I trust them: load</button></p>`}
    </div><//>
    ${!needsTrust && html`<${Loaded} resource=${resource}>${(found) => html`<${Changes} found=${found} />`}<//>`}`;
}

function Changes({ found }) {
  const added = found["operators-added"];
  const removed = found["operators-removed"];
  const changed = found.operators.filter((operator) => operator.states.length || operator["states-added"].length || operator["states-removed"].length);
  if (!added.length && !removed.length && !changed.length) return html`<${Card}><${Empty} title="No difference" /><//>`;
  return html`
    ${(added.length > 0 || removed.length > 0) && html`<${Card} title="Operators"><div class="row wrap">
      ${added.map((name) => html`<${Badge} key=${name} tone="good">+ ${name}<//>`)}${removed.map((name) => html`<${Badge} key=${name} tone="bad">− ${name}<//>`)}
    </div><//>`}
    ${changed.map((operator) => html`<${Card} key=${operator.label} title=${operator.label}><div class="stack">
      ${operator["states-added"].map((name) => html`<span key=${name}><${Badge} tone="good">+ ${name}<//></span>`)}
      ${operator["states-removed"].map((name) => html`<span key=${name}><${Badge} tone="bad">− ${name}<//></span>`)}
      ${operator.states.map((state) => html`<div class="stack tight" key=${state.name}>
        <div class="row wrap"><span class="mono grow">${state.name}</span>
          <${Badge} tone=${state.added ? "good" : null}>${count(state.added)} added<//><${Badge} tone=${state.removed ? "bad" : null}>${count(state.removed)} removed<//>
          <${Badge} tone=${state.changed ? "warn" : null}>${count(state.changed)} changed<//><${Badge}>${count(state.same)} the same<//></div>
        ${state["type-before"] !== state["type-after"] && html`<span class="small warn">type: ${state["type-before"]} → ${state["type-after"]}</span>`}
        ${state.examples?.length > 0 && html`<pre class="trace" tabindex="0">${state.examples.join("\n")}</pre>`}
      </div>`)}
    </div><//>`)}`;
}
