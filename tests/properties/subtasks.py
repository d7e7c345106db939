"""All subtasks of an operator, restored with another parallelism in between."""

import numpy as np

from tidegate.testing.harness import OperatorHarness

MAX_PARALLELISM = 8


class Subtasks:
    def __init__(self, operator, settings, inputs=1):
        self._operator, self._settings, self._inputs = operator, settings, inputs
        self.harnesses = []
        self.start(1)

    def start(self, count, settings=None):
        old, snapshots = self.harnesses, [harness.snapshot() for harness in self.harnesses]
        self.harnesses = [
            OperatorHarness(
                self._operator,
                parallelism=count,
                subtask=subtask,
                max_parallelism=MAX_PARALLELISM,
                settings=settings or self._settings,
                restore_from=snapshots,
                inputs=self._inputs,
            )
            for subtask in range(count)
        ]
        for harness in old:
            harness.close()

    def process(self, batch, key, side=0):
        """Give each subtask the records of its keys."""
        groups = key.hashes(batch) % MAX_PARALLELISM
        for harness in self.harnesses:
            own = [place for place, g in enumerate(groups) if int(g) in harness.context.key_groups]
            if own:
                harness.process_batch(batch.take(np.array(own)), side)

    def watermark(self, timestamp):
        for harness in self.harnesses:
            for side in range(self._inputs):
                harness.watermark(timestamp, input_index=side)

    def take(self):
        """(record, timestamp) of all that was emitted since the last call."""
        found = []
        for harness in self.harnesses:
            found += harness.timed_output
            harness.batches.clear()
        return found

    def take_side(self, tag):
        found = []
        for harness in self.harnesses:
            found += harness.side_output(tag)
            harness.side_batches.pop(tag, None)
        return found

    def close(self):
        for harness in self.harnesses:
            harness.close()
