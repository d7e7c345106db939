// Buttons for what can be done, and the dialog that asks once, shows progress, and the result.
import { html, useEffect, useRef, useState } from "../core/html.js";
import { get, isTokenWanted, request } from "../core/api.js";
import { session } from "../core/session.js";
import { jobs } from "../core/live.js";
import { ACTIONS, failure, restart } from "./action_list.js";
import { Command, Copy, Problem } from "./basics.js";

const AGAIN = 300;

export function ActionButtons({ job, jid }) {
  const [action, setAction] = useState(null);
  if (!session.value["may-act"]) {
    return session.value["read-only"]
      ? html`<span class="badge plain">read-only</span>`
      : html`<button onClick=${() => (isTokenWanted.value = true)}>Log in to act</button>`;
  }
  if (!job) return null;
  const isEnded = job["end-time"] > 0;
  const entry = jobs.value?.find((each) => each.jid === jid);
  return html`<div class="row wrap actions">
    ${isEnded
      ? html`<button onClick=${() => setAction(restart(entry ?? job, "latest"))}>Start again</button>`
      : ACTIONS.map((each) => html`<button key=${each.id} class=${each.isDangerous ? "danger" : ""} disabled=${!each.needs.includes(job.state)} onClick=${() => setAction(each)}>${each.label}</button>`)}
    ${action && html`<${ActionDialog} action=${action} job=${job} close=${() => setAction(null)} />`}
  </div>`;
}

/** `done` is called when the action has succeeded. */
export function ActionDialog({ action, job, close, done }) {
  const dialog = useRef(null);
  const [form, setForm] = useState(() => Object.fromEntries((action.fields ?? []).map((field) => [field.name, field.initial?.(job) ?? ""])));
  const [step, setStep] = useState({ name: "ask" });
  useEffect(() => dialog.current.showModal(), []);

  const run = async (event) => {
    event.preventDefault();
    setStep({ name: "wait" });
    try {
      const [method, path, body] = action.call(job, form);
      const answer = await request(method, path, body);
      const operation = action.outcome ? await outcome(action.outcome(job, answer["request-id"]), (progress) => setStep({ name: "wait", progress })) : {};
      const cause = failure(operation);
      setStep(cause ? { name: "failed", cause } : { name: "done", operation });
      if (!cause) done?.();
    } catch (error) {
      setStep({ name: "failed", cause: error.message });
    }
  };

  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="action-title">
    <form method="dialog" onSubmit=${step.name === "ask" ? run : undefined}>
      <h2 id="action-title">${action.title}</h2>
      ${step.name === "ask" && html`<p class="soft break">${action.text}</p>
        ${(action.fields ?? []).map((field) => html`<${Field} key=${field.name} field=${field} value=${form[field.name]} set=${(value) => setForm({ ...form, [field.name]: value })} />`)}`}
      ${step.name === "wait" && html`<${Progress} of=${step.progress} />`}
      ${step.name === "done" && html`<${Result} text=${action.result(step.operation, form)} operation=${step.operation} />`}
      ${step.name === "failed" && html`<${Problem} error=${step.cause} />`}
      <div class="stack tight"><span class="small soft">The same on the command line</span><${Command} text=${action.command(job, form)} /></div>
      <div class="buttons">
        ${step.name === "ask"
          ? html`<button type="button" onClick=${() => dialog.current.close()}>Back</button>
              <button class="primary ${action.isDangerous ? "danger" : ""}">${action.label}</button>`
          : html`<button>${step.name === "wait" ? "Close, and let it run" : "Close"}</button>`}
      </div>
    </form>
  </dialog>`;
}

/** Poll until the operation is complete; returns its outcome. */
async function outcome(path, report) {
  for (;;) {
    const { status, progress, operation } = await get(path);
    if (status.id === "COMPLETED") return operation ?? {};
    report(progress);
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

function Field({ field, value, set }) {
  if (field.type === "checkbox") {
    return html`<label class="check"><input type="checkbox" checked=${Boolean(value)} onChange=${(event) => set(event.currentTarget.checked)} />${field.label}</label>`;
  }
  const { label, type = "text", min, required, placeholder } = field;
  return html`<label class="field">${label}<input ...${{ type, min, required, placeholder, value }} onInput=${(event) => set(event.currentTarget.value)} /></label>`;
}

function Progress({ of }) {
  const share = of?.subtasks ? of.acknowledged / of.subtasks : null;
  return html`<div class="stack tight" role="status">
    <span>${share === null ? "In progress …" : `${of.acknowledged} of ${of.subtasks} subtasks have acknowledged`}</span>
    <div class="progress ${share === null ? "waiting" : ""}"><i style=${share === null ? {} : { width: `${100 * share}%` }}></i></div>
  </div>`;
}

function Result({ text, operation }) {
  const path = operation.location ?? operation["external-path"];
  return html`<div class="stack tight" role="status">
    <strong class="good">${text}</strong>
    ${path && html`<div class="row"><code class="grow break">${path}</code><${Copy} text=${path} label="Copy the path" /></div>`}
    ${operation.url && html`<a href=${operation.url}>Open its dashboard</a>`}
  </div>`;
}
