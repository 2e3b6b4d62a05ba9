"""The record that brings ranks together: which session, which generation, which secret, who listens where.

Any engine that can hand one small record to every rank can start a session: each rank binds a listener and
reports its address and host, somebody collects them into a `Rendezvous`, and each rank joins with it. The record is
plain data (`as_dict`, `from_dict`); the secret in it must travel only where strangers cannot read it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from dmlgbm.collectives.joining.addresses import Address

_SHORTEST_SECRET = 16


@cache
def this_host() -> str:
    """A text that is equal for two processes when they can share memory: the same machine, since the same boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    name = boot.read_text(encoding="ascii").strip() if boot.exists() else f"{uuid.getnode():012x}"
    return f"{socket.gethostname()}/{name}"


@dataclass(frozen=True)
class Rendezvous:
    """What every rank of a session is given. `hosts` groups ranks that share memory; empty says that is unknown."""

    session: str
    addresses: tuple[str, ...]
    secret: bytes = field(repr=False)
    generation: int = 0
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("addresses must name at least one rank")
        for address in self.addresses:
            Address.parse(address)
        if len(self.secret) < _SHORTEST_SECRET:
            raise ValueError(f"secret must have at least {_SHORTEST_SECRET} bytes, got {len(self.secret)}")
        if not 0 <= self.generation < 1 << 32:
            raise ValueError(f"generation must be between 0 and 2**32 - 1, got {self.generation}")
        if self.hosts and len(self.hosts) != len(self.addresses):
            raise ValueError(f"hosts has {len(self.hosts)} entries for {len(self.addresses)} addresses")

    @classmethod
    def create(
        cls, addresses: Sequence[str], hosts: Sequence[str] = (), generation: int = 0, session: str | None = None
    ) -> Self:
        """A record with a new secret, and a new session id unless one is given."""
        name = secrets.token_hex(8) if session is None else session
        return cls(name, tuple(addresses), secrets.token_bytes(32), generation, tuple(hosts))

    @property
    def world_size(self) -> int:
        return len(self.addresses)

    def subgroup(self, name: str, addresses: Sequence[str], members: Sequence[int]) -> Rendezvous:
        """The record of a part of this world, with a secret that follows from this one's."""
        return replace(
            self,
            session=f"{self.session}/{name}",
            addresses=tuple(addresses),
            secret=hmac.digest(self.secret, name.encode(), hashlib.sha256),
            hosts=tuple(self.hosts[member] for member in members) if self.hosts else (),
        )

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON can hold it."""
        return asdict(self) | {"secret": self.secret.hex()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            session=str(record["session"]),
            addresses=tuple(map(str, record["addresses"])),
            secret=bytes.fromhex(record["secret"]),
            generation=int(record["generation"]),
            hosts=tuple(map(str, record["hosts"])),
        )
