"""Federated averaging: in every round some clients train on their own rows, and their updates become one.

An epoch of the training loop is one round. Clients are simulated: each has rows of its own (`client_rows`), and each
rank works for some of those that were drawn. A client starts from the model of the group with a fresh optimiser; the
learning rate is that of the round. What clients have learnt is brought together by `client_sums`, after
clipping and before noise where privacy is asked for.

FedSGD is the special case of one step a round: `local_epochs=1, local_batch_size="all"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.aggregation.privacy import clipped, gaussian_noise, rounds_within, spent_epsilon
from dmlgbm.neural.aggregation.robust import ROBUST_AGGREGATES
from dmlgbm.neural.batches import Batch, BatchSource
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray, IntArray
from dmlgbm.neural.random_numbers import permutation, uniform
from dmlgbm.neural.strategies.base import Strategy
from dmlgbm.neural.strategies.parts.client_rows import ClientRows, Partition
from dmlgbm.neural.strategies.parts.client_sums import ClientUpdate, robust_aggregate, secure_sum, weighted_sum
from dmlgbm.neural.strategies.parts.model_vector import set_vector, vector_of
from dmlgbm.neural.strategies.parts.updates import UpdateSum


@dataclass
class FedAvg(Strategy):
    """Options, by what they are about:

    *Clients*: `n_clients` of them, a share `client_fraction` of which is drawn for each round; `partition`,
    `classes_per_client` and `concentration` deal out the rows (see `ClientRows`).
    *Local work*: `local_epochs` over a client's rows in batches of `local_batch_size` rows ("all" for one batch, None
    for `batch_size`).
    *Aggregation*: `aggregator` is mean, krum, multi_krum, trimmed_mean or median; the mean is weighted by rows, or
    equally with `weighting="equal"`; the others take up to `hostile_fraction` of the updates for hostile. The
    model moves by `server_rate` times the aggregate, with `server_momentum`.
    *Secrecy*: `secure` masks updates in fixed point with `fixed_point_bits`. `clip_update` bounds the length of each
    update; with `noise_multiplier` = z, noise of deviation z * clip_update is added to their sum, each client is
    drawn by itself with probability `client_fraction`, and training refuses to spend more than `epsilon` at `delta`.
    *Trials*: `lost_fraction` of the drawn clients never deliver, and `sign_flippers` (a share of all clients) send
    `-flip_scale` times what they have learnt.
    *Traffic*: `send_above` sends only values that changed enough (see `UpdateSum`).
    """

    name = "fedavg"
    synchronous = False
    n_clients: int = 100
    client_fraction: float = 0.1
    partition: Partition = "iid"
    classes_per_client: int = 2
    concentration: float = 0.5
    local_epochs: int = 1
    local_batch_size: int | Literal["all"] | None = None
    weighting: Literal["rows", "equal"] = "rows"
    aggregator: str = "mean"
    hostile_fraction: float = 0.2
    server_rate: float = 1.0
    server_momentum: float = 0.0
    secure: bool = False
    fixed_point_bits: int = 24
    clip_update: float | None = None
    noise_multiplier: float = 0.0
    epsilon: float | None = None
    delta: float = 1e-5
    lost_fraction: float = 0.0
    sign_flippers: float = 0.0
    flip_scale: float = 1.0
    send_above: float = 0.0
    _rows: dict[int, IntArray] = field(init=False, default_factory=dict)
    _sum: UpdateSum = field(init=False)
    _client_rows: ClientRows = field(init=False)
    _velocity: FloatArray = field(init=False, default_factory=lambda: np.empty(0))
    _n_rounds: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_shares(self)
        _check_words(self)
        _check_combinations(self)
        self._client_rows = ClientRows(self.partition, self.classes_per_client, self.concentration)
        self._sum = UpdateSum(self.send_above)

    def check(self, context: RankContext) -> None:
        super().check(context)
        self._sum.check(context)
        plain = self.aggregator == "mean" and not self.secure
        if not plain and context.settings.compression is not None:
            raise ValueError(
                f"strategy {self.name!r} can use compression={context.settings.compression!r} only for updates "
                "that are added up openly: set aggregator='mean' and secure=False, or compression=None"
            )
        if self.epsilon is not None:
            affordable = rounds_within(self.noise_multiplier, self.client_fraction, self.epsilon, self.delta)
            if context.settings.max_epochs > affordable:
                raise ValueError(
                    f"max_epochs={context.settings.max_epochs} rounds would spend more than epsilon={self.epsilon:g} "
                    f"at delta={self.delta:g}: {affordable} rounds fit; raise noise_multiplier for more"
                )

    def begin(self, context: RankContext) -> None:
        self._rows = self._client_rows.of_rank(context, self.n_clients)
        self._velocity = np.zeros(len(context.model.parameters) + len(context.model.buffers))
        self._n_rounds = 0

    # A round.

    def train_epoch(self, context: RankContext) -> None:
        round_, first_step = context.epoch, context.epoch * context.batches.steps_per_epoch
        start = vector_of(context.model)
        updates, losses = [], []
        for client in self._clients_of_rank(context, round_):
            context.step = first_step
            losses.append(self._train_client(context, client, round_))
            learnt: FloatArray = vector_of(context.model) - start
            learnt *= start.dtype.type(self._sign(context, client))
            if self.clip_update is not None:
                learnt = clipped(learnt, self.clip_update)
            weight = float(len(self._rows[client])) if self._by_rows else 1.0
            updates.append(ClientUpdate(client, weight, learnt, not self._is_lost(context, client, round_)))
            set_vector(context.model, start)
        context.step = first_step + context.batches.steps_per_epoch
        self._move(context, start, self._aggregate(context, updates, round_))
        self._n_rounds = round_ + 1
        self._record(context, losses)

    @property
    def _by_rows(self) -> bool:
        return self.weighting == "rows" and not self.noise_multiplier

    def drawn(self, seed: int, round_: int) -> IntArray:
        """The clients of a round, ascending: a fixed number of them, or for privacy each one by itself."""
        key = hash_of(seed, "clients of round", round_)
        if self.noise_multiplier:
            return np.flatnonzero(uniform(key, self.n_clients) < self.client_fraction).astype(np.int64)
        count = max(1, round(self.client_fraction * self.n_clients))
        return np.sort(permutation(key, self.n_clients)[:count])

    def _clients_of_rank(self, context: RankContext, round_: int) -> Iterator[int]:
        """Those this rank works for: dealt out where it could work for any, otherwise the ones whose rows it has."""
        clients = [int(client) for client in self.drawn(context.seed, round_) if client in self._rows]
        if context.shard.replicated:
            clients = clients[context.rank :: context.world_size]
        return (client for client in clients if len(self._rows[client]))

    def _train_client(self, context: RankContext, client: int, round_: int) -> float:
        """Train the model on the rows of one client; the mean loss of its rows."""
        rows = self._rows[client]
        asked = context.settings.batch_size if self.local_batch_size is None else self.local_batch_size
        size = len(rows) if asked == "all" else min(asked, len(rows))
        seed = hash_of(context.seed, "client", client)
        source = BatchSource(context.shard.with_owned(rows), size, context.settings.sampling, seed, 0, 1)
        context.optimiser.begin(context.model.parameters, context.model.parts)
        start, first_step = context.model.parameters.copy(), context.step
        total = 0.0
        for epoch in range(self.local_epochs):
            for number, batch in enumerate(source.own_epoch(round_ * self.local_epochs + epoch, size)):
                # Noise in layers differs from step to step; the learning rate is that of the round.
                step = first_step + epoch * source.steps_per_epoch + number
                total += context.compute_gradients(batch, together=False, step=step) * batch.n_rows
                self.pull_back(context, start)
                context.update()
                context.step = first_step
        return total / (self.local_epochs * len(rows))

    def pull_back(self, context: RankContext, start: FloatArray) -> None:
        """Change a client's gradient; plain averaging leaves it as it is."""

    def _sign(self, context: RankContext, client: int) -> float:
        flips = permutation(hash_of(context.seed, "sign flippers"), self.n_clients)
        hostile = client in flips[: round(self.sign_flippers * self.n_clients)]
        return -self.flip_scale if hostile else 1.0

    def _is_lost(self, context: RankContext, client: int, round_: int) -> bool:
        drawn = self.drawn(context.seed, round_)
        order = drawn[permutation(hash_of(context.seed, "lost clients", round_), len(drawn))]
        return client in order[: round(self.lost_fraction * len(drawn))]

    def _aggregate(self, context: RankContext, updates: list[ClientUpdate], round_: int) -> FloatArray:
        if self.aggregator != "mean":
            return robust_aggregate(context, updates, self.aggregator, self.hostile_fraction)
        # Privacy wants a divisor that does not tell who took part.
        expected = self.client_fraction * self.n_clients if self.noise_multiplier else None
        if self.secure:
            mean = secure_sum(context, updates, self.fixed_point_bits, expected)
        else:
            mean = weighted_sum(context, updates, self._sum, expected)
        if expected is not None and self.clip_update is not None:
            deviation = self.noise_multiplier * self.clip_update / expected
            key = hash_of(context.seed, "noise of round", round_)
            mean = mean + gaussian_noise(key, len(mean), deviation).astype(mean.dtype)
        return mean

    def _move(self, context: RankContext, start: FloatArray, update: FloatArray) -> None:
        self._velocity = self.server_momentum * self._velocity + update
        set_vector(context.model, start + (self.server_rate * self._velocity).astype(start.dtype))

    def _record(self, context: RankContext, losses: list[float]) -> None:
        """The mean loss over the clients of all ranks, as this rank's share of it."""
        own = np.array([sum(losses), len(losses)], np.float64)
        count = own if context.world_size == 1 else context.communicator.all_reduce(own)
        context.history.add_loss(own[0] / max(1.0, count[1]), Batch(np.empty(0, np.int64), 1))

    def finish_epoch(self, context: RankContext) -> None:
        """Optimisers belong to clients, and clients are gone."""
        context.optimiser.begin(context.model.parameters, context.model.parts)

    # What a commit holds.

    def state(self) -> dict[str, Any]:
        """`epsilon` is what has been spent; infinite without noise."""
        spent = spent_epsilon(self.noise_multiplier, self.client_fraction, self._n_rounds, self.delta)
        return {"velocity": self._velocity.copy(), "n_rounds": self._n_rounds, "epsilon": spent}

    def restore(self, state: dict[str, Any]) -> None:
        self._velocity = np.array(state["velocity"])
        self._n_rounds = int(state["n_rounds"])

    def rank_state(self) -> dict[str, Any]:
        return self._sum.state()

    def restore_rank(self, state: dict[str, Any]) -> None:
        self._sum.restore(state)


