"""Becoming a rank: from a rendezvous record to a communicator."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectives.addresses import Address, Listener
from collectives.communicator import DEFAULT_TIMEOUT, Communicator
from collectives.frames import session_number
from collectives.mesh import connect_mesh
from collectives.negotiation import TlsContexts
from collectives.rendezvous import Rendezvous
from collectives.session import Session
from collectives.shared_memory import share_memory
from collectives.transports.contract import Transport
from collectives.transports.sockets import socket_transport


@dataclass(frozen=True)
class JoinOptions:
    """How ranks talk. All ranks of a session use the same options.

    `shared_memory` moves messages through memory between ranks of one host. `native=False` chooses the pure Python
    loop, `buffer_bytes` fixes the socket buffers, `timeout` is the deadline of calls and `join_timeout` that of coming
    together, both in seconds.
    """

    shared_memory: bool = False
    timeout: float = DEFAULT_TIMEOUT
    join_timeout: float = 60.0
    tls: TlsContexts | None = None
    native: bool | None = None
    buffer_bytes: int | None = None


def join(rendezvous: Rendezvous, rank: int, listener: Listener, options: JoinOptions | None = None) -> Communicator:
    """Connect with all other ranks. `listener` is the one whose address the record names; it is closed in any case."""
    options = JoinOptions() if options is None else options
    with listener:
        if not 0 <= rank < rendezvous.world_size:
            raise ValueError(f"rank must be from 0 to {rendezvous.world_size - 1}, got {rank}")
        connections = connect_mesh(rendezvous, rank, listener, options.join_timeout, options.tls, options.buffer_bytes)
    try:
        transport = _transport(rendezvous, rank, connections, options)
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise
    session = Session(transport, rendezvous.session, session_number(rendezvous.session), rendezvous.generation)
    return Communicator(session, options.timeout, rendezvous.hosts, _SocketRegrouping(rendezvous, rank, options))


class _SocketRegrouping:
    """Groups of processes bind new listeners where the first one was and connect anew."""

    def __init__(self, rendezvous: Rendezvous, rank: int, options: JoinOptions) -> None:
        self._rendezvous = rendezvous
        self._address = Address.parse(rendezvous.addresses[rank])
        self._options = options
        self._listener: Listener | None = None

    def open(self, name: str, takes_part: bool) -> str:
        if not takes_part:
            return ""
        path, host = self._address.path, self._address.host
        self._listener = Listener.unix(Path(path).parent) if path else Listener.tcp(host)
        return str(self._listener.address)

    def join(self, name: str, addresses: Sequence[str], members: Sequence[int], place: int) -> Communicator:
        assert self._listener is not None
        return join(self._rendezvous.subgroup(name, addresses, members), place, self._listener, self._options)


def _transport(
    rendezvous: Rendezvous, rank: int, connections: dict[int, socket.socket], options: JoinOptions
) -> Transport:
    if not options.shared_memory:
        return socket_transport(rank, connections, options.native)
    if len(set(rendezvous.hosts)) > 1:
        raise ValueError(f"shared_memory=True needs all ranks on one host, the record names {set(rendezvous.hosts)}")
    return share_memory(rank, connections, options.join_timeout)
