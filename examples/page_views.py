"""Page views and unique visitors of every app. Kill it, run it again: it continues where it was.

    python examples/page_views.py --checkpoint-dir /tmp/page-views

A run that finds a checkpoint of the last one takes over its position in the log and its counts;
what was counted after the checkpoint is counted again, once.
"""

import argparse
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate import (
    DataGeneratorSource,
    DataStream,
    KeyedProcessFunction,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)


@dataclass
class View:
    """A line of the log."""

    app_id: str
    visitor: str


@dataclass
class Traffic:
    """What is known of an app after a view."""

    app_id: str
    page_views: int
    unique_visitors: int

    def __str__(self) -> str:
        return f"{self.app_id}: {self.page_views} views by {self.unique_visitors} visitors"


def view(offset: int) -> View:
    """The line at an offset of the log, always the same."""
    return View(f"App0{offset % 5 + 1}", f"visitor {offset * offset % 1009}")


class CountTraffic(KeyedProcessFunction):
    """Counts the views of an app, and its visitors by remembering each of them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.views = runtime_context.get_state(ValueStateDescriptor("page views", Types.LONG()))
        self.visitors = runtime_context.get_map_state(
            MapStateDescriptor("visitors", Types.STRING(), Types.BOOLEAN())
        )
        self.unique = runtime_context.get_state(ValueStateDescriptor("unique", Types.LONG()))

    def process_element(self, value: View, ctx: KeyedProcessFunction.Context) -> Iterator[Traffic]:
        views = (self.views.value() or 0) + 1
        unique = self.unique.value() or 0
        if not self.visitors.contains(value.visitor):
            self.visitors.put(value.visitor, True)
            unique += 1
            self.unique.update(unique)
        self.views.update(views)
        yield Traffic(ctx.get_current_key(), views, unique)


def count_traffic(env: StreamExecutionEnvironment, views: int, rate: float) -> DataStream:
    """A result for every view."""
    source = DataGeneratorSource(view, count=views, rate=rate)
    log = env.from_source(source, source_name="Log", type_info=View).uid("log")
    return log.key_by("app_id").process(CountTraffic(), Traffic).uid("traffic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint-dir", required=True, help="a path or URL")
    parser.add_argument("--views", type=int, default=3000, help="lines of the log")
    parser.add_argument("--rate", type=float, default=300, help="lines per second")
    arguments = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s - %(message)s")
    logging.getLogger("tidegate").setLevel(logging.INFO)

    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": arguments.checkpoint_dir,
        "execution.state-recovery.path": "latest",
        "tidegate.console.live-line": "off",
    }
    with StreamExecutionEnvironment.get_execution_environment(settings) as env:
        env.set_parallelism(2)
        count_traffic(env, arguments.views, arguments.rate).print()
        env.execute("page views")


if __name__ == "__main__":
    main()
