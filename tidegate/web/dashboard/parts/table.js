// A table that draws only the rows in sight, however many there are.
import { html, useMemo, useRef, useState } from "../core/html.js";

const ROW = 40;
const AHEAD = 10;
const WINDOWED = 120; // With fewer rows all are drawn.

/**
 * `columns` are `{id, label, value(row), show(row), number, wide}`: `value` sorts, `show` draws.
 * `name` says what the table lists; `open(row)` makes rows links.
 */
export function Table({ name, columns, rows, rowKey, open, chosen, tall = false, sorted = null }) {
  const [order, setOrder] = useState(sorted);
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const ordered = useMemo(() => inOrder(rows, columns, order), [rows, order]);
  const isWindowed = ordered.length > WINDOWED;
  const height = box.current?.clientHeight ?? 560;
  const first = isWindowed ? Math.max(0, Math.floor(top / ROW) - AHEAD) : 0;
  const last = isWindowed ? Math.min(ordered.length, Math.ceil((top + height) / ROW) + AHEAD) : ordered.length;
  const onScroll = isWindowed ? (event) => setTop(event.currentTarget.scrollTop) : undefined;

  return html`<div class="table ${tall && !isWindowed ? "tall" : ""}" ref=${box} onScroll=${onScroll} tabindex="0" role="region" aria-label=${name}>
    <table aria-rowcount=${ordered.length + 1}>
      <thead><tr>
        ${columns.map((column) => html`<th key=${column.id} class=${column.number ? "num" : ""} aria-sort=${sortWord(order, column)}>
          ${column.value
            ? html`<button onClick=${() => setOrder(turned(order, column))}>${column.label}${arrow(order, column)}</button>`
            : column.label}
        </th>`)}
      </tr></thead>
      <tbody>
        <${Spacer} rows=${first} columns=${columns.length} />
        ${ordered.slice(first, last).map((row) => html`<${Row} key=${rowKey(row)} row=${row} columns=${columns} open=${open} isChosen=${chosen !== undefined && rowKey(row) === chosen} />`)}
        <${Spacer} rows=${ordered.length - last} columns=${columns.length} />
      </tbody>
    </table>
  </div>`;
}

function Row({ row, columns, open, isChosen }) {
  const onKey = (event) => event.key === "Enter" && event.target === event.currentTarget && open(row);
  const asLink = open ? { onClick: () => open(row), onKeyDown: onKey, tabindex: 0 } : {};
  return html`<tr class="${open ? "link" : ""} ${isChosen ? "chosen" : ""}" ...${asLink}>
    ${columns.map((column) => html`<td key=${column.id} class="${column.number ? "num" : ""} ${column.wide ? "wide" : ""}">${(column.show ?? column.value)(row)}</td>`)}
  </tr>`;
}

function Spacer({ rows, columns }) {
  return rows > 0 ? html`<tr class="spacer" aria-hidden="true"><td colspan=${columns} style=${{ height: `${rows * ROW}px` }}></td></tr>` : null;
}

function inOrder(rows, columns, order) {
  const column = order && columns.find((each) => each.id === order.id);
  if (!column) return rows;
  const sign = order.up ? 1 : -1;
  return [...rows].sort((a, b) => sign * compared(column.value(a), column.value(b)));
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}

const turned = (order, column) => ({ id: column.id, up: order?.id === column.id ? !order.up : !column.number });
const arrow = (order, column) => (order?.id === column.id ? (order.up ? " ↑" : " ↓") : "");
const sortWord = (order, column) => (order?.id === column.id ? (order.up ? "ascending" : "descending") : undefined);
