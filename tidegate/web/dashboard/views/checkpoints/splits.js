// On what the time of each checkpoint went. The history of Flink's API does not say so, but the
// subtasks of a checkpoint do: they are asked for once, as a checkpoint that is complete stays so.
import { useEffect, useRef, useState } from "../../core/html.js";
import { get } from "../../core/api.js";
import { isArchived } from "../../core/job.js";

const MOST_VERTICES = 12; // With more, it would be too many requests.
const NEWEST = 30; // Older ones may leave the history before they are asked for.

/** `{alignment, sync, async}` of the subtask that acknowledged last, by the id of the checkpoint. */
export function useSplits(jid, history, vertices) {
  const splits = useRef(new Map());
  const [, draw] = useState(0);
  const missing = history.slice(0, NEWEST).filter((row) => row.status === "COMPLETED" && !splits.current.has(row.id));
  const isAsked = vertices.length > 0 && vertices.length <= MOST_VERTICES && !isArchived.value;

  useEffect(() => {
    if (!isAsked || !missing.length) return;
    const abort = new AbortController();
    const ask = async () => {
      for (const { id } of missing) {
        const base = `/jobs/${jid}/checkpoints/details/${id}/subtasks`;
        const details = await Promise.all(vertices.map((vertex) => get(`${base}/${vertex.id}`, abort.signal)));
        splits.current.set(id, splitOf(details.flatMap((each) => each.subtasks)));
        draw((n) => n + 1);
      }
    };
    ask().catch(() => {}); // A checkpoint may leave the history meanwhile: its column stays plain.
    return () => abort.abort();
  }, [jid, isAsked, history[0]?.id, history[0]?.status]);

  for (const id of splits.current.keys()) if (!history.some((row) => row.id === id)) splits.current.delete(id);
  return splits.current;
}

function splitOf(subtasks) {
  const done = subtasks.filter((each) => each.checkpoint);
  if (!done.length) return null;
  const last = done.reduce((one, other) => (other.end_to_end_duration > one.end_to_end_duration ? other : one));
  return { alignment: last.alignment.duration, sync: last.checkpoint.sync, async: last.checkpoint.async };
}
