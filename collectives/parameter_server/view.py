"""The versioned table of a session: which servers hold which shard, in which order, and which workers take part.

Keys are hashed to a fixed number of virtual shards; each shard has a chain of servers. The first of a chain takes the
requests, the last one has acknowledged what counts as done. A server in `joining` receives a copy of a shard and is
not yet part of its chain. Only the coordinator makes views; a higher version replaces a lower one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from dmlgbm.collectives.parameter_server.consistency import Consistency

NOBODY = -1


@dataclass(frozen=True)
class Placement:
    """Where one shard lives; `since` is the version in which `joining` began, to tell it from an earlier attempt."""

    chain: tuple[int, ...]
    joining: int = NOBODY
    since: int = 0

    @property
    def head(self) -> int:
        return self.chain[0]

    @property
    def everybody(self) -> tuple[int, ...]:
        return self.chain if self.joining == NOBODY else (*self.chain, self.joining)

    def after(self, server: int) -> int:
        """The server that gets a shard's updates from this one, or NOBODY."""
        order = self.everybody
        following = order.index(server) + 1
        return order[following] if following < len(order) else NOBODY

    def before(self, server: int) -> int:
        order = self.everybody
        position = order.index(server)
        return order[position - 1] if position else NOBODY


@dataclass(frozen=True)
class View:
    """What everybody in the session goes by.

    Version 0 says that the servers are still gathering; `started` that the first workers are all there.
    """

    version: int
    consistency: Consistency
    placements: tuple[Placement, ...]
    addresses: tuple[tuple[int, str], ...]
    workers: tuple[int, ...]
    lease_seconds: float
    started: bool = False

    @property
    def formed(self) -> bool:
        return self.version > 0

    def address_of(self, server: int) -> str | None:
        return dict(self.addresses).get(server)


@lru_cache(maxsize=1 << 16)
def shard_of(key: str, part: int, n_shards: int) -> int:
    """The shard of one part of a key: the same in every process."""
    digest = hashlib.blake2b(f"{part}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % n_shards


# A worker's number holds its rank and which attempt of that rank it is: sums in the order of numbers are in the
# order of ranks, and a worker that comes back is never mistaken for the one that was lost.
_ATTEMPTS = 1 << 32


def worker_number(rank: int, attempt: int) -> int:
    return rank * _ATTEMPTS + attempt


def rank_of(worker: int) -> int:
    return worker // _ATTEMPTS
