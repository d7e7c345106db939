// A few records that pass along an edge right now.
import { html, useEffect, useState } from "../core/html.js";
import { request } from "../core/api.js";
import { time } from "../core/format.js";
import { useJob } from "../core/job.js";
import { narrow, route } from "../core/router.js";
import { Card, Empty, Loaded, Problem } from "../parts/basics.js";

const KEPT = 100;
const PAUSE = 1000; // An edge can be looked at once a second.

export function Sample({ jid }) {
  const job = useJob(jid);
  const [state, setState] = useState({ records: [] });
  const [follows, setFollows] = useState(false);
  useEffect(() => {
    if (!job || !follows || state.isWaiting || state.error) return;
    const timer = setTimeout(take, PAUSE);
    return () => clearTimeout(timer);
  }, [Boolean(job), follows, state]);
  if (!job) return html`<${Loaded} resource=${{}} />`;
  const name = (id) => job.vertices.find((vertex) => vertex.id === id)?.name ?? id;
  const edge = job.edges.find((each) => String(each.id) === route.value.query.get("edge")) ?? job.edges[0];
  if (!edge) return html`<${Card}><${Empty} title="No edge to look at">The job is one chain of operators: no records move between vertices.<//><//>`;
  const choose = (event) => {
    narrow({ edge: event.currentTarget.value });
    setState({ records: [] });
  };
  async function take() {
    setState((now) => ({ ...now, isWaiting: true, error: null }));
    try {
      const { records } = await request("POST", `/tidegate/jobs/${jid}/edges/${edge.id}/sample`, { records: 10, seconds: 2 });
      setState((now) => ({ hasAsked: true, records: [...records, ...now.records].slice(0, KEPT) }));
    } catch (error) {
      setState((now) => ({ records: now.records, error }));
    }
  }
  return html`
    <div class="row wrap">
      <label class="row grow"><span class="soft small">Edge</span>
        <select class="grow" value=${String(edge.id)} onChange=${choose}>
          ${job.edges.map((each) => html`<option key=${each.id} value=${String(each.id)}>${name(each.source)} → ${name(each.target)}${each["side-output"] ? ` (${each["side-output"]})` : ""}</option>`)}
        </select>
      </label>
      <button class="primary" disabled=${state.isWaiting} onClick=${take}>${state.isWaiting ? "Waiting for records …" : "Sample 10 records"}</button>
      <label class="check"><input type="checkbox" checked=${follows} onChange=${(event) => setFollows(event.currentTarget.checked)} />Keep sampling</label>
    </div>
    ${state.error && html`<${Problem} error=${state.error} />`}
    <${Card} title="Records" plain>
      ${state.records.length
        ? html`<div class="records">${state.records.map((each, n) => html`<code key=${n}><span class="soft">${each.subtask}${each.timestamp ? `  ${time(each.timestamp)}` : ""}  </span>${each.record}</code>`)}</div>`
        : html`<${Empty} title=${state.hasAsked ? "Nothing came along within two seconds" : "No sample yet"}>A sample copies the next few records of the edge, at most ten a second. The job is not slowed down.<//>`}
    <//>`;
}
