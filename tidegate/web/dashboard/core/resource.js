// A document of the API that a view shows, refreshed while the view is open.
import { isConnected } from "./live.js";
import { get } from "./api.js";
import { useEffect, useState } from "./html.js";

/**
 * `{data, error, refresh}` for a path; `every` gives the milliseconds between two requests.
 * A change of `changes` refreshes it, too. For a list of paths, `data` is the list of their documents; for null, nothing is requested.
 *
 * A page in the background or without a driver sends no requests. Until the next answer arrives,
 * the last one stays, so that nothing flickers; a new path discards it.
 */
export function useResource(wanted, { every = null, changes = null } = {}) {
  const path = Array.isArray(wanted) ? wanted.join(" ") : wanted;
  const [state, setState] = useState({ path: null, data: undefined, error: null });
  const [asked, setAsked] = useState(0);
  const connected = isConnected.value;

  useEffect(() => {
    if (!path) return;
    const abort = new AbortController();
    let timer;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const data = Array.isArray(wanted)
            ? await Promise.all(wanted.map((each) => get(each, abort.signal)))
            : await get(path, abort.signal);
          setState({ path, data, error: null });
        } catch (error) {
          if (abort.signal.aborted) return;
          setState((last) => ({ path, data: last.path === path ? last.data : undefined, error }));
        }
      }
      if (every && !abort.signal.aborted) timer = setTimeout(ask, every);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, every, changes, asked, connected]);

  const isCurrent = state.path === path;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : null,
    refresh: () => setAsked((n) => n + 1),
  };
}
