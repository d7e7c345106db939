// One import for what every component needs. `html` makes text nodes of all values: nothing
// that comes from users is ever parsed as HTML.
import { h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal } from "../vendor/signals.js";
export const html = htm.bind(h);
