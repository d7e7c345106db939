// How the job is set up: settings that differ from the defaults, sinks, versions, environment.
import { html, useState } from "../core/html.js";
import { useJob } from "../core/job.js";
import { useResource } from "../core/resource.js";
import { session } from "../core/session.js";
import { Badge, Card, Empty, Loaded, Pairs } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { id: "key", label: "Setting", value: (row) => row.key, show: (row) => html`<code>${row.key}</code>` },
  { id: "value", label: "Value", wide: true, value: (row) => row.value, show: (row) => html`<code title=${row.value}>${row.value}</code>` },
];

export function Configuration({ jid }) {
  const job = useJob(jid);
  const config = useResource(`/jobs/${jid}/config`);
  const driver = useResource("/jobmanager/config");
  const environment = useResource("/jobmanager/environment");
  const { version, pid, host, server } = session.value ?? {};
  return html`
    <div class="cards narrow">
      <${Card} title="Job"><${Loaded} resource=${config}>${(data) => html`<${Pairs} items=${[
        ["Name", data.name],
        ["Id", html`<code class="break">${data.jid}</code>`],
        ["Parallelism", data["execution-config"]["job-parallelism"]],
        ["Restart strategy", data["execution-config"]["restart-strategy"]],
        ["Object reuse", data["execution-config"]["object-reuse-mode"] ? "yes" : "no"],
      ]} />`}<//><//>
      <${Card} title="Sinks">${job?.guarantees?.length
        ? html`<div class="stack">${job.guarantees.map((each) => html`<div key=${each.sink} class="stack tight"><div class="row spread"><strong class="break">${each.sink}</strong><${Badge} tone=${each.guarantee === "exactly-once" ? "good" : null}>${each.guarantee}<//></div><span class="soft small">${each.why}</span></div>`)}</div>`
        : html`<${Empty} title="No sink is known" />`}<//>
      <${Card} title="Driver"><${Pairs} items=${[["Tidegate", version], ["Process", pid], ["Host", host], ["Serves", server === "registry" ? "the jobs of this machine" : "its own jobs"]]} /><//>
    </div>
    <${Settings} title="Settings of the job" resource=${config} pairs=${(data) => Object.entries(data["execution-config"]["user-config"]).map(([key, value]) => ({ key, value }))} />
    <${Settings} title="Settings of the driver" resource=${driver} pairs=${(data) => data} />
    <${Card} title="Environment"><${Loaded} resource=${environment}>${(data) => html`<pre class="trace" tabindex="0">${JSON.stringify(data, null, 2)}</pre>`}<//><//>`;
}

function Settings({ title, resource, pairs }) {
  const [search, setSearch] = useState("");
  const tools = html`<input type="search" placeholder="Search" aria-label="Search ${title.toLowerCase()}" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />`;
  return html`<${Card} title=${title} tools=${tools} plain><${Loaded} resource=${resource}>${(data) => {
    const rows = pairs(data).filter(({ key, value }) => `${key} ${value}`.toLowerCase().includes(search.toLowerCase()));
    return rows.length
      ? html`<${Table} name=${title} columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.key} />`
      : html`<${Empty} title="Nothing here">${search ? "No setting matches." : "All settings have their default values."}<//>`;
  }}<//><//>`;
}
