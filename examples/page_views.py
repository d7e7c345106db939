"""Page views and unique visitors of every app, from a log of views."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate import (
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


LOG = [
    View("App01", "ada"),
    View("App02", "ada"),
    View("App01", "bob"),
    View("App01", "ada"),
    View("App02", "eve"),
    View("App01", "eve"),
    View("App02", "ada"),
]


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


def totals(updates: Iterator[Any]) -> dict[str, Traffic]:
    """The last update of every app."""
    return {update.app_id: update for update in updates}


def main() -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2)
        traffic = env.from_collection(LOG, View).key_by("app_id").process(CountTraffic(), Traffic)
        with traffic.execute_and_collect("page views") as updates:
            for app_id, found in sorted(totals(updates).items()):
                print(f"{app_id}: {found.page_views} views by {found.unique_visitors} visitors")


if __name__ == "__main__":
    main()
