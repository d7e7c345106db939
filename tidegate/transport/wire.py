"""Frames over sockets between processes that share a job's secret.

    frame  = header · tag · payload · tag (tags on TCP only: 16 bytes)
    header = length of the payload (8 bytes, big endian) · kind (1 byte)

Both ends prove the secret before any other frame is read: until then, frames are limited to a few
bytes and nothing is unpickled. The proof also yields a key for each direction, which authenticates
the header and the payload of every TCP frame together with their number: a frame that was changed,
inserted, repeated, dropped or moved ends the line before memory is allocated for its payload, or
before its payload is used. Nothing is encrypted.
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import logging
import secrets
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.core.errors import ExternalError, LineClosed, NotAuthorized
from tidegate.core.ids import Address

_HEADER = struct.Struct(">QB")
_HANDSHAKE_LIMIT = 64
_FRAME_LIMIT = 1 << 34
_HANDSHAKE_KIND = 0
_HANDSHAKE_SECONDS = 20.0
_MOST_STRANGERS = 64
"""The most unauthenticated connections of a listener; the oldest is dropped for a new one."""
_TAG_BYTES = 16
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESOURCES_MAY_BE_BACK_SECONDS = 0.2
_BUFFER_BYTES = 1 << 20
_PROMPT_BYTES = 1 << 16
"""A fraction of the buffers that systems allow."""
_NO_BYTES = bytes(4)
_NOTHING = memoryview(b"")
_READ_AHEAD = 1 << 12
"""Small frames are read at once, with their headers."""
_log = logging.getLogger("tidegate.transport")

ConnectionHandler = Callable[["Connection"], None]
"""Called with each authenticated connection, which is closed when it returns."""


def this_machine() -> str:
    """An identity of the running kernel; containers on one host differ by host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def address_towards(host: str) -> str:
    """The local address that reaches `host`; sends no packet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


class _Seal:
    """Authenticates the headers and payloads of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def tag(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """The tag of the next header or payload."""
        number = self._number.to_bytes(8, "big")
        self._number += 1
        mac = self._keyed.copy()
        mac.update(number)
        for part in parts:
            mac.update(part)
        return mac.digest()[:_TAG_BYTES]


class Connection:
    """An authenticated line. `send` is thread-safe, `receive` is for one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._is_unix = sock.family == socket.AF_UNIX
        self._sending = threading.Lock()
        self._is_cut_off = False
        """Whether a frame may be incomplete: nothing may follow it."""
        self._sends: _Seal | None = None
        self._receives: _Seal | None = None
        self._ahead = _NOTHING
        """Received, but not read yet."""
        self._deadline: float | None = None
        """The deadline for the other end's proof; None: it has been received."""
        self._says_nothing = False
        """Whether its end tells nothing about the other end: it was closed here, or was reset."""
        self.is_other_end_gone = False
        """Whether the line ended because the other process ended.

        The network may reset a TCP connection whose ends are both alive.
        """

    def send(self, kind: int, *parts: bytes | bytearray | memoryview) -> None:
        """Send one frame whose payload is the concatenation of `parts`.

        Raises:
            LineClosed: the other end is gone, or the system refused the frame. In the second case
                the line lives, and a thread that reads it is not woken.
        """
        length = sum(len(part) for part in parts)
        header = _HEADER.pack(length, kind)
        frame = (header, *parts)
        with self._sending:
            if self._is_cut_off:
                raise LineClosed("an earlier frame is incomplete")
            try:
                if self._sends is not None:
                    frame = (header, self._sends.tag(header), *parts, self._sends.tag(*parts))
                if length < 1 << 16:
                    self._socket.sendall(b"".join(frame))
                else:
                    for part in frame:
                        self._socket.sendall(part)
            except OSError as failure:
                self._is_cut_off = True
                if not self._is_unix and failure.errno not in (errno.EPIPE, *_OUT_OF_RESOURCES):
                    self._says_nothing = True
                raise LineClosed(str(failure)) from failure

    def has_room_for(self, size: int) -> bool:
        """Whether `send` need not wait for the other end to receive what was sent before.

        True only for small frames, and not on every system.
        """
        if size > _PROMPT_BYTES:
            return False
        try:
            found = fcntl.ioctl(self._socket, termios.TIOCOUTQ, _NO_BYTES)
        except (OSError, ValueError):
            return False  # closed, or unknown here
        return bool(struct.unpack("i", found)[0] + size <= _PROMPT_BYTES)

    def receive(self, limit: int = _FRAME_LIMIT) -> tuple[int, bytearray]:
        """Wait for a frame.

        Raises:
            LineClosed: the other end is gone, or the frame was changed in transit. In the second
                case the line is still open, but nothing more can be received.
        """
        length, kind = _HEADER.unpack(self._read_sealed(_HEADER.size))
        if length > limit:
            raise LineClosed(f"a frame has {length} bytes, but at most {limit} are allowed")
        return kind, self._read_sealed(length)

    def _read_sealed(self, length: int) -> bytearray:
        if self._receives is None:
            return self._read(length)
        part = self._read(length + _TAG_BYTES)
        tag = part[length:]
        del part[length:]
        if not hmac.compare_digest(tag, self._receives.tag(part)):
            _log.error("a frame was refused and its line ends: it was changed in transit")
            raise LineClosed("a frame was changed in transit")
        return part

    def _read(self, length: int) -> bytearray:
        if length <= len(self._ahead):  # the rest of a small frame
            found, self._ahead = bytearray(self._ahead[:length]), self._ahead[length:]
            return found
        buffer = bytearray(max(length, _READ_AHEAD))
        view = memoryview(buffer)
        received = len(self._ahead)
        view[:received] = self._ahead
        while received < length:
            received += self._receive_into(view[received:])
        if length == len(buffer):
            self._ahead = _NOTHING
            return buffer
        self._ahead = view[length:received]
        return buffer[:length]

    def _receive_into(self, view: memoryview) -> int:
        try:
            if self._deadline is not None:
                self._socket.settimeout(max(self._deadline - time.monotonic(), 1e-3))
            count = self._socket.recv_into(view)
        except OSError as failure:
            self.is_other_end_gone = self._is_unix and not self._says_nothing
            raise LineClosed(str(failure)) from failure
        if count == 0:
            # The system reports a reset once: a thread that sends may have got it, or get it now.
            is_certain = self._is_unix or not self._sending.locked()
            self.is_other_end_gone = is_certain and not self._says_nothing
            raise LineClosed("the other end closed the connection")
        return count

    def close(self) -> None:
        """Close both directions; a thread waiting in `receive` gets LineClosed."""
        self.hang_up()
        with self._sending:  # who sends now must not get into a line with the same descriptor
            self._socket.close()

    def hang_up(self) -> None:
        """Shut down both directions, but leave the socket to the thread that reads it.

        If it were closed while that thread is about to wait, the thread could wait for another
        connection that gets the same file descriptor.
        """
        self._says_nothing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster

    def end_sending(self) -> None:
        """Shut down one direction: the other end sees that nothing follows, and may still send."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other end was faster

    def prove(self, secret: bytes, *, we_dialed: bool) -> None:
        """Prove the secret to the other end and verify its proof, within a time limit."""
        self._deadline = time.monotonic() + _HANDSHAKE_SECONDS
        ours = secrets.token_bytes(32)
        self.send(_HANDSHAKE_KIND, ours)
        theirs = self._handshake_frame()
        me, them = (b"dialer", b"listener") if we_dialed else (b"listener", b"dialer")
        self.send(_HANDSHAKE_KIND, _proof(secret, me, theirs, ours))
        if not hmac.compare_digest(self._handshake_frame(), _proof(secret, them, ours, theirs)):
            self.close()
            raise NotAuthorized("a connection that does not know the job's secret was refused")
        self._deadline = None
        try:
            self._socket.settimeout(None)
        except OSError as failure:
            raise LineClosed(str(failure)) from failure
        if not self._is_unix:  # the kernel protects Unix sockets
            self._sends = _Seal(_proof(secret, me + b" sends", theirs, ours))
            self._receives = _Seal(_proof(secret, them + b" sends", ours, theirs))

    def _handshake_frame(self) -> bytes:
        kind, payload = self.receive(limit=_HANDSHAKE_LIMIT)
        if kind != _HANDSHAKE_KIND:
            raise NotAuthorized("a connection spoke before it proved the job's secret")
        return bytes(payload)


def _proof(secret: bytes, role: bytes, challenge: bytes, salt: bytes) -> bytes:
    return hmac.digest(secret, role + challenge + salt, "sha256")


def dial(address: Address, secret: bytes, timeout: float = 10.0) -> Connection:
    """Connect by Unix socket on the same machine, otherwise by TCP."""
    try:
        if address.unix_path is not None and address.machine == this_machine():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(address.unix_path)
        else:
            sock = socket.create_connection((address.host, address.port), timeout)
        _prepare(sock)
    except OSError as failure:
        raise LineClosed(f"cannot reach {address}: {failure}") from failure
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
        self._is_closed = False
        self._strangers: dict[Connection, None] = {}
        self._changing = threading.Lock()
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
        """Pass every connection that proves the secret to `handler`, each on its own thread."""
        for sock in self._sockets:
            threading.Thread(
                target=self._accept,
                args=(sock, secret, handler),
                name="tidegate-accept",
                daemon=True,
            ).start()

    def _accept(self, sock: socket.socket, secret: bytes, handler: ConnectionHandler) -> None:
        is_short = False
        while True:
            try:
                accepted, _ = sock.accept()
                self._welcome(accepted, secret, handler)
                is_short = False
            except (OSError, RuntimeError) as failure:
                if self._is_closed or sock.fileno() < 0:
                    return
                # A connection may be gone before it is accepted; then there is no need to wait.
                if getattr(failure, "errno", errno.EMFILE) not in _OUT_OF_RESOURCES:
                    continue
                if not is_short:
                    _log.error("no connection can be accepted at the moment: %s", failure)
                is_short = True
                time.sleep(_RESOURCES_MAY_BE_BACK_SECONDS)

    def _welcome(self, accepted: socket.socket, secret: bytes, handler: ConnectionHandler) -> None:
        _prepare(accepted)
        connection = Connection(accepted)
        with self._changing:
            crowded_out = None
            if len(self._strangers) >= _MOST_STRANGERS:
                crowded_out = next(iter(self._strangers))
                del self._strangers[crowded_out]
            self._strangers[connection] = None
        if crowded_out is not None:
            crowded_out.hang_up()
        try:
            threading.Thread(
                target=self._meet,
                args=(connection, secret, handler),
                name="tidegate-connection",
                daemon=True,
            ).start()
        except RuntimeError:
            self._is_known(connection)
            connection.close()
            raise

    def _meet(self, connection: Connection, secret: bytes, handler: ConnectionHandler) -> None:
        try:
            connection.prove(secret, we_dialed=False)
            self._is_known(connection)
            handler(connection)
        except (LineClosed, NotAuthorized):
            pass  # the handler notices a lost line in its own receive; strangers get no answer
        finally:
            self._is_known(connection)
            connection.close()

    def _is_known(self, connection: Connection) -> None:
        with self._changing:
            self._strangers.pop(connection, None)

    def close(self) -> None:
        self._is_closed = True
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # a listening socket that nobody waits for
            sock.close()
        if self.address.unix_path is not None:
            Path(self.address.unix_path).unlink(missing_ok=True)


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


def _prepare(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
