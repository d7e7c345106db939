"""What somebody without the secret of a job may do to one of its listeners, drawn from a seed."""

from __future__ import annotations

import os
import pickle
import random
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tidegate.core.ids import Address

HEADER = struct.Struct(">QB")


class Trap:
    """Whoever loads it leaves a file behind."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._file),)


def connected(address: Address) -> socket.socket:
    if address.unix_path is None:
        return socket.create_connection((address.host, address.port), 20)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(address.unix_path)
    return sock


def exactly(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def frame(payload: bytes, kind: int = 0) -> bytes:
    return HEADER.pack(len(payload), kind) + payload


def attack(address: Address, seed: int, connections: int, trap: Path) -> list[str]:
    """Open many connections, each to do its own mischief; returns what they did.

    Those that stay idle are open until the last has been opened.
    """
    choices = random.Random(seed)
    load = pickle.dumps(Trap(trap))
    done = []
    with ExitStack() as open_ones:
        for _ in range(connections):
            what = choices.choice(sorted(WAYS))
            done.append(what)
            # A listener may hang up on a stranger at any time.
            with suppress(OSError):
                sock = open_ones.enter_context(connected(address))
                WAYS[what](sock, choices, load)
    return done


def _idle(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    pass


def _garbage(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    sock.sendall(choices.randbytes(choices.choice([1, 8, 9, 73, 4096])))


def _drip(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    for byte in frame(bytes(32))[: choices.randrange(40)]:
        sock.sendall(bytes([byte]))


def _long_frame(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    sock.sendall(HEADER.pack(choices.choice([65, 1 << 34, 2**64 - 1]), 0) + bytes(100))


def _message_before_the_proof(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    sock.sendall(frame(load, choices.choice([0, 1, 7])))


def _message_after_a_wrong_proof(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    sock.sendall(frame(choices.randbytes(32)) * 2 + frame(load, 1) * 3)


def _mirrored_proof(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    """What the listener says comes back to it, as if it were ours."""
    for _ in range(2):
        sock.sendall(exactly(sock, HEADER.size + 32))
    sock.sendall(frame(load, 1))


def _reset(sock: socket.socket, choices: random.Random, load: bytes) -> None:
    sock.sendall(frame(bytes(32))[: choices.randrange(42)])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


WAYS = {
    "idle": _idle,
    "garbage": _garbage,
    "drip": _drip,
    "long frame": _long_frame,
    "message before the proof": _message_before_the_proof,
    "message after a wrong proof": _message_after_a_wrong_proof,
    "mirrored proof": _mirrored_proof,
    "reset": _reset,
}
