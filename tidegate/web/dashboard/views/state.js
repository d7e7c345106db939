// The contents of savepoints and checkpoints: operators, their states, keys and values.
import { html } from "../core/html.js";
import { path } from "../core/api.js";
import { bytes, time } from "../core/format.js";
import { narrow, route } from "../core/router.js";
import { useResource } from "../core/resource.js";
import { Badge, Card, Empty, Loaded } from "../parts/basics.js";
import { Difference } from "./state/difference.js";
import { Inside } from "./state/inside.js";
import { ANY_PROGRAM, Plan } from "./state/plan.js";

export const JobState = ({ jid }) => html`<${Browser} jid=${jid} />`;
export const Savepoints = () => html`<${Browser} />`;

function Browser({ jid }) {
  const { query } = route.value;
  const directory = query.get("directory");
  const resource = useResource(path("/tidegate/savepoints", { job: jid, directory }), { every: 10000 });
  const look = (event) => {
    event.preventDefault();
    narrow({ directory: new FormData(event.currentTarget).get("directory").trim(), path: null });
  };
  return html`<div class="split">
    <${Card} title="Savepoints and checkpoints" plain>
      <form class="row look" onSubmit=${look}>
        <input class="grow" name="directory" defaultValue=${directory ?? ""} placeholder="Another directory" aria-label="Directory to look into" />
        <button>Look</button>
      </form>
      <${Loaded} resource=${resource}>${({ savepoints }) => html`<${List} savepoints=${savepoints} />`}<//>
    <//>
    <div class="stack"><${Chosen} jid=${jid} refresh=${resource.refresh} savepoints=${resource.data?.savepoints ?? []} /></div>
  </div>`;
}

function List({ savepoints }) {
  const chosen = route.value.query.get("path");
  if (!savepoints.length) return html`<${Empty} title="Nothing stored yet">Take a savepoint, or let the job store its checkpoints in a directory.<//>`;
  return html`<div class="list">${savepoints.map((each) => html`<button key=${each.path} aria-current=${each.path === chosen} title=${each.path}
      onClick=${() => narrow({ path: each.path, operator: null, state: null, after: null, plan: null })}>
    <span class="row spread"><strong class="clip">${each.kind === "savepoint" ? "Savepoint" : "Checkpoint"} ${each.id ?? ""}</strong><span class="small soft">${bytes(each.size)}</span></span>
    <span class="row spread small soft"><span class="clip">${each.job ?? each.path.split("/").at(-1)}</span><span>${time(each.completed)}</span></span>
    ${each.problem && html`<${Badge} tone="bad">${each.problem}<//>`}
  </button>`)}</div>`;
}

function Chosen({ jid, refresh, savepoints }) {
  const { query } = route.value;
  const chosen = query.get("path");
  if (!chosen) return html`<${Card}><${Empty} title="Choose a savepoint or checkpoint">Then look up a key, compare it with another one, or check whether a program can resume from it.<//><//>`;
  if (query.get("after")) return html`<${Difference} before=${chosen} after=${query.get("after")} />`;
  const plan = query.get("plan");
  if (plan) return html`<${Plan} savepoint=${chosen} jid=${plan === ANY_PROGRAM ? null : plan} />`;
  return html`<${Inside} key=${chosen} path=${chosen} jid=${jid} refresh=${refresh} savepoints=${savepoints} />`;
}
