// How the job is set up: settings that differ from the defaults, sinks, versions.
import { html, useState } from "../core/html.js";
import { useJob } from "../core/job.js";
import { useResource } from "../core/resource.js";
import { session } from "../core/session.js";
import { Badge, Card, Empty, Loaded, Pairs } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { id: "key", label: "Name", value: (row) => row.key, show: (row) => html`<code>${row.key}</code>` },
  { id: "value", label: "Value", wide: true, value: (row) => row.value, show: (row) => html`<code title=${row.value}>${row.value}</code>` },
];

export function Configuration({ jid }) {
  const job = useJob(jid);
  const config = useResource(`/jobs/${jid}/config`);
  const environment = useResource("/jobmanager/environment");
  const { version, pid, host } = session.value ?? {};
  return html`
    <div class="cards narrow">
      <${Card} title="Job"><${Loaded} resource=${config}>${(data) => html`<${Pairs} items=${[
        ["Name", data.name],
        ["Id", html`<code class="break">${data.jid}</code>`],
        ["Parallelism", data["execution-config"]["job-parallelism"]],
        ["Restarts", data["execution-config"]["restart-strategy"]],
        ["Object reuse", data["execution-config"]["object-reuse-mode"] ? "yes" : "no"],
      ]} />`}<//><//>
      <${Card} title="Sinks">${job?.guarantees?.length
        ? html`<div class="stack">${job.guarantees.map((each) => html`<div key=${each.sink} class="stack tight"><div class="row spread"><strong class="break">${each.sink}</strong><${Badge} tone=${each.guarantee === "exactly-once" ? "good" : null}>${each.guarantee}<//></div><span class="soft small">${each.why}</span></div>`)}</div>`
        : html`<${Empty} title="No sink is known" />`}<//>
      <${Card} title="Driver"><${Loaded} resource=${environment}>${({ jvm }) => html`<${Pairs} items=${[
        ["Tidegate", version], ["Python", jvm.version], ["Process", pid], ["Host", `${host}, ${jvm.arch}`],
      ]} />`}<//><//>
    </div>
    <${Settings} title="Settings that differ from the defaults" resource=${config} pairs=${(data) => Object.entries(data["execution-config"]["user-config"])} />
    <${Settings} title="Packages" resource=${environment} pairs=${(data) => Object.entries(data.packages ?? {}).sort()} />`;
}

function Settings({ title, resource, pairs }) {
  const [search, setSearch] = useState("");
  const tools = html`<input type="search" placeholder="Search" aria-label="Search ${title.toLowerCase()}" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />`;
  return html`<${Card} title=${title} tools=${tools} plain><${Loaded} resource=${resource}>${(data) => {
    const rows = pairs(data).map(([key, value]) => ({ key, value })).filter(({ key, value }) => `${key} ${value}`.toLowerCase().includes(search.toLowerCase()));
    return rows.length
      ? html`<${Table} name=${title} columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.key} />`
      : html`<${Empty} title="Nothing here">${search ? "Nothing matches." : "All settings have their default values."}<//>`;
  }}<//><//>`;
}
