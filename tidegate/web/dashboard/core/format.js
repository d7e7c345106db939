// Formats numbers, sizes and times. NOTHING stands for a value that is unknown (so far).

export const NOTHING = "–";

const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** 12,345 */
export function count(value) {
  return isKnown(value) ? Math.round(value).toLocaleString("en-US") : NOTHING;
}

/** 12.3 k: for values that change every second. */
export function short(value) {
  if (!isKnown(value)) return NOTHING;
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  return size >= 100 || Number.isInteger(value) ? count(value) : digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

export const rate = (value) => (isKnown(value) ? `${short(value)}/s` : NOTHING);

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(value) {
  if (!isKnown(value) || value < 0) return NOTHING;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${digits(value)} ${UNITS[unit]}`;
}

export const byteRate = (value) => (isKnown(value) ? `${bytes(value)}/s` : NOTHING);

/** Of milliseconds; the two largest units. */
export function duration(value) {
  if (!isKnown(value) || value < 0) return NOTHING;
  if (value < 1000) return `${value < 10 && value % 1 ? value.toFixed(1) : Math.round(value)} ms`;
  const seconds = value / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const [minutes, hours, days] = [seconds / 60, seconds / 3600, seconds / 86400].map(Math.floor);
  if (hours < 1) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  if (days < 1) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
}

export function ago(time, now = Date.now()) {
  if (!isKnown(time) || time <= 0) return NOTHING;
  return now - time < 1000 ? "just now" : `${duration(now - time)} ago`;
}

/** Of milliseconds since the epoch; with the date only if it is not today. */
export function time(value) {
  if (!isKnown(value) || value <= 0) return NOTHING;
  const date = new Date(value);
  const clock = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? clock : `${day(date)} ${clock}`;
}

function day(date) {
  const [month, number] = [date.getMonth() + 1, date.getDate()].map((n) => String(n).padStart(2, "0"));
  return `${date.getFullYear()}-${month}-${number}`;
}

// Event time has no bounds: watermarks before all times and after the end of the input.
const EARLIEST = -(2 ** 62);
const LATEST = 2 ** 62;

export function watermark(value) {
  if (!isKnown(value) || value < EARLIEST) return NOTHING;
  if (value > LATEST) return "end";
  return Math.abs(value) < 1e11 ? count(value) : time(value);
}

export const percent = (share) => (isKnown(share) ? `${Math.round(100 * share)} %` : NOTHING);
