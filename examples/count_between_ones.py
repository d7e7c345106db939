"""Operator state: how many events lie between two events 1, and which."""

from collections.abc import Iterator

from tidegate import (
    CheckpointedFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JobManagerCheckpointStorage,
    ListStateDescriptor,
    StreamExecutionEnvironment,
    Types,
)

EVENTS = [1, 2, 3, 4, 5, 1, 3, 4, 5, 6, 7, 1, 4, 5, 3, 9, 9, 2, 1]


class CountBetweenOnes(FlatMapFunction, CheckpointedFunction):
    """Remembers the events since the last 1; a checkpoint holds them too."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("events since the last 1", Types.LONG())
        self.stored = context.get_operator_state_store().get_list_state(descriptor)
        self.events = list(self.stored) if context.is_restored() else []

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.stored.update(self.events)

    def flat_map(self, value: int) -> Iterator[str]:
        if value != 1:
            self.events.append(value)
        elif self.events:
            yield f"{len(self.events)}     {' '.join(map(str, self.events))}"
            self.events.clear()


def main() -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(1)
        env.enable_checkpointing(1000)
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
        events = env.from_collection(EVENTS, Types.LONG())
        events.flat_map(CountBetweenOnes(), Types.STRING()).uid("count").print()
        env.execute("count between ones")


if __name__ == "__main__":
    main()
