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
        "Serve the REST API, which the command line uses, too.",
    )
    address: str = option(
        "rest.bind-address",
        TEXT,
        "127.0.0.1",
        "Address of the REST API. Another one than the loopback address needs a token.",
    )
    ports: tuple[int, ...] = option(
        "rest.port",
        PORTS,
        (0,),
        "Port of the REST API, or a range such as 8081-8090 of which the first free port is "
        "used; 0: any free port.",
        ("rest.bind-port",),
    )
    token: str | None = option(
        "tidegate.rest.token",
        TEXT,
        None,
        "Token that requests must carry as `Authorization: Bearer …`. Required on other "
        "addresses than loopback.",
    )
    read_only: bool = option(
        "tidegate.rest.read-only",
        BOOLEAN,
        False,
        "Refuse every operation, such as savepoints and cancellation.",
    )
    savepoint_directories: tuple[str, ...] = option(
        "tidegate.rest.savepoint-directories",
        LIST,
        (),
        "Directories in which requests may write and delete savepoints, besides "
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
