"""What users do on the page, for all tests."""

from __future__ import annotations

from typing import Any


def act(page: Any, button: str, **fields: Any) -> Any:
    """Choose an action, fill in its form and confirm it; returns its dialog when it is done."""
    page.locator(".actions").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        dialog.locator("label").filter(has_text=label.capitalize()).locator("input").fill(
            str(value)
        )
    assert "tidegate" in dialog.locator(".command").inner_text()
    dialog.get_by_role("button", name=button, exact=True).click()
    dialog.get_by_role("button", name="Close", exact=True).wait_for()
    assert dialog.locator(".problem").all_inner_texts() == []
    return dialog


def leave(dialog: Any) -> None:
    dialog.get_by_role("button", name="Close", exact=True).click()
    dialog.wait_for(state="detached")
