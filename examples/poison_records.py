"""Counts words although one of them is poison: the job fails on ERROR twice, then leaves it out.

What was skipped lies in a directory of dead letters, as JSON lines, exactly once: these files are
committed with the same checkpoints as every other result.
"""

import argparse
import json
import tempfile
from pathlib import Path

from topic import Topic
from word_count import WORD_COUNT, word_topic

from tidegate import (
    DataStream,
    FileSink,
    JobManagerCheckpointStorage,
    JsonLinesEncoding,
    PoisonRecords,
    RestartStrategies,
    StreamExecutionEnvironment,
)


def parse(line: str) -> tuple[str, int]:
    record = json.loads(line)
    if record["word"] == "ERROR":
        raise RuntimeError("custom error flag, restart application")
    return record["word"], record["frequency"]


def count_words(env: StreamExecutionEnvironment, topic: Topic, dead_letters: str) -> DataStream:
    """A result for every word but ERROR: (word, how often it came so far)."""
    sink = FileSink(dead_letters, JsonLinesEncoding())
    env.on_poison_record(PoisonRecords.skip(after=2, dead_letters=sink))
    lines = env.from_source(topic, source_name="Words").uid("words")
    words = lines.map(parse, WORD_COUNT).name("Parse").uid("parse")
    return words.key_by(lambda word_count: word_count[0]).sum(1).name("Sum").uid("sum")


def read_letters(directory: str) -> list[dict[str, str]]:
    files = sorted(Path(directory).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dead-letters", help="default: a temporary directory")
    directory = parser.parse_args().dead_letters or tempfile.mkdtemp(prefix="dead-letters-")
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(1).enable_checkpointing("200 ms")
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, "100 ms"))
        with count_words(env, word_topic(), directory).execute_and_collect() as results:
            counts = dict(results)
    print("The counts:", ", ".join(f"{word} {count}" for word, count in counts.items()))
    for letter in read_letters(directory):
        print(f"Left out by {letter['operator']}, {letter['position']}: {letter['record']}")
        print(letter["traceback"].rstrip().splitlines()[-1])


if __name__ == "__main__":
    main()
