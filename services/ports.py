"""Free ports on loopback."""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Ports that are free, each with the one 10,000 above it: SeaweedFS takes it for gRPC."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 10_000))
                if port not in found:
                    found.append(port)
    return found
