"""``python -m services start|stop|status [NAME ...]``: real servers for tests and examples."""

import importlib
import sys
from pathlib import Path
from typing import Protocol, cast

from services.unavailable import Unavailable

NAMES = ("kafka", "postgres")
HOME = Path(__file__).parent.parent / ".services"


class Service(Protocol):
    """What each of the named modules offers."""

    def lacks(self) -> str | None: ...
    def start(self, home: Path) -> str: ...
    def stop(self, home: Path) -> None: ...
    def address(self, home: Path) -> str | None: ...


def start(name: str, service: Service) -> bool:
    missing = service.lacks()
    if missing is None:
        try:
            print(f"{name}: runs at {service.start(HOME / name)}")
        except Unavailable as reason:
            missing = str(reason)
    if missing is not None:
        print(f"{name}: cannot run here: {missing}")
    return missing is None


def stop(name: str, service: Service) -> bool:
    service.stop(HOME / name)
    print(f"{name}: does not run")
    return True


def status(name: str, service: Service) -> bool:
    address = service.address(HOME / name)
    print(f"{name}: {'does not run' if address is None else f'runs at {address}'}")
    return address is not None


ACTIONS = {"start": start, "stop": stop, "status": status}


def main(arguments: list[str]) -> int:
    action = ACTIONS.get(arguments[0]) if arguments else None
    names = arguments[1:] or NAMES
    if action is None or not set(names) <= set(NAMES):
        print(f"usage: python -m services {'|'.join(ACTIONS)} [{' '.join(NAMES)}]", file=sys.stderr)
        return 2
    done = [
        action(name, cast(Service, importlib.import_module(f"services.{name}"))) for name in names
    ]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
