// Small components shared by all views.
import { html, useState } from "../core/html.js";
import { Icon } from "./icons.js";

const TONES = {
  RUNNING: "good", FINISHED: "info", COMPLETED: "good", INITIALIZING: "info", DEPLOYING: "info",
  CREATED: "info", SCHEDULED: "info", IN_PROGRESS: "info", RESTARTING: "warn", FAILING: "bad",
  CANCELLING: "warn", CANCELING: "warn", FAILED: "bad", LOST: "bad",
};

/** The state of a job, vertex or checkpoint, as a word and a colour. */
export function State({ of }) {
  const word = of.charAt(0) + of.slice(1).toLowerCase().replaceAll("_", " ");
  return html`<span class="badge ${TONES[of] ? `is-${TONES[of]}` : ""}">${word}</span>`;
}

export function Badge({ tone, children }) {
  return html`<span class="badge plain ${tone ? `is-${tone}` : ""}">${children}</span>`;
}

export function Card({ title, tools, children, plain = false }) {
  return html`<section class="card">
    ${title && html`<header><h2>${title}</h2>${tools}</header>`}
    ${plain ? children : html`<div class="body">${children}</div>`}
  </section>`;
}

/** Label and value in tiles; `items` are [label, value, remark]. */
export function Facts({ items }) {
  return html`<dl class="facts">
    ${items.map(([label, value, remark]) => html`<div key=${label}>
      <dt>${label}</dt>
      <dd>${value}${remark && html`<small title=${remark}>${remark}</small>`}</dd>
    </div>`)}
  </dl>`;
}

export function Pairs({ items }) {
  return html`<dl class="pairs">
    ${items.map(([label, value]) => html`<dt key=${label}>${label}</dt><dd>${value}</dd>`)}
  </dl>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;
}

export function Problem({ error, retry }) {
  return html`<div class="problem row" role="alert">
    <span class="grow">${error.message ?? error}</span>
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The data of a resource, or a placeholder. */
export function Loaded({ resource, lines = 4, children }) {
  const { data, error, refresh } = resource;
  if (data !== undefined) return html`${error && html`<${Problem} error=${error} retry=${refresh} />`}${children(data)}`;
  if (error) return html`<${Problem} error=${error} retry=${refresh} />`;
  return html`<div class="stack" aria-busy="true" aria-label="Loading">
    ${Array.from({ length: lines }, (_, n) => html`<div class="skeleton" key=${n} style=${{ width: `${94 - 11 * n}%` }}></div>`)}
  </div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  if (!navigator.clipboard) return null; // Browsers have it only on this machine, or with TLS.
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet icon" title=${label} aria-label=${label} onClick=${copy}>
    <${Icon} name=${isDone ? "check" : "copy"} />
  </button>`;
}

export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} label="Copy the command" /></div>`;
}

/** `items` are [id, label]; arrow keys move between them. */
export function Tabs({ items, chosen, choose, label }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = items.findIndex(([id]) => id === chosen);
    choose(items[(at + step + items.length) % items.length][0]);
    event.currentTarget.children[(at + step + items.length) % items.length].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${items.map(([id, name]) => html`<button key=${id} role="tab" aria-selected=${id === chosen} tabindex=${id === chosen ? 0 : -1} onClick=${() => choose(id)}>${name}</button>`)}
  </div>`;
}

/** Shares of time: busy, held back, and idle the rest. */
export function Load({ busy, held }) {
  return html`<div class="bar">
    <i class="busy" style=${{ width: `${100 * (busy ?? 0)}%` }}></i>
    <i class="held" style=${{ width: `${100 * (held ?? 0)}%` }}></i>
  </div>`;
}

/** A traceback in which the user's frames stand out. */
export function Trace({ text }) {
  const lines = text.trimEnd().split("\n");
  let isOwn = true;
  return html`<pre class="trace" tabindex="0">${lines.map((line, n) => {
    if (/^\s+File "/.test(line)) isOwn = !/site-packages|\/tidegate\/|lib\/python3/.test(line);
    const kind = n === lines.length - 1 ? "last" : isOwn && /^\s/.test(line) ? "own" : "rest";
    return html`<span key=${n} class=${kind}>${line}${"\n"}</span>`;
  })}</pre>`;
}
