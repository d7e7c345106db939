// The keys and values of one state, found by a part of the key.
import { html, useState } from "../../core/html.js";
import { path as pathOf } from "../../core/api.js";
import { narrow, route } from "../../core/router.js";
import { useResource } from "../../core/resource.js";
import { Card, Empty, Loaded } from "../../parts/basics.js";
import { Table } from "../../parts/table.js";

const PAGE = 100;

export function Entries({ path, operator, state }) {
  const [offset, setOffset] = useState(0);
  const [trust, setTrust] = useState(false);
  const search = route.value.query.get("search") ?? "";
  const resource = useResource(pathOf("/tidegate/state/entries", { path, operator, state, search, offset, limit: PAGE, trust: trust || null }));
  const find = (event) => {
    setOffset(0);
    narrow({ search: event.currentTarget.value });
  };
  const tools = html`<input type="search" placeholder="Search a key" aria-label="Search a key" value=${search} onInput=${find} />`;
  if (resource.error?.status === 403 && !trust) {
    return html`<${Card} title=${state}><${Empty} title="These values are pickled objects of your own classes">
      <p>Loading them can run any code. Do so only if you trust the files.</p><button onClick=${() => setTrust(true)}>I trust them: load</button><//><//>`;
  }
  return html`<${Card} title=${state} tools=${tools} plain><${Loaded} resource=${resource}>${({ columns, entries, more }) => html`
    ${entries.length
      ? html`<${Table} name="Entries of ${state}" columns=${columns.map((label, n) => ({ id: label, label, value: (row) => row.values[n], show: (row) => html`<code title=${row.values[n]}>${row.values[n]}</code>`, wide: n === columns.length - 1 }))}
          rows=${entries.map((values, n) => ({ n, values }))} rowKey=${(row) => row.n} />`
      : html`<${Empty} title=${search ? "No key contains this" : "Empty"} />`}
    ${(offset > 0 || more) && html`<div class="row pages">
      <button disabled=${offset === 0} onClick=${() => setOffset(Math.max(0, offset - PAGE))}>Back</button>
      <span class="small soft">from ${offset + 1}</span>
      <button disabled=${!more} onClick=${() => setOffset(offset + PAGE)}>Next</button>
    </div>`}`}<//><//>`;
}
