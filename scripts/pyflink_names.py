"""Writes docs/pyflink-names.md: PyFlink's public DataStream names, and what they are here."""

from __future__ import annotations

import importlib
import inspect
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.common.java_only import JavaOnly

PAGE = Path(__file__).parent.parent / "docs" / "pyflink-names.md"
NAMES = Path(__file__).with_suffix(".json")
"""Of PyFlink 2.3: by module and name, the public methods with their parameters."""
_HEAD = """# PyFlink's names

Every public name of PyFlink's DataStream API (version 2.3), and whether Tidegate has it.
Replace `pyflink` with `tidegate` in the imports. `scripts/pyflink_names.py` writes this page.

- **yes**: supported, with PyFlink's methods and parameter names, except for those listed.
- **Java**: in PyFlink the name wraps Java code. You can import it, but using it raises
  an error that says what to use instead.
- **no**: the name cannot be imported.
"""
_STATES = ("yes", "Java", "no")


def page() -> str:
    """The whole page."""
    names = json.loads(NAMES.read_text(encoding="utf-8"))
    found = {
        module: {name: state_of(module, name, names) for name in names[module]} for module in names
    }
    counts = Counter(state for states in found.values() for state, _ in states.values())
    totals = ", ".join(f"{counts[state]} {state}" for state in _STATES)
    lines = [_HEAD, f"{counts.total()} names: {totals}."]
    for module, states in found.items():
        lines += ["", f"## `{module}`", "", "| name | state | differences |", "|---|---|---|"]
        lines += [f"| `{name}` | {state} | {note} |" for name, (state, note) in states.items()]
    return "\n".join(lines) + "\n"


def state_of(module: str, name: str, names: dict[str, Any]) -> tuple[str, str]:
    """What the name is here, and how it differs."""
    try:
        found = getattr(importlib.import_module(module.replace("pyflink", "tidegate", 1)), name)
    except (ImportError, AttributeError):
        return "no", ""
    if isinstance(found, JavaOnly):
        return "Java", ""
    return "yes", ", ".join(_differences(found, names[module][name]))


def _differences(found: Any, methods: dict[str, list[str]]) -> Iterator[str]:
    for method, parameters in methods.items():
        if not hasattr(found, method):
            yield f"no `{method}`"
            continue
        try:
            own = inspect.signature(getattr(found, method)).parameters
        except (TypeError, ValueError):
            continue
        if lacking := [each for each in parameters if each not in own]:
            yield f"`{method}` without {', '.join(f'`{each}`' for each in lacking)}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
