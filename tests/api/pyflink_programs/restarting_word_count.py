import json

from pyflink.common import RestartStrategies, Types
from pyflink.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MapFunction,
    StreamExecutionEnvironment,
)

WORDS = ["a", "b", "a", "ERROR", "c"]


class Parse(MapFunction):
    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        word = json.loads(value)["word"]
        if word == "ERROR" and self.attempt < 2:
            raise RuntimeError("custom error flag, restart application")
        return word, 1


def run():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.set_state_backend(HashMapStateBackend())
    env.enable_checkpointing(30 * 1000, CheckpointingMode.EXACTLY_ONCE)
    checkpoints = env.get_checkpoint_config()
    checkpoints.set_checkpoint_storage(JobManagerCheckpointStorage())
    checkpoints.set_min_pause_between_checkpoints(500)
    checkpoints.set_checkpoint_timeout(60000)
    checkpoints.enable_externalized_checkpoints(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    lines = env.from_collection([json.dumps({"word": word}) for word in WORDS])
    lines.map(Parse(), Types.TUPLE([Types.STRING(), Types.LONG()])).uid("Map").key_by(
        lambda pair: pair[0]
    ).sum(1).uid("Sum").print().uid("Print")
    env.execute("restarting word count")


if __name__ == "__main__":
    run()
