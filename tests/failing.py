"""A function that fails where it hurts: behind a checkpoint, so that records come again."""

from tidegate.datastream import CheckpointListener, MapFunction

FAILURES = 3
"""How many attempts fail."""


class FailsBehindCheckpoints(MapFunction, CheckpointListener):
    """Raises some records behind a completed checkpoint, in each of the first attempts."""

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()
        self.behind = None

    def notify_checkpoint_complete(self, checkpoint_id):
        self.behind = self.behind or 0

    def map(self, value):
        if self.behind is not None and self.attempt < FAILURES:
            self.behind += 1
            if self.behind > 7 * (self.attempt + 1):
                raise RuntimeError("behind a checkpoint")
        return value
