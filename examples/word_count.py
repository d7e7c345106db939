"""Counts words, fails, and resumes from a checkpoint with the right counts: `make demo`.

The words come from a topic, beginning at offset 25, and ERROR makes the job fail. It is restarted
up to three times, each time with the counts and at the offset of the last checkpoint. From the
second attempt on ERROR is harmless; with --failures 4 it never is, and the job fails for good.
"""

import argparse
import json
import logging
import sys
from collections import Counter

from topic import Topic

from tidegate import (
    DataStream,
    JobManagerCheckpointStorage,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
)

WORDS = [["a", "b", "a"], ["a", "c", "ERROR"], ["b", "a"]]
"""In bursts: the next one comes when a checkpoint holds what was before."""
WORD_COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])


def word_topic() -> Topic:
    bursts = [[json.dumps({"word": word, "frequency": 1}) for word in burst] for burst in WORDS]
    return Topic("word", bursts, first_offset=25)


class Parse(MapFunction):
    """From JSON to (word, frequency)."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value: str) -> tuple[str, int]:
        record = json.loads(value)
        if record["word"] == "ERROR" and self.attempt < self.failures:
            raise RuntimeError("custom error flag, restart application")
        return record["word"], record["frequency"]


def count_words(env: StreamExecutionEnvironment, topic: Topic, failures: int) -> DataStream:
    """A result for every word: (word, how often it came so far)."""
    lines = env.from_source(topic, source_name="Words").uid("words")
    words = lines.map(Parse(failures), WORD_COUNT).name("Parse").uid("parse")
    return words.key_by(lambda word_count: word_count[0]).sum(1).name("Sum").uid("sum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint-dir", help="default: the memory of this process")
    parser.add_argument("--failures", type=int, default=1, help="how often ERROR fails the job")
    arguments = parser.parse_args()
    log_format = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"
    logging.basicConfig(format=log_format, datefmt="%H:%M:%S")
    logging.getLogger("tidegate").setLevel(logging.INFO)
    print("The words:", " | ".join(" ".join(burst) for burst in WORDS))

    settings = {"tidegate.console.live-line": "off"}
    with StreamExecutionEnvironment.get_execution_environment(settings) as env:
        env.set_parallelism(1)
        env.enable_checkpointing("1 s")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, "1 s"))
        storage = arguments.checkpoint_dir or JobManagerCheckpointStorage()
        env.get_checkpoint_config().set_checkpoint_storage(storage)
        counts = count_words(env, word_topic(), arguments.failures)
        results = []
        with counts.execute_and_collect("word count") as stream:
            for word, count in stream:
                print(f"({word},{count})", flush=True)
                results.append((word, count))
    print(verdict(results))


def verdict(results: list[tuple[str, int]]) -> str:
    """Compare the last result of every word with how often it is there."""
    words = Counter(word for burst in WORDS for word in burst)
    last = dict(results)
    if last != words:
        sys.exit(f"WRONG: the counts are {last}, but should be {dict(words)}.")
    counts = ", ".join(f"{word} {count}" for word, count in last.items())
    again = len(results) - words.total()
    return f"RIGHT: every word counts once ({counts}); {again} results came again after a failure."


if __name__ == "__main__":
    main()
