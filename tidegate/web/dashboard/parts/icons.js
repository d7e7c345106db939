// Icons as paths of 16 × 16, drawn with the colour of the text.
import { html } from "../core/html.js";

const PATHS = {
  jobs: "M2.5 4.5h11v8.5h-11zM5.5 4.5v-2h5v2",
  graph: "M2 6h4v4H2zM10 2.5h4v4h-4zM10 9.5h4v4h-4zM6 8h2V4.5h2M8 8v3.5h2",
  checkpoints: "M3 2.5h8l2 2v9H3zM5.5 2.5v3.5h4.5V2.5M5.5 13.5V9.5h5v4",
  failures: "M8 2.2 14.5 13.5h-13zM8 6.5v3.3M8 11.6v.2",
  charts: "M2.5 2.5v11h11M5 10l2.5-3.5 2 2L13 4",
  state: "M8 2.5c3 0 5 .8 5 1.9v7.2c0 1.1-2 1.9-5 1.9s-5-.8-5-1.9V4.4c0-1.1 2-1.9 5-1.9zM3 4.6c0 1 2 1.9 5 1.9s5-.9 5-1.9M3 8.2c0 1 2 1.9 5 1.9s5-.9 5-1.9",
  letters: "M2.5 3.5h11v9h-11zM2.5 4l5.5 4.5L13.5 4",
  sample: "M2 8h3l2-5 3 10 2-5h2",
  settings: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  logs: "M3 3.5h10M3 6.5h7M3 9.5h10M3 12.5h5",
  threads: "M4 2.5v11M8 2.5v11M12 2.5v11M2.5 5h3M6.5 9h3M10.5 6.5h3",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  copy: "M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3",
  check: "M3 8.5l3.2 3.2L13 5",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  refresh: "M13 8a5 5 0 1 1-1.5-3.5M13 2.5v3h-3",
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

export function Mark() {
  return html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="#0b6e7f" /><g fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round"><path d="M6 12.5q3.3-4 6.6 0t6.7 0 6.7 0" /><path d="M6 20.5q3.3-4 6.6 0t6.7 0 6.7 0" opacity=".6" /></g></svg>`;
}
