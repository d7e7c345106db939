"""The REST API of a driver, under Flink's keys if it has them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from tidegate.core.errors import ConfigError
from tidegate.core.options import BOOLEAN, LIST, PORTS, TEXT, option

_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """Where the driver listens, and which requests it accepts."""

    enabled: bool = option(
        "tidegate.rest.enabled",
        BOOLEAN,
        True,
        "Serve the REST API, which the command line also uses.",
    )
    address: str = option(
        "rest.bind-address",
        TEXT,
        "127.0.0.1",
        "The address of the REST API. Other than loopback, it requires a token.",
    )
    ports: tuple[int, ...] = option(
        "rest.port",
        PORTS,
        (0,),
        "Its port, or a range like 8081-8090 for the first free one; 0: any free "
        "one, shown by `tidegate list`.",
        ("rest.bind-port",),
    )
    token: str | None = option(
        "tidegate.rest.token",
        TEXT,
        None,
        "Requests must send it as `Authorization: Bearer …`. Required beyond loopback.",
    )
    read_only: bool = option(
        "tidegate.rest.read-only",
        BOOLEAN,
        False,
        "Refuse all orders, such as savepoints and cancellation.",
    )
    savepoint_directories: tuple[str, ...] = option(
        "tidegate.rest.savepoint-directories",
        LIST,
        (),
        "Where requests may write and delete savepoints, besides "
        "execution.checkpointing.savepoint-dir.",
    )

    def __post_init__(self) -> None:
        if self.enabled and not self.is_loopback and self.token is None:
            raise ConfigError(
                "rest.bind-address",
                self.address,
                "set tidegate.rest.token to a secret as well, as others can reach this address",
            )
        if self.token is not None and (
            len(self.token) < _SHORTEST_TOKEN or not self.token.isascii() or " " in self.token
        ):
            raise ConfigError(
                "tidegate.rest.token",
                "(hidden)",
                f"give at least {_SHORTEST_TOKEN} ASCII characters without blanks",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False
