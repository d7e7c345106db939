// The stream of events from the driver: one per page, resumed where it broke off.
import { headers, isTokenWanted } from "./api.js";
import { Ring } from "./ring.js";
import { batch, computed, signal } from "./html.js";

/** Milliseconds of silence after which the driver counts as lost: it sends something every two seconds. */
export const SILENCE = 4000;
const AFTER_ERROR = 1000;
const AFTER_REFUSAL = 5000;

/** "connecting" until the first event, then "live"; "lost" while the driver does not answer. */
export const connection = signal("connecting");
export const isConnected = computed(() => connection.value === "live");
/** All jobs of this machine, as the driver lists them. */
export const jobs = signal(null);
/** The live data of the page's job; null if there is none. */
export const live = signal(null);
/** Whether the server has forgotten the job of the page. */
export const isGone = signal(false);
/** The last minutes of the job, for charts. */
export const points = new Ring(600);

let stream = null;

/** Follow a job, or with null only the list of jobs. */
export function follow(jid) {
  if (stream?.wanted === jid) return;
  stream?.abort.abort();
  batch(() => {
    live.value = null;
    isGone.value = false;
  });
  points.clear();
  stream = { wanted: jid, jid, abort: new AbortController(), lastId: null };
  run(stream);
}

/** Reconnect, for example with a new token. */
export function reconnect() {
  const jid = stream?.wanted ?? null;
  stream?.abort.abort();
  stream = null;
  follow(jid);
}

async function run(own) {
  while (!own.abort.signal.aborted) {
    let pause = 0;
    try {
      pause = await listen(own);
    } catch {
      pause = AFTER_ERROR;
    }
    if (own.abort.signal.aborted) return;
    if (pause) {
      connection.value = "lost";
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

/** Read one stream to its end; returns the milliseconds to wait before the next. */
async function listen(own) {
  const silence = new AbortController();
  let alarm = setTimeout(() => silence.abort(), SILENCE);
  const stop = () => silence.abort();
  own.abort.signal.addEventListener("abort", stop);
  try {
    const query = own.jid ? `?job=${encodeURIComponent(own.jid)}` : "";
    const response = await fetch(`tidegate/events${query}`, {
      headers: { ...headers(), ...(own.lastId && { "last-event-id": own.lastId }) },
      signal: silence.signal,
    });
    if (!response.ok) return refused(own, response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return 0;
      clearTimeout(alarm);
      alarm = setTimeout(() => silence.abort(), SILENCE);
      connection.value = "live";
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) take(own, block);
    }
  } finally {
    clearTimeout(alarm);
    own.abort.signal.removeEventListener("abort", stop);
  }
}

function refused(own, status) {
  if (status === 401) {
    isTokenWanted.value = true;
    own.abort.abort(); // Until there is a token.
  }
  if (status === 404 && own.jid) {
    isGone.value = true;
    own.jid = null; // The list of jobs still comes.
    return 0;
  }
  return AFTER_REFUSAL;
}

function take(own, block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  if (own.abort.signal.aborted || !fields.data) return;
  if (fields.id) own.lastId = fields.id;
  const data = JSON.parse(fields.data);
  if (fields.event === "jobs") jobs.value = data.jobs;
  else if (fields.event === "job") live.value = data;
  else if (fields.event === "points") points.add(data);
  else if (fields.event === "gone") isGone.value = true;
}
