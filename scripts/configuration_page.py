"""Writes the tables of docs/configuration.md from the options themselves."""

from __future__ import annotations

from pathlib import Path

from tidegate.core.config import GROUPS, REASONS
from tidegate.core.options import Option, options_of

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
MARK = "<!-- From here on the page is written by scripts/configuration_page.py. -->"
SECTIONS = {
    "pipeline": ("The job", "The shape of the job graph, and what functions can read."),
    "checkpointing": (
        "Checkpoints",
        "Off until an interval is set; [checkpoints](checkpoints.md) explains them.",
    ),
    "state": (
        "State",
        "Where keyed state lives while the job runs: see [backends](state.md#backends).",
    ),
    "restart": ("Restarts", "What happens after a failure: see [recovery](recovery.md)."),
    "engine": ("Slots and steps", "How the engine runs; the defaults suit most jobs."),
    "spark": (
        "Spark",
        (
            "The session that Tidegate creates if you pass none. Keys that begin with `spark.` "
            "are passed on to it."
        ),
    ),
    "rest": (
        "REST API",
        "What the driver answers while a job runs: see [the REST API](rest-api.md).",
    ),
}


def page(current: str) -> str:
    """The page with the text above the mark as it is and the tables as the options are now."""
    prose, _, _ = current.partition(MARK)
    sections = [_section(name) for name in GROUPS]
    return "\n".join([prose.rstrip(), "", MARK, "", *sections, _without_effect()])


def _section(name: str) -> str:
    title, text = SECTIONS[name]
    lines = [_line(option) for option in options_of(GROUPS[name]).values()]
    head = "| key | kind | default | meaning | older spellings |\n|---|---|---|---|---|"
    return "\n".join([f"## {title}", "", text, "", head, *lines, ""])


def _line(option: Option) -> str:
    default = "" if option.default in (None, {}, ()) else f"`{option.format(option.default)}`"
    older = ", ".join(f"`{key}`" for key in option.older_keys)
    kind = option.kind.name.replace("|", "/")
    return f"| `{option.key}` | {kind} | {default} | {option.description} | {older} |"


def _without_effect() -> str:
    lines = [f"| `{key}` | {reason} |" for key, reason in REASONS.items()]
    return "\n".join(
        [
            "## Settings of Flink without effect",
            "",
            (
                "Every key that Flink documents is accepted, so that programs and configuration "
                "files need no change. For a key without effect, one line in the log says why:"
            ),
            "",
            "| key, or beginning of keys | why |\n|---|---|",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
