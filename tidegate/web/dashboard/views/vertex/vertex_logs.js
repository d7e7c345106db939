// What the subtasks of a vertex have logged.
import { html } from "../../core/html.js";
import { LogLines } from "../logs.js";

export function VertexLogs({ vertex }) {
  return html`<${LogLines} task=${vertex.name} />`;
}
