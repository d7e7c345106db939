"""Numbers that are sent once each, to a job that fails twice: all of them count, exactly once.

A sender gives them to the job over TCP and waits for each to be acknowledged, which happens when it
is in the log of the job. A number whose acknowledgement got lost with a failure is sent again, so
the job remembers those it has had.
"""

import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from tidegate import (
    CallbackSource,
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    durable,
)
from tidegate.datastream.connectors.durable_sources import Emit
from tidegate.errors import NotAccepted

NUMBERS = range(1, 101)
END = "end"


def listen(port: int) -> Callable[[Emit], Callable[[], None]]:
    """A subscription, for a slot: a server that acknowledges a line when it is in the log."""

    def subscribe(emit: Emit) -> Callable[[], None]:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    if not is_taken(line.decode().strip()):
                        return
                    self.wfile.write(b"ok\n")

        def is_taken(line: str) -> bool:
            if line == END:
                emit.end()
                return True
            try:
                emit(int(line))
            except NotAccepted:
                return False
            return True

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        socketserver.ThreadingTCPServer.daemon_threads = True
        server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def unsubscribe() -> None:
            server.shutdown()
            server.server_close()

        return unsubscribe

    return subscribe


def send(port: int) -> None:
    """Every number until it is acknowledged."""
    for line in [*map(str, NUMBERS), END]:
        while not is_acknowledged(port, line):
            time.sleep(0.05)


def is_acknowledged(port: int, line: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"{line}\n".encode())
            return connection.makefile().readline() == "ok\n"
    except OSError:
        return False


class FailsTwice(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value: int) -> int:
        if (self.attempt, value) in ((0, 30), (1, 60)):
            raise RuntimeError(f"failure {self.attempt + 1}, at {value}")
        return value


class OnlyNew(KeyedProcessFunction):
    """The numbers that were not there before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_known = runtime_context.get_state(ValueStateDescriptor("known", Types.BOOLEAN()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        if not self.is_known.value():
            self.is_known.update(True)
            yield value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def main() -> None:
    port = free_port()
    threading.Thread(target=send, args=(port,), daemon=True).start()
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(1).enable_checkpointing("200 ms")
        env.get_checkpoint_config().set_checkpoint_storage(tempfile.mkdtemp(prefix="checkpoints-"))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, "100 ms"))
        source = durable(CallbackSource(listen(port), Types.LONG()))
        numbers = env.from_source(source, source_name="Numbers").uid("numbers")
        new = numbers.map(FailsTwice(), Types.LONG()).key_by(lambda n: n).process(OnlyNew())
        total = new.map(lambda n: ("all", n, 1)).key_by(lambda part: part[0])
        sums = total.reduce(lambda a, b: (a[0], a[1] + b[1], a[2] + b[2]))
        with sums.execute_and_collect("numbers") as results:
            _, found, count = list(results)[-1]
    print(f"{count} numbers, their sum is {found}; it should be {sum(NUMBERS)}")


if __name__ == "__main__":
    main()
