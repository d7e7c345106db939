// Line charts over time, with uPlot. Values at the pointer are shown above, so nothing covers the lines.
import { html, useEffect, useRef, useState } from "../core/html.js";
import { time } from "../core/format.js";
import { theme } from "../core/session.js";
import uPlot from "../vendor/uplot.js";

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (n) => token(`--series-${(n % 4) + 1}`);

/** `series` are `{label, values}` next to `times` in seconds; `version` changes with the values. */
export function Chart({ label, times, series, format, height = 180, version }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const names = series.map((each) => each.label).join("\n");

  useEffect(() => {
    const element = box.current;
    const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: `11px ${token("--sans")}` };
    const options = {
      width: element.clientWidth,
      height,
      padding: [8, 24, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      legend: { show: false },
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, ticks) => ticks.map((tick) => time(tick * 1000)) },
        { ...axis, size: 64, space: 36, values: (_, ticks) => ticks.map(format) },
      ],
      series: [{}, ...series.map((each, n) => ({ label: each.label, stroke: colour(n), width: 1.6, points: { show: false }, spanGaps: false }))],
      hooks: { setCursor: [(self) => setAt(self.cursor.idx ?? null)] },
    };
    plot.current = new uPlot(options, [[], ...series.map(() => [])], element);
    const observer = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [names, height, theme.value]);

  useEffect(() => {
    plot.current.setData([times, ...series.map((each) => each.values)]);
  }, [version, names, height, theme.value]);

  const shown = at ?? times.length - 1;
  const isEmpty = series.every((each) => each.values.every((value) => value === null || value === undefined));
  return html`<figure class="stack">
    <figcaption class="readout small soft">
      ${series.map((each, n) => html`<span class="key" key=${each.label}><i style=${{ background: colour(n) }}></i>${each.label} <b>${format(each.values[shown])}</b></span>`)}
      ${at !== null && times[at] && html`<span>${time(times[at] * 1000)}</span>`}
    </figcaption>
    <div class="chart ${isEmpty ? "is-empty" : ""}" ref=${box} style=${{ height: `${height}px` }} role="img" aria-label=${label}></div>
  </figure>`;
}
