// The last lines of the driver and of the slots.
import { html, useState } from "../core/html.js";
import { path } from "../core/api.js";
import { time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { Card, Empty, Loaded } from "../parts/basics.js";

const LEVELS = ["", "INFO", "WARNING", "ERROR"];

export function Logs() {
  return html`<${Card} title="Log" plain><div class="body stack"><${LogLines} /></div><//>`;
}

/** With `task`, only the lines of that vertex. */
export function LogLines({ task = "" }) {
  const [level, setLevel] = useState("");
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(200);
  const resource = useResource(path("/tidegate/logs", { level, search, task, limit }), { every: 3000 });
  return html`
    <div class="row wrap">
      <input class="grow" type="search" placeholder="Search" aria-label="Search the log" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />
      <select aria-label="Level" value=${level} onChange=${(event) => setLevel(event.currentTarget.value)}>
        ${LEVELS.map((each) => html`<option key=${each} value=${each}>${each ? `${each.toLowerCase()} and above` : "all levels"}</option>`)}
      </select>
    </div>
    <${Loaded} resource=${resource} lines=${8}>${({ lines, more }) =>
      lines.length
        ? html`<div class="log" tabindex="0" role="log" aria-label="Lines of the log, newest first">
            ${lines.map((line) => html`<div key=${line.id} class=${line.level}><span class="when">${time(line.time)} ${line.level.padEnd(7)} ${line.task ?? line.logger} </span>${line.message}</div>`)}
            ${more && limit < 2000 && html`<div><button onClick=${() => setLimit(limit + 400)}>Older lines</button></div>`}
          </div>`
        : html`<${Empty} title="No lines">${search || level || task ? "Nothing matches." : "Nothing has been logged yet."}<//>`}<//>`;
}
