"""Becoming a rank: from a rendezvous record to a communicator."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dmlgbm.collectives.communicator import DEFAULT_TIMEOUT, Communicator
from dmlgbm.collectives.frames import session_number
from dmlgbm.collectives.joining.addresses import Address, Listener
from dmlgbm.collectives.joining.groups import Regrouping, split
from dmlgbm.collectives.joining.mesh import connect_mesh
from dmlgbm.collectives.joining.negotiation import TlsContexts
from dmlgbm.collectives.joining.rendezvous import Rendezvous
from dmlgbm.collectives.joining.shared_memory import share_memory
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.spinning import LONGEST_SPIN_MICROSECONDS, spin_for
from dmlgbm.collectives.transports.contract import Transport
from dmlgbm.collectives.transports.sockets import socket_transport
from dmlgbm.collectives.two_level import TwoLevelCommunicator


@dataclass(frozen=True)
class JoinOptions:
    """How ranks talk. All ranks of a session use the same options.

    `shared_memory` moves messages through memory between ranks of one host, which the record must
    name; ranks on several hosts work in two levels. `native=False` chooses the pure Python
    loop, `buffer_bytes` fixes the socket buffers, `timeout` is the deadline of calls and `join_timeout` that of coming
    together, both in seconds. `spin_microseconds` is how long a rank looks for a message before it sleeps; unless
    given, 50 where every rank of the host has a core and 0 elsewhere.
    """

    shared_memory: bool = False
    timeout: float = DEFAULT_TIMEOUT
    join_timeout: float = 60.0
    tls: TlsContexts | None = None
    native: bool | None = None
    buffer_bytes: int | None = None
    spin_microseconds: int | None = None

    def __post_init__(self) -> None:
        if self.spin_microseconds is not None and not 0 <= self.spin_microseconds <= LONGEST_SPIN_MICROSECONDS:
            raise ValueError(
                f"spin_microseconds must be from 0 to {LONGEST_SPIN_MICROSECONDS}, got {self.spin_microseconds}"
            )


def join(rendezvous: Rendezvous, rank: int, listener: Listener, options: JoinOptions | None = None) -> Communicator:
    """Connect with all other ranks. `listener` is the one whose address the record names; it is closed in any case."""
    options = JoinOptions() if options is None else options
    with listener:
        if not 0 <= rank < rendezvous.world_size:
            raise ValueError(f"rank must be from 0 to {rendezvous.world_size - 1}, got {rank}")
        if options.spin_microseconds is None:
            # Groups of this world get the same: their ranks share the cores with those of all other groups.
            options = replace(options, spin_microseconds=spin_for(_ranks_of_this_host(rendezvous, rank)))
        connections = connect_mesh(rendezvous, rank, listener, options.join_timeout, options.tls, options.buffer_bytes)
    try:
        transport = _transport(rendezvous, rank, connections, options)
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise
    session = Session(transport, rendezvous.session, session_number(rendezvous.session), rendezvous.generation)
    regrouping = _SocketRegrouping(rendezvous, rank, options)
    if not options.shared_memory or len(set(rendezvous.hosts)) <= 1:
        return Communicator(session, options.timeout, rendezvous.hosts, regrouping, options.tls)
    return _join_hosts(session, rendezvous, rank, options, regrouping)


def _join_hosts(
    session: Session, rendezvous: Rendezvous, rank: int, options: JoinOptions, regrouping: Regrouping
) -> Communicator:
    """Form the groups of each host and of the leaders out of the world of all ranks."""
    hosts = rendezvous.hosts
    communicator = TwoLevelCommunicator(session, options.timeout, hosts, regrouping, options.tls)
    world = Communicator(session, options.join_timeout)
    try:
        local = split(world, regrouping, 0, hosts.index(hosts[rank]), None)
        assert local is not None
        plain = _SocketRegrouping(rendezvous, rank, replace(options, shared_memory=False))
        leaders = split(world, plain, 0, 0 if local.rank == 0 else None, None)
    except BaseException as error:
        session.abort(f"the groups of hosts could not be formed: {error}")
        raise
    communicator.set_groups(local, leaders)
    return communicator


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

    def join(self, name: str, addresses: Sequence[str], members: Sequence[int], rank: int) -> Communicator:
        assert self._listener is not None
        return join(self._rendezvous.subgroup(name, addresses, members), rank, self._listener, self._options)


def _ranks_of_this_host(rendezvous: Rendezvous, rank: int) -> int:
    """How many ranks share the cores of this one, as far as the record says."""
    return rendezvous.hosts.count(rendezvous.hosts[rank]) if rendezvous.hosts else 0


def _transport(
    rendezvous: Rendezvous, rank: int, connections: dict[int, socket.socket], options: JoinOptions
) -> Transport:
    spin = options.spin_microseconds or 0
    if not options.shared_memory or len(set(rendezvous.hosts)) > 1:
        return socket_transport(rank, connections, options.native, spin)
    return share_memory(rank, connections, options.join_timeout, spin)
