"""Batches kept in files."""

import numpy as np
import pytest

from tidegate.common import Types
from tidegate.connectors.files.file_system import FoundFile
from tidegate.connectors.files.kept_batches import BatchEncoding, BatchFormat
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format


@pytest.mark.parametrize("format", [None, arrow_format(Types.LONG())])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_reading_continues_at_any_position_with_records_and_timestamps(tmp_path, format, at_once):
    path = tmp_path / "kept"
    with path.open("wb") as stream:
        encoder = BatchEncoding().open(stream)
        for first in (0, 3):
            stamps = np.arange(first, first + 3) * 10
            encoder.write(
                Batch(records=[first, first + 1, first + 2], format=format, timestamps=stamps)
            )
        encoder.finish()
    kept = BatchFormat()
    (split,) = kept.splits([FoundFile(str(path), path.stat().st_size)], parallelism=2)
    found = []
    while True:
        cursor = kept.cursor(split, format)
        batch = cursor.read(at_once)
        split = cursor.position()
        cursor.close()
        if batch is None:
            assert cursor.is_done
            break
        found += zip(batch.records, batch.timestamps.tolist(), strict=True)
    assert found == [(n, 10 * n) for n in range(6)]
