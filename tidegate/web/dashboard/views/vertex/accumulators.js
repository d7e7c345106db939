// The accumulators of a vertex.
import { html } from "../../core/html.js";
import { useResource } from "../../core/resource.js";
import { Empty, Loaded, Pairs } from "../../parts/basics.js";

export function Accumulators({ jid, vertex }) {
  const resource = useResource(`/jobs/${jid}/vertices/${vertex.id}/accumulators`, { every: 3000 });
  return html`<${Loaded} resource=${resource}>${(data) => {
    const found = data["user-accumulators"] ?? [];
    if (!found.length) return html`<${Empty} title="No accumulators">A function adds one with <code>runtime_context.add_accumulator</code>.<//>`;
    return html`<${Pairs} items=${found.map(({ name, value }) => [name, value])} />`;
  }}<//>`;
}
