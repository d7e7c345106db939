// Records that were skipped because a function failed on them.
import { html, useState } from "../core/html.js";
import { count, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { live } from "../core/live.js";
import { Card, Copy, Empty, Loaded, Pairs, Trace } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { id: "time", label: "Time", value: (row) => row.time, show: (row) => time(row.time) },
  { id: "operator", label: "Operator", value: (row) => row.operator },
  { id: "subtask", label: "Subtask", number: true, value: (row) => row.subtask },
  { id: "error", label: "Error", value: (row) => row.error, show: (row) => html`<span class="bad clip error">${row.error.replace(/^[\w.]*\./, "")}</span>` },
  { id: "record", label: "Record", wide: true, show: (row) => html`<code>${row.record}</code>` },
];

/** With `own`, only those of the operators for which it returns true. */
export function DeadLetters({ jid, own }) {
  const skipped = live.value?.vertices.reduce((sum, vertex) => sum + (vertex.skipped ?? 0), 0);
  const resource = useResource(`/tidegate/jobs/${jid}/dead-letters`, { every: 5000, changes: skipped });
  const [chosen, setChosen] = useState(null);
  return html`<${Loaded} resource=${resource}>${({ total, letters }) => {
    const rows = letters.filter((letter) => !own || own(letter)).map((letter, n) => ({ ...letter, key: `${letter.time} ${letter.operator} ${letter.subtask} ${letter.position ?? n}` }));
    const letter = rows.find((row) => row.key === chosen);
    if (!rows.length) {
      return html`<${Card}><${Empty} title="No dead letters">
        <p>A record on which a function fails makes the job fail, unless you allow it to be skipped:</p><code>env.on_poison_record(PoisonRecords.skip(after=3))</code><//><//>`;
    }
    return html`
      <div class=${letter ? "brief" : ""}><${Card} title="${own ? rows.length : count(total)} skipped${!own && total > rows.length ? `, the last ${rows.length} are kept` : ""}" plain>
        <${Table} name="Dead letters" columns=${COLUMNS} rows=${rows} rowKey=${(row) => row.key} chosen=${chosen} open=${(row) => setChosen(row.key === chosen ? null : row.key)} />
      <//></div>
      ${letter && html`<${Card} title=${letter.error}><div class="stack">
        <${Pairs} items=${[
          ["Operator", `${letter.operator}${letter.uid ? ` (${letter.uid})` : ""}`],
          ["Subtask", letter.subtask],
          ["Record", html`<code class="break">${letter.record}</code>`],
          ...(letter.raw ? [[`Raw (${letter["raw-format"]}, base64)`, html`<span class="row"><code class="clip grow">${letter.raw}</code><${Copy} text=${letter.raw} label="Copy the raw record" /></span>`]] : []),
        ]} />
        ${letter.traceback && html`<${Trace} text=${letter.traceback} />`}
      </div><//>`}`;
  }}<//>`;
}
