"""Where ranks listen (`tcp://host:port`, `tcp://[ipv6]:port`, `unix:///path`), and listeners that keep what they bound.

A listener binds before its address is told to anybody, and the same socket accepts later. Asking for a free port,
letting it go and binding it again would leave a moment in which somebody else can take it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_BACKLOG = 512


@dataclass(frozen=True)
class Address:
    """A parsed address: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        scheme, separator, rest = text.partition("://")
        if separator and scheme == "unix" and rest:
            return cls(path=rest)
        host, colon, port = rest.rpartition(":")
        if scheme != "tcp" or not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"address must be tcp://host:port, tcp://[ipv6]:port or unix:///path, got {text!r}")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


class Listener:
    """A bound and listening socket. Closing it removes the path of a Unix socket."""

    def __init__(self, bound: socket.socket, address: Address) -> None:
        self.socket = bound
        self.address = address

    @classmethod
    def tcp(cls, host: str = "127.0.0.1", port: int = 0) -> Self:
        """Listen on a host name or number of IPv4 or IPv6; port 0 takes any free one."""
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if port:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen(_BACKLOG)
        except OSError as error:
            bound.close()
            raise OSError(error.errno, f"cannot listen on host {host!r}, port {port}: {error.strerror}") from error
        return cls(bound, Address(host=host, port=bound.getsockname()[1]))

    @classmethod
    def unix(cls, folder: str | os.PathLike[str] | None = None) -> Self:
        """Listen on a new Unix socket that only this user can reach."""
        # The process is named for whoever finds the file of one that was killed.
        name = f"dmlgbm-{os.getpid()}-{secrets.token_hex(8)}.sock"
        path = Path(tempfile.gettempdir() if folder is None else folder) / name
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(str(path))
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
            bound.listen(_BACKLOG)
        except OSError as error:
            bound.close()
            path.unlink(missing_ok=True)
            raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from error
        return cls(bound, Address(path=str(path)))

    def close(self) -> None:
        self.socket.close()
        if self.address.path:
            with contextlib.suppress(OSError):
                Path(self.address.path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def start_connecting(address: Address, buffer_bytes: int | None = None) -> socket.socket:
    """A non-blocking socket on its way to an address; its errors show when it becomes writable."""
    if address.path:
        dialled, place = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address.path
    else:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]  # type: ignore[assignment]
        dialled = socket.socket(family, socket.SOCK_STREAM)
    dialled.setblocking(False)
    try:
        limit_buffers(dialled, buffer_bytes)
        dialled.connect(place)
    except BlockingIOError:
        pass
    except OSError:
        dialled.close()
        raise
    return dialled


def limit_buffers(connection: socket.socket, buffer_bytes: int | None) -> None:
    """Replace the buffers that the system would choose; to be called before connecting or accepting."""
    if buffer_bytes is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    if connection.family != getattr(socket, "AF_UNIX", None):
        # A segment as large as the whole window would wait for the timer of a delayed acknowledgement each time.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, max(536, min(buffer_bytes // 4, 16_384)))


def answer_at_once(connection: socket.socket) -> None:
    """Settings for messages that somebody waits for."""
    if connection.family != getattr(socket, "AF_UNIX", None):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
