// The newest points of charts: columns next to `times`, never longer than the ring.
import { signal } from "./html.js";

export class Ring {
  /** How often points came: read it to be drawn again. */
  version = signal(0);
  times = [];
  #columns = new Map();

  constructor(length) {
    this.length = length;
  }

  clear() {
    this.times = [];
    this.#columns.clear();
    this.version.value += 1;
  }

  /** Add points in the form of the history; existing ones are skipped. */
  add({ times, job, vertices }) {
    const newest = this.times.at(-1) ?? -Infinity;
    const first = times.findIndex((time) => time > newest);
    if (first < 0) return;
    const before = this.times.length;
    this.times.push(...times.slice(first));
    const append = (name, values) => {
      if (!this.#columns.has(name)) this.#columns.set(name, new Array(before).fill(null));
      this.#columns.get(name).push(...values.slice(first));
    };
    for (const [name, values] of Object.entries(job)) append(name, values);
    for (const [vertex, columns] of Object.entries(vertices ?? {}))
      for (const [name, values] of Object.entries(columns)) append(`${vertex}/${name}`, values);
    const all = [this.times, ...this.#columns.values()];
    const end = this.times.length;
    for (const column of all) {
      while (column.length < end) column.push(null);
      column.splice(0, Math.max(0, end - this.length));
    }
    this.version.value += 1;
  }

  /** The points after a time, in the form of the history; those of vertices are named flat. */
  since(time = -Infinity) {
    const first = this.times.findIndex((each) => each > time);
    if (first < 0) return { times: [], job: {} };
    const job = Object.fromEntries([...this.#columns].map(([name, values]) => [name, values.slice(first)]));
    return { times: this.times.slice(first), job };
  }

  column(name) {
    return this.#columns.get(name) ?? new Array(this.times.length).fill(null);
  }
}
