"""Counts words that come as JSON, a result for every word: what `make demo` runs."""

import json
import sys

from tidegate import StreamExecutionEnvironment, Types

WORDS = [
    '{"word": "a", "frequency": 1}',
    '{"word": "b", "frequency": 1}',
    '{"word": "a", "frequency": 1}',
    '{"word": "a", "frequency": 1}',
    '{"word": "c", "frequency": 1}',
    '{"word": "b", "frequency": 2}',
    '{"word": "a", "frequency": 1}',
]
WORD_COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])


def parse(line: str) -> tuple[str, int]:
    record = json.loads(line)
    return record["word"], record["frequency"]


def main(path: str | None = None) -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2)
        lines = env.from_collection(WORDS) if path is None else env.read_text_file(path)
        counts = (
            lines.map(parse, WORD_COUNT)
            .name("Parse")
            .uid("parse")
            .key_by(lambda word_count: word_count[0])
            .sum(1)
            .name("Sum")
            .uid("sum")
        )
        counts.print()
        result = env.execute("word count")
    seconds = result.get_net_runtime() / 1000
    print(f"Word count finished after {seconds:.1f} s: the last line of a word is its total.")


if __name__ == "__main__":
    main(*sys.argv[1:2])
