"""Frames over sockets between processes that share a job's secret.

    frame = length (8 bytes, big endian) · kind (1 byte) · payload

Both ends prove the secret before the first frame of any other kind is read: until then frames are
limited to a few bytes and nothing is unpickled.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.core.errors import ExternalError, LineClosed, NotAuthorized
from tidegate.core.ids import Address

_HEADER = struct.Struct(">QB")
_HANDSHAKE_LIMIT = 64
_FRAME_LIMIT = 1 << 34
_HANDSHAKE_KIND = 0
_HANDSHAKE_TIMEOUT = 20.0
_BUFFER_BYTES = 1 << 20


ConnectionHandler = Callable[["Connection"], None]
"""Called with each authorized connection; when it returns the connection is closed."""


def this_machine() -> str:
    """An identity of the running kernel: two containers of one host differ by their host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def address_towards(host: str) -> str:
    """The address of this machine on the way to `host`; no packet is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


class Connection:
    """An authenticated line. `send` may be called by several threads, `receive` by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._is_closed_here = False
        self.is_other_end_gone = False
        """Whether the end of the line was that of the other process, which then does no more.

        Something on the way may reset a TCP connection whose ends are both alive.
        """

    def send(self, kind: int, *parts: bytes | bytearray | memoryview) -> None:
        """Send one frame whose payload is the concatenation of `parts`."""
        header = _HEADER.pack(sum(len(part) for part in parts), kind)
        try:
            with self._sending:
                if sum(len(part) for part in parts) < 1 << 16:
                    self._socket.sendall(b"".join((header, *parts)))
                else:
                    self._socket.sendall(header)
                    for part in parts:
                        self._socket.sendall(part)
        except OSError as failure:
            raise LineClosed(str(failure)) from failure

    def receive(self, limit: int = _FRAME_LIMIT) -> tuple[int, bytearray]:
        """Wait for a frame.

        Raises:
            LineClosed: the other end is gone.
        """
        length, kind = _HEADER.unpack(self._read(_HEADER.size))
        if length > limit:
            raise LineClosed(f"a frame of {length} bytes where at most {limit} are allowed")
        return kind, self._read(length)

    def _read(self, length: int) -> bytearray:
        buffer = bytearray(length)
        view = memoryview(buffer)
        received = 0
        try:
            while received < length:
                count = self._socket.recv_into(view[received:])
                if count == 0:
                    self.is_other_end_gone = not self._is_closed_here
                    raise LineClosed("the other end closed the connection")
                received += count
        except OSError as failure:
            is_unix = self._socket.family == socket.AF_UNIX
            self.is_other_end_gone = is_unix and not self._is_closed_here
            raise LineClosed(str(failure)) from failure
        return buffer

    def close(self) -> None:
        """Close both directions; a thread that waits in `receive` gets LineClosed."""
        self._is_closed_here = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        self._socket.close()

    def prove(self, secret: bytes, *, we_dialed: bool) -> None:
        """Prove the secret to the other end and have it prove its knowledge to us."""
        self._socket.settimeout(_HANDSHAKE_TIMEOUT)
        ours = secrets.token_bytes(32)
        self.send(_HANDSHAKE_KIND, ours)
        theirs = self._handshake_frame()
        me, them = (b"dialer", b"listener") if we_dialed else (b"listener", b"dialer")
        self.send(_HANDSHAKE_KIND, _proof(secret, me, theirs, ours))
        if not hmac.compare_digest(self._handshake_frame(), _proof(secret, them, ours, theirs)):
            self.close()
            raise NotAuthorized("a connection that does not know the job's secret was refused")
        self._socket.settimeout(None)

    def _handshake_frame(self) -> bytes:
        kind, payload = self.receive(limit=_HANDSHAKE_LIMIT)
        if kind != _HANDSHAKE_KIND:
            raise NotAuthorized("a connection spoke before it proved the job's secret")
        return bytes(payload)


def _proof(secret: bytes, role: bytes, challenge: bytes, salt: bytes) -> bytes:
    return hmac.digest(secret, role + challenge + salt, "sha256")


def dial(address: Address, secret: bytes, timeout: float = 10.0) -> Connection:
    """Connect by the nearest way: the Unix socket on the same machine, TCP otherwise."""
    try:
        if address.unix_path is not None and address.machine == this_machine():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(address.unix_path)
        else:
            sock = socket.create_connection((address.host, address.port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as failure:
        raise LineClosed(f"cannot reach {address}: {failure}") from failure
    _enlarge(sock)
    connection = Connection(sock)
    connection.prove(secret, we_dialed=True)
    return connection


class Listener:
    """Accepts connections at a Unix socket, a TCP port, or both."""

    def __init__(
        self,
        *,
        unix_path: str | None = None,
        host: str | None = None,
        ports: Sequence[int] = (0,),
    ) -> None:
        self._sockets: list[socket.socket] = []
        port = 0
        if unix_path is not None:
            Path(unix_path).unlink(missing_ok=True)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(unix_path)
            sock.listen(128)
            self._sockets.append(sock)
        if host is not None:
            sock = _bind_first_free(host, ports)
            port = sock.getsockname()[1]
            self._sockets.append(sock)
        self.address = Address(host or "", port, unix_path, this_machine())

    def serve(self, secret: bytes, handler: ConnectionHandler) -> None:
        """Give every connection that proves the secret to `handler`, on a thread of its own."""
        for sock in self._sockets:
            threading.Thread(
                target=self._accept,
                args=(sock, secret, handler),
                name="tidegate-accept",
                daemon=True,
            ).start()

    def _accept(self, sock: socket.socket, secret: bytes, handler: ConnectionHandler) -> None:
        while True:
            try:
                accepted, _ = sock.accept()
            except OSError:
                return
            threading.Thread(
                target=_welcome,
                args=(accepted, secret, handler),
                name="tidegate-connection",
                daemon=True,
            ).start()

    def close(self) -> None:
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # a listening socket that nobody waits on
            sock.close()
        if self.address.unix_path is not None:
            Path(self.address.unix_path).unlink(missing_ok=True)


def _welcome(accepted: socket.socket, secret: bytes, handler: ConnectionHandler) -> None:
    _enlarge(accepted)
    if accepted.family != socket.AF_UNIX:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(accepted)
    try:
        connection.prove(secret, we_dialed=False)
        handler(connection)
    except (LineClosed, NotAuthorized):
        pass  # the handler learns of a lost line by its own receive; strangers get no answer
    finally:
        connection.close()


def _bind_first_free(host: str, ports: Sequence[int]) -> socket.socket:
    failure: OSError | None = None
    for port in ports:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(128)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise ExternalError(f"no port of {list(ports)} is free on {host}: {failure}")


def _enlarge(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
