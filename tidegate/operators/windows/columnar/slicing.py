"""Windows as runs of slices: a record belongs to one slice, a slice to several windows.

A slice ends where a window begins or ends. If the slide divides the size, there is a cut at every
slide; otherwise there are two per slide, at the starts and at the ends of windows.

    size 10, slide 5    |----|----|----|----|     slices 0 1 2 3, window k = slices k, k + 1
    size  7, slide 5    |-|--|-|--|-|--|-|--|     slices 0 1 2 …, window k = slices 2k … 2k + 2
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Slicing:
    """Numbers of slices and windows; window k begins at `offset + k * slide`."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self.size = size
        self.slide = slide
        self.offset = offset % slide
        self._cut = size % slide
        self.per_slide = 2 if self._cut else 1
        self.per_window = self.per_slide * (size // slide) + (1 if self._cut else 0)

    def slices_of(self, timestamps: Numbers) -> Numbers:
        since = timestamps - self.offset
        slides = since // self.slide
        if self.per_slide == 1:
            return slides
        return 2 * slides + (since - slides * self.slide >= self._cut)

    def slice_start(self, number: int) -> int:
        slides, half = divmod(number, self.per_slide)
        return self.offset + slides * self.slide + half * self._cut

    def starts_of(self, timestamps: Numbers) -> Numbers:
        """The start of the slice of every record."""
        since = (timestamps - self.offset) % self.slide
        starts: Numbers = timestamps - since
        if self.per_slide == 2:
            starts += np.where(since >= self._cut, self._cut, 0)
        return starts

    def slice_end(self, number: int) -> int:
        return self.slice_start(number + 1)

    def window_start(self, window: Any) -> Any:
        """The start of one window, or of many."""
        return self.offset + window * self.slide

    def window_end(self, window: Any) -> Any:
        return self.window_start(window) + self.size

    def first_slice(self, window: int) -> int:
        return self.per_slide * window

    def first_window(self, slices: Any) -> Any:
        """The first window of a slice, or of each of many."""
        return -((self.per_window - 1 - slices) // self.per_slide)

    def last_window(self, slices: Any) -> Any:
        """The last window of a slice; before the first one if it belongs to none."""
        return slices // self.per_slide

    def passed(self, watermark: int) -> int:
        """The last window whose last millisecond the watermark has reached."""
        return (watermark + 1 - self.size - self.offset) // self.slide
