"""What users do on the page, for all tests."""

from __future__ import annotations

from typing import Any

from tests.programs import PATIENCE, wait_until

VIEWS = (
    *("graph", "checkpoints", "failures", "charts", "state"),
    *("dead-letters", "sample", "configuration", "logs", "threads"),
)
POINTS = """async (count) => {
    const { points } = await import("/dashboard/core/live.js");
    for (let seen = points.version.value; points.version.value < seen + count;)
        await new Promise((done) => setTimeout(done, 20));
    return points.times.length;
}"""

DRAG = """async (frames) => {
    const graph = document.querySelector(".graph");
    const { left, top } = graph.getBoundingClientRect();
    const at = (type, x) => graph.dispatchEvent(new PointerEvent(type,
        { bubbles: true, pointerId: 1, clientX: left + x, clientY: top + 4 }));
    graph.setPointerCapture = () => {};
    at("pointerdown", 4);
    for (let frame = 0; frame < frames; frame += 1) {
        at("pointermove", 4 + frame);
        await new Promise(requestAnimationFrame);
    }
    at("pointerup", 4);
}"""
"""Drags the graph for so many frames."""


def watch(page: Any, events: int) -> int:
    """Let so many events come; returns how many of their points the page keeps."""
    return int(page.evaluate(POINTS, events))


def weight(page: Any) -> tuple[int, int]:
    """The bytes that the page needs, and its elements."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used, page.locator("*").count()


def act(page: Any, button: str, **fields: Any) -> Any:
    """Choose an action, fill in its form and confirm it; returns its dialog when it is done."""
    page.locator(".actions").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        field = dialog.locator("label").filter(has_text=label.capitalize()).locator("input")
        field.check() if value is True else field.fill(str(value))
    return confirm(dialog, button)


def confirm(dialog: Any, button: str) -> Any:
    """Do what the dialog asks for, and wait until it is done."""
    assert "tidegate" in dialog.locator(".command").inner_text()
    dialog.get_by_role("button", name=button, exact=True).click()
    dialog.get_by_role("button", name="Close", exact=True).wait_for(timeout=3000 * PATIENCE)
    assert dialog.locator(".problem").all_inner_texts() == []
    return dialog


def leave(dialog: Any) -> None:
    dialog.get_by_role("button", name="Close", exact=True).click()
    dialog.wait_for(state="detached")


def look_up(page: Any, state: str, key: str) -> str:
    """Search a key in a state of the savepoint that is open; returns its value."""
    page.locator(".list button").filter(has=page.get_by_text(state, exact=True)).click()
    page.get_by_label("Search a key").fill(key)
    table = page.get_by_role("region", name=f"Entries of {state}")
    keys = table.locator("tbody td:first-child")
    wait_until(lambda: bool(found := keys.all_inner_texts()) and all(key in each for each in found))
    return str(table.locator("tbody td").nth(1).inner_text())
