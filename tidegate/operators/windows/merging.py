"""The windows of a key, for windows that merge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.operators.windows.assigners import MergingWindowAssigner
from tidegate.operators.windows.windows import Window


@dataclass(frozen=True, slots=True)
class Merge:
    """Existing windows became one."""

    result: Window
    merged: tuple[Window, ...]
    """Without the new window, which had no state; in the order given by the assigner."""


class MergingWindowSet:
    """The windows of one key. State, timers and triggers follow the merges that `add` returns."""

    def __init__(
        self, assigner: MergingWindowAssigner[Any, Any], windows: Iterable[Window]
    ) -> None:
        self._assigner = assigner
        self._windows = list(windows)

    @property
    def windows(self) -> list[Window]:
        return self._windows

    def add(self, window: Window) -> tuple[Window, list[Merge]]:
        """Add a window; returns the window that contains it, and the resulting merges."""
        candidates = self._windows if window in self._windows else [*self._windows, window]
        found = _Merges()
        self._assigner.merge_windows(candidates, found)
        result, has_merged = window, False
        merges: list[Merge] = []
        for merged_result, windows in found.merges:
            merged = [each for each in windows if each in self._windows]
            if window in windows:
                result, has_merged = merged_result, True
            for each in merged:
                self._windows.remove(each)
            self._windows.append(merged_result)
            if merged and merged != [merged_result]:
                merges.append(Merge(merged_result, tuple(merged)))
        if not has_merged and window not in self._windows:
            self._windows.append(window)
        return result, merges

    def retire(self, window: Window) -> None:
        if window in self._windows:
            self._windows.remove(window)


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))
