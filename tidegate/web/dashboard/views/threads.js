// What every thread of the driver, or of a slot, is doing.
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { Card, Empty, Loaded } from "../parts/basics.js";

export function Threads({ jid }) {
  const slots = useResource("/taskmanagers");
  const [chosen, setChosen] = useState("driver");
  const [search, setSearch] = useState("");
  const dump = useResource(chosen === "driver" ? "/jobmanager/thread-dump" : `/taskmanagers/${chosen}/thread-dump`);
  const ids = (slots.data?.taskmanagers ?? []).map(({ id }) => id).filter((id) => id.startsWith(jid));
  return html`
    <div class="row wrap">
      <select aria-label="Process" value=${chosen} onChange=${(event) => setChosen(event.currentTarget.value)}>
        <option value="driver">Driver</option>
        ${ids.map((id) => html`<option key=${id} value=${id}>${id.replace(`${jid}-`, "").replace("-", " ")}</option>`)}
      </select>
      <input class="grow" type="search" placeholder="Search threads" aria-label="Search threads" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />
      <button onClick=${dump.refresh}>Take again</button>
    </div>
    <${Loaded} resource=${dump} lines=${8}>${({ threadInfos }) => {
      const found = threadInfos.filter((info) => info.stringifiedThreadInfo.toLowerCase().includes(search.toLowerCase()));
      if (!found.length) return html`<${Card}><${Empty} title="No thread matches" /><//>`;
      return html`<${Card} title="${found.length} threads"><div class="stack">${found.map((info, n) => html`<details key=${n} open=${found.length < 4}>
        <summary class="mono">${info.threadName}</summary><pre class="trace" tabindex="0">${info.stringifiedThreadInfo}</pre></details>`)}</div><//>`;
    }}<//>`;
}