def _check_numbers(options: FedAvg) -> None:
    at_least_one = ("n_clients", "local_epochs")
    not_negative = (
        "server_rate",
        "server_momentum",
        "noise_multiplier",
        "lost_fraction",
        "sign_flippers",
        "flip_scale",
    )
    for name in at_least_one:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    for name in not_negative:
        if not 0 <= getattr(options, name) < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(options, name)}")
    if not 1 <= options.fixed_point_bits <= 52:
        raise ValueError(f"fixed_point_bits must be from 1 to 52, got {options.fixed_point_bits}")
    for name in ("clip_update", "epsilon"):
        if getattr(options, name) is not None and not getattr(options, name) > 0:
            raise ValueError(f"{name} must be above 0, got {getattr(options, name)}")
    if not 0 < options.delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {options.delta}")


def _check_shares(options: FedAvg) -> None:
    if not 0 < options.client_fraction <= 1:
        raise ValueError(f"client_fraction must be above 0 and at most 1, got {options.client_fraction}")
    if options.sign_flippers > 1:
        raise ValueError(f"sign_flippers must be a share of the clients from 0 to 1, got {options.sign_flippers}")
    for name, below in (("hostile_fraction", 0.5), ("lost_fraction", 1.0), ("server_momentum", 1.0)):
        if not 0 <= getattr(options, name) < below:
            raise ValueError(f"{name} must be at least 0 and below {below}, got {getattr(options, name)}")


def _check_words(options: FedAvg) -> None:
    aggregators = ("mean", *ROBUST_AGGREGATES)
    if options.aggregator not in aggregators:
        raise ValueError(f"aggregator must be one of {', '.join(aggregators)}, got {options.aggregator!r}")
    if options.weighting not in ("rows", "equal"):
        raise ValueError(f"weighting must be rows or equal, got {options.weighting!r}")
    size = options.local_batch_size
    if not (size is None or size == "all" or (isinstance(size, int) and size >= 1)):
        raise ValueError(f"local_batch_size must be a number of rows, 'all' or None, got {size!r}")


def _check_combinations(options: FedAvg) -> None:
    if options.aggregator != "mean":
        for name in ("secure", "noise_multiplier", "send_above"):
            if getattr(options, name):
                raise ValueError(f"{name} needs aggregator='mean': {options.aggregator} looks at single updates")
    if options.secure and options.send_above:
        raise ValueError("send_above and secure exclude each other: masked values all look changed")
    if options.noise_multiplier and options.clip_update is None:
        raise ValueError("noise_multiplier needs clip_update: noise is measured against the longest update")
    if options.epsilon is not None and not options.noise_multiplier:
        raise ValueError("epsilon needs noise_multiplier: without noise nothing is private")
