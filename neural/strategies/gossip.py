"""Gossip: ranks average with neighbours only; no rank ever hears from all, and yet all models come together.

In a ring every rank takes the mean of its own model and those of both neighbours. With random neighbours, ranks are
paired anew each time by a hash of (seed, meeting), and the two of a pair meet in the middle. Every rank goes on from
its own model; what is evaluated and committed at the end of an epoch is the mean of all.

With a codec, ranks send what has changed since they last told (CHOCO-SGD, Koloskova 2019): everybody keeps, for each
neighbour, a copy that all its messages add up to, and moves towards these copies. What a message leaves
out stays in the difference and is sent later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.gradient_channel import single_payload_codec
from dmlgbm.neural.model import FloatArray, IntArray
from dmlgbm.neural.random_numbers import permutation
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.local_sgd import average_buffers
from dmlgbm.neural.strategies.parts.own_rows import equal_batches, own_step, weight_of_rank


@dataclass
class Gossip(SteppedStrategy):
    """Averages after every `interval` steps, in a "ring" or with "random" neighbours.

    `towards` is how far a rank moves to its neighbours' mean: 1 all the way; with lossy codecs less is steadier.
    """

    name = "gossip"
    synchronous = False
    own_optimisers = True
    neighbours: Literal["ring", "random"] = "ring"
    interval: int = 1
    towards: float = 1.0
    _own: FloatArray | None = field(init=False, default=None)
    _told: dict[int, FloatArray] = field(init=False, default_factory=dict)
    _n_meetings: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.neighbours not in ("ring", "random"):
            raise ValueError(f"neighbours must be ring or random, got {self.neighbours!r}")
        if self.interval < 1:
            raise ValueError(f"interval must be at least 1, got {self.interval}")
        if not 0 < self.towards <= 1:
            raise ValueError(f"towards must be above 0 and at most 1, got {self.towards}")

    def check(self, context: RankContext) -> None:
        super().check(context)
        compressor = context.channel.compressor
        if compressor is None:
            return
        if self.neighbours == "random":
            raise ValueError("compression needs lasting neighbours: use neighbours='ring'")
        single_payload_codec(compressor, self.name)

    def begin_epoch(self, context: RankContext) -> None:
        parameters = context.model.parameters
        if self._own is None:
            self._own = parameters.copy()
            self._told = {rank: parameters.copy() for rank in (*_ring(context), context.rank)}
        parameters[...] = self._own

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        return equal_batches(context, epoch)

    def step(self, context: RankContext, batch: Batch) -> float:
        loss = own_step(context, batch)
        if context.step % self.interval == 0 and context.world_size > 1:
            self._meet(context)
        return loss

    def _meet(self, context: RankContext) -> None:
        self._n_meetings += 1
        parameters = context.model.parameters
        if context.channel.compressor is not None:
            target = self._told_mean(context)
            # The copy of the own model stands for what neighbours believe of it.
            parameters += parameters.dtype.type(self.towards) * (target - self._told[context.rank])
            return
        others = [self._swapped(context, parameters, rank) for rank in self._partners(context)]
        if others:
            mean = np.mean([parameters, *others], axis=0, dtype=np.float64).astype(parameters.dtype)
            parameters += parameters.dtype.type(self.towards) * (mean - parameters)

    def _partners(self, context: RankContext) -> list[int]:
        if self.neighbours == "ring":
            return _ring(context)
        pairs = random_pairs(context.world_size, context.seed, self._n_meetings)
        partner = int(pairs[context.rank])
        return [] if partner == context.rank else [partner]

    def _swapped(self, context: RankContext, array: Any, partner: int) -> Any:
        """The partner's array for this rank's."""
        with context.history.waiting():
            return context.communicator.send_recv(array, partner, np.empty_like(array), partner)

    def _told_mean(self, context: RankContext) -> FloatArray:
        """Tell what has changed, hear it from the neighbours, and the mean of what everybody is known to be."""
        from dmlgbm.collectives.compression import Layout, Round

        assert context.channel.compressor is not None
        codec = single_payload_codec(context.channel.compressor, self.name)
        model, own = context.model, self._told[context.rank]
        for part in model.parts:
            layout = Layout((part.stop - part.start,), model.parameters.dtype)
            round_ = Round(layout, part.name, self._n_meetings, context.world_size)
            stretch = slice(part.start, part.stop)
            body = np.frombuffer(codec.encode(model.parameters[stretch] - own[stretch], round_), np.uint8)
            own[stretch] += codec.decode(body, round_)
            for rank in _ring(context):
                self._told[rank][stretch] += codec.decode(self._swapped(context, body, rank), round_)
        everybody = [self._told[rank] for rank in (*_ring(context), context.rank)]
        return np.asarray(np.mean(everybody, axis=0, dtype=np.float64), own.dtype)

    def finish_epoch(self, context: RankContext) -> None:
        parameters = context.model.parameters
        self._own = parameters.copy()
        if context.world_size > 1:
            weighted = parameters * parameters.dtype.type(weight_of_rank(context))
            parameters[...] = context.communicator.all_reduce(weighted)
        average_buffers(context)

    def rank_state(self) -> dict[str, Any]:
        told = {f"told {rank}": values.copy() for rank, values in self._told.items()}
        return {"own": self._own, "n_meetings": self._n_meetings, **told}

    def restore_rank(self, state: dict[str, Any]) -> None:
        self._own, self._n_meetings = state["own"], int(state["n_meetings"])
        self._told = {int(name.split()[1]): values for name, values in state.items() if name.startswith("told ")}


def _ring(context: RankContext) -> list[int]:
    """Neighbours in an order in which everybody meets somebody who is free: even ranks look up first, odd ones down."""
    up, down = ((context.rank + step) % context.world_size for step in (1, -1))
    if context.world_size < 3:
        return [up] if context.world_size == 2 else []
    return [up, down] if context.rank % 2 == 0 else [down, up]


def random_pairs(n_ranks: int, seed: int, meeting: int) -> IntArray:
    """For each rank its partner in a meeting; with an odd number one rank has itself."""
    order = permutation(hash_of(seed, "pairs", meeting), n_ranks)
    partners = np.arange(n_ranks, dtype=np.int64)
    half = n_ranks // 2
    partners[order[:half]] = order[half : 2 * half]
    partners[order[half : 2 * half]] = order[:half]
    return partners
