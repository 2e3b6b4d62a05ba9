"""Which rows belong to which client of federated training: evenly mixed, a few classes each, or by random shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import IntArray
from dmlgbm.neural.random_numbers import permutation, uniform

Partition: TypeAlias = Literal["iid", "classes", "dirichlet"]


@dataclass(frozen=True)
class ClientRows:
    """`partition` of rows over clients.

    iid: shuffled and dealt out evenly. classes: every client has rows of `classes_per_client` classes, and the rows of
    a class are dealt out evenly over the clients that have it. dirichlet: every class is cut into random shares, the
    more unequal the smaller `concentration` is.
    """

    partition: Partition
    classes_per_client: int
    concentration: float

    def __post_init__(self) -> None:
        if self.partition not in get_args(Partition):
            raise ValueError(f"partition must be one of {', '.join(get_args(Partition))}, got {self.partition!r}")
        if self.classes_per_client < 1:
            raise ValueError(f"classes_per_client must be at least 1, got {self.classes_per_client}")
        if not self.concentration > 0:
            raise ValueError(f"concentration must be above 0, got {self.concentration}")

    def of_rank(self, context: RankContext, n_clients: int) -> dict[int, IntArray]:
        """Positions in the shard for each client this rank can work for: all of them where it reaches all rows."""
        shard = context.shard
        clients, owned = range(n_clients), shard.owned
        if shard.replicated:
            owned = np.arange(len(shard.numbers), dtype=np.int64)
        else:
            first, last = (n_clients * k // context.world_size for k in (context.rank, context.rank + 1))
            clients = range(first, last)
        if not len(clients) and len(owned):
            raise ValueError(f"n_clients={n_clients} is less than one client a rank ({context.world_size} ranks)")
        seed = context.seed if shard.replicated else hash_of(context.seed, "rows of rank", context.rank)
        parts = self.deal(shard.targets[owned], len(clients), seed)
        return {client: owned[part] for client, part in zip(clients, parts, strict=True)}

    def deal(self, targets: npt.NDArray[np.generic], n_clients: int, seed: int) -> list[IntArray]:
        """For each client the positions of its rows, ascending."""
        if self.partition == "iid":
            order = permutation(hash_of(seed, "clients"), len(targets))
            return [np.sort(part) for part in np.array_split(order, n_clients)] if n_clients else []
        if targets.dtype.kind == "f":
            raise ValueError(f"partition={self.partition!r} needs classes: use partition='iid' for a regression")
        classes, codes = np.unique(targets, return_inverse=True)
        held: list[list[IntArray]] = [[] for _ in range(n_clients)]
        weights = self._weights(n_clients, len(classes), seed)
        for code in range(len(classes)):
            rows = np.flatnonzero(codes == code)
            rows = rows[permutation(hash_of(seed, "rows of class", code), len(rows))]
            borders = np.rint(np.cumsum(weights[:, code]) / weights[:, code].sum() * len(rows)).astype(int)
            for client, part in enumerate(np.split(rows, borders[:-1])):
                held[client].append(part)
        return [np.sort(np.concatenate(parts)).astype(np.int64) for parts in held]

    def _weights(self, n_clients: int, n_classes: int, seed: int) -> npt.NDArray[np.float64]:
        """Clients by classes: how the rows of a class are shared out."""
        if self.partition == "classes":
            return _dealt_classes(n_clients, n_classes, self.classes_per_client, seed)
        from scipy.special import gammaincinv

        draws = uniform(hash_of(seed, "shares"), n_clients * n_classes).reshape(n_clients, n_classes)
        # Shares of a Dirichlet distribution are gamma variables over their sum; no sum may vanish.
        return np.maximum(gammaincinv(self.concentration, draws), 1e-12)


def _dealt_classes(n_clients: int, n_classes: int, per_client: int, seed: int) -> npt.NDArray[np.float64]:
    """Cards from shuffled decks of all classes: every client gets different ones, every class nearly equally often."""
    if per_client > n_classes:
        raise ValueError(f"classes_per_client={per_client}, but there are only {n_classes} classes")
    if n_clients * per_client < n_classes:
        raise ValueError(
            f"{n_clients} clients with {per_client} classes each cannot hold all {n_classes} classes: raise n_clients "
            "or classes_per_client"
        )
    weights = np.zeros((n_clients, n_classes))
    deck: list[int] = []
    n_decks = 0
    for client in range(n_clients):
        hand: list[int] = []
        while len(hand) < per_client:
            fitting = [card for card in deck if card not in hand]
            if not fitting:
                deck.extend(permutation(hash_of(seed, "deck", n_decks), n_classes).tolist())
                n_decks += 1
                continue
            hand.append(fitting[0])
            deck.remove(fitting[0])
        weights[client, hand] = 1.0
    return weights
