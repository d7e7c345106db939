"""An online shop that never closes, to look at in the dashboard: `make demo-ui`.

Orders come as lines of JSON. Revenue is summed up by product over windows of ten seconds, and every
customer has an account that is settled now and then. Some lines are damaged: they become dead
letters. Once a minute the payment service does not answer for two seconds: the job fails, and
resumes from its last checkpoint.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidegate import (
    DataGeneratorSource,
    FileSink,
    JsonLinesEncoding,
    KeyedProcessFunction,
    MapStateDescriptor,
    PoisonRecords,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.common import Duration, Time, WatermarkStrategy
from tidegate.datastream.window import TumblingEventTimeWindows

PRODUCTS = ("lamp", "chair", "desk", "shelf", "clock", "rug", "vase")
CUSTOMERS = 500
DAMAGED = 5_000
"""One line of so many."""
SETTLED_AFTER = range(5_000, 15_000)
"""Milliseconds of event time between the first order and the settlement of an account."""
OUTAGE_SECONDS = 2


@dataclass
class Order:
    """An order; `at` is in milliseconds since the epoch, `amount` in cents."""

    customer: str
    product: str
    amount: int
    at: int


@dataclass
class Invoice:
    """What a customer has to pay in total, and for how many different products."""

    customer: str
    amount: int
    products: int


def line(index: int) -> str:
    """The line at an index of the log, always of the same order."""
    chance = random.Random(index)
    product = PRODUCTS[min(int(chance.expovariate(0.5)), len(PRODUCTS) - 1)]
    customer = f"customer {chance.randrange(CUSTOMERS)}"
    text = json.dumps(
        {"customer": customer, "product": product, "amount": chance.randrange(10_000)}
    )
    return text[: len(text) // 2] if index % DAMAGED == DAMAGED - 1 else text


def parse(text: str) -> Order:
    return Order(**json.loads(text), at=int(time.time() * 1000))


class Accounts(KeyedProcessFunction):
    """Adds up what a customer has ordered, and sends an invoice when the account is settled."""

    def __init__(self, seconds_between_outages: float) -> None:
        self.seconds_between_outages = seconds_between_outages

    def open(self, runtime_context: RuntimeContext) -> None:
        self.owed = runtime_context.get_state(ValueStateDescriptor("owed", Types.LONG()))
        self.ordered = runtime_context.get_map_state(
            MapStateDescriptor("ordered", Types.STRING(), Types.LONG())
        )
        self.invoices = runtime_context.get_metrics_group().counter("invoices")

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context) -> None:
        if self.owed.value() is None:
            settled_at = value.at + random.choice(SETTLED_AFTER)
            ctx.timer_service().register_event_time_timer(settled_at)
        self.owed.update((self.owed.value() or 0) + value.amount)
        self.ordered.put(value.product, (self.ordered.get(value.product) or 0) + 1)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[Invoice]:
        if time.time() % self.seconds_between_outages < OUTAGE_SECONDS:
            raise ConnectionError("the payment service does not answer")
        yield Invoice(ctx.get_current_key(), self.owed.value() or 0, len(list(self.ordered.keys())))
        self.invoices.inc()
        self.owed.clear()
        self.ordered.clear()


def open_shop(
    env: StreamExecutionEnvironment, directory: Path, rate: float, seconds_between_outages: float
) -> None:
    """Define the job; what it writes goes below the directory."""
    letters = FileSink(str(directory / "dead-letters"), JsonLinesEncoding())
    env.on_poison_record(PoisonRecords.skip(after=0, dead_letters=letters))
    lines = env.from_source(DataGeneratorSource(line, rate=rate), source_name="Log").uid("log")
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    orders = (
        lines.map(parse, Order)
        .name("Parse")
        .uid("parse")
        .assign_timestamps_and_watermarks(
            times.with_timestamp_assigner(lambda order, _: order.at).with_idleness(
                Duration.of_seconds(5)
            )
        )
    )
    revenue = (
        orders.map(
            lambda order: (order.product, order.amount), Types.TUPLE([Types.STRING(), Types.LONG()])
        )
        .name("Price")
        .key_by(lambda sale: sale[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
        .name("Revenue in 10 s")
        .uid("revenue")
    )
    invoices = (
        orders.key_by("customer")
        .process(Accounts(seconds_between_outages), Invoice)
        .name("Accounts")
        .uid("accounts")
    )
    for stream, name in ((revenue, "revenue"), (invoices, "invoices")):
        sink = FileSink(str(directory / name), JsonLinesEncoding())
        stream.sink_to(sink).name(f"Files: {name}").uid(f"{name} files")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="default: a temporary one")
    parser.add_argument("--rate", type=float, default=2_000, help="orders per second")
    parser.add_argument("--outages", type=float, default=60, help="seconds between two of them")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tidegate-shop-"))
    logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(levelname)-7s %(message)s")
    logging.getLogger("tidegate").setLevel(logging.INFO)
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(directory / "savepoints"),
        "tidegate.console.live-line": "off",
    }
    with StreamExecutionEnvironment.get_execution_environment(settings) as env:
        env.set_parallelism(2)
        env.enable_checkpointing("5 s")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000_000, "2 s"))
        open_shop(env, directory, arguments.rate, arguments.outages)
        env.execute("shop")


if __name__ == "__main__":
    main()
