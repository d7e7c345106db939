// The records that the operators of a vertex have skipped.
import { html } from "../../core/html.js";
import { useResource } from "../../core/resource.js";
import { Loaded } from "../../parts/basics.js";
import { DeadLetters } from "../dead_letters.js";

export function VertexLetters({ jid, vertex }) {
  const resource = useResource(`/jobs/${jid}/vertices/${vertex.id}`);
  return html`<${Loaded} resource=${resource}>${({ tidegate }) => {
    const names = new Set(tidegate.operators.map(({ name, uid }) => uid ?? name));
    return html`<${DeadLetters} jid=${jid} own=${({ operator, uid }) => names.has(uid ?? operator)} />`;
  }}<//>`;
}
