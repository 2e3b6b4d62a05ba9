"""Ranks that are threads of one process: they meet in a hub that holds the memory of each world and group."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from dmlgbm.collectives.communicator import DEFAULT_TIMEOUT, Communicator
from dmlgbm.collectives.frames import session_number
from dmlgbm.collectives.joining.rendezvous import this_host
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.spinning import spin_for
from dmlgbm.collectives.transports.rings import RingArea, RingTransport


class Hub:
    """Where threads meet. Each of `world_size` threads calls `join` with its rank."""

    def __init__(
        self,
        world_size: int,
        timeout: float = DEFAULT_TIMEOUT,
        session: str | None = None,
        spin_microseconds: int | None = None,
    ) -> None:
        if world_size < 1:
            raise ValueError(f"world_size must be at least 1, got {world_size}")
        self.world_size = world_size
        self._spin = spin_for(world_size) if spin_microseconds is None else spin_microseconds
        self._timeout = timeout
        self._session = secrets.token_hex(8) if session is None else session
        self._area = RingArea.private(world_size)
        self._groups: dict[tuple[str, tuple[int, ...]], Hub] = {}
        self._lock = threading.Lock()

    def join(self, rank: int) -> Communicator:
        """The communicator of one rank; each rank joins once."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank must be from 0 to {self.world_size - 1}, got {rank}")
        transport = RingTransport(rank, self.world_size, self._area, spin_microseconds=self._spin)
        session = Session(transport, self._session, session_number(self._session), 0)
        return Communicator(session, self._timeout, (this_host(),) * self.world_size, _HubRegrouping(self))

    def group(self, name: str, members: Sequence[int]) -> Hub:
        """The hub of a part of this world, the same one for every member that asks."""
        key = (name, tuple(members))
        with self._lock:
            if key not in self._groups:
                self._groups[key] = Hub(len(members), self._timeout, f"{self._session}/{name}", self._spin)
            return self._groups[key]


class _HubRegrouping:
    """Groups of threads need no address: they meet in the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def open(self, name: str, takes_part: bool) -> str:
        return ""

    def join(self, name: str, addresses: Sequence[str], members: Sequence[int], rank: int) -> Communicator:
        return self._hub.group(name, members).join(rank)
