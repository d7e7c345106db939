// Details of one vertex, next to the graph.
import { html, useEffect, useRef } from "../../core/html.js";
import { percent } from "../../core/format.js";
import { isArchived } from "../../core/job.js";
import { go } from "../../core/router.js";
import { mustLogIn } from "../../core/session.js";
import { Login } from "../../parts/login.js";
import { Load, State, Tabs } from "../../parts/basics.js";
import { Icon } from "../../parts/icons.js";
import { Accumulators } from "./accumulators.js";
import { Flames } from "./flames.js";
import { Metrics } from "./metrics.js";
import { Subtasks } from "./subtasks.js";
import { VertexLetters } from "./vertex_letters.js";
import { VertexLogs } from "./vertex_logs.js";
import { VertexState } from "./vertex_state.js";

const TABS = [
  ["subtasks", "Subtasks", Subtasks],
  ["metrics", "Metrics", Metrics],
  ["state", "State", VertexState, "private"],
  ["letters", "Skipped", VertexLetters, "private"],
  ["logs", "Logs", VertexLogs, "private"],
  ["flames", "Flames", Flames, "private"],
  ["accumulators", "Accumulators", Accumulators],
];

export function Drawer({ jid, vertex, tab = "subtasks", close }) {
  const box = useRef(null);
  useEffect(() => box.current.scrollIntoView({ block: "nearest" }), []); // On a phone it is below the graph.
  useEffect(() => {
    const onKey = (event) => event.key === "Escape" && !document.querySelector("dialog[open]") && close();
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [close]);
  const tabs = isArchived.value ? TABS.slice(0, 1) : TABS;
  const [, , found, isPrivate] = tabs.find(([id]) => id === tab) ?? TABS[0];
  const view = isPrivate && mustLogIn.value ? Login : found;
  return html`<aside class="card drawer" ref=${box} aria-label=${vertex.name}>
    <header>
      <h2 class="clip" title=${vertex.name}>${vertex.name.replaceAll(" -> ", " → ")}</h2>
      <${State} of=${vertex.status} />
      <button class="quiet icon" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>
    </header>
    ${typeof vertex.busy === "number" && html`<div class="drawer-load">
      <${Load} busy=${vertex.busy} held=${vertex["back-pressured"]} />
      <span class="small soft">busy ${percent(vertex.busy)} · held back ${percent(vertex["back-pressured"])} · idle ${percent(vertex.idle)} · busiest subtask ${percent(vertex["busy-max"])}</span>
    </div>`}
    <${Tabs} label="About this vertex" items=${tabs} chosen=${tab} choose=${(id) => go(["jobs", jid, "graph", vertex.id, id])} />
    <div class="scroll"><${view} jid=${jid} vertex=${vertex} /></div>
  </aside>`;
}
