"""Consensus ADMM for linear models: every rank solves its own problem, pulled towards a consensus by multipliers.

Rank i has x (its model) and u (how far it has been from the consensus so far). In a round it minimises its loss plus
rho / 2 |x - z + u|**2 by its optimiser, adds x - z to u, and hands in x + u; the consensus z is the mean of what all
ranks have handed in last. The sum lives on a parameter server that may be read before everybody has handed in:
`staleness` rounds ahead of the slowest at most. With staleness 0 it is the synchronous method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.gradient_channel import single_payload_codec
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.strategies.base import Strategy
from dmlgbm.neural.strategies.parameter_server import ParameterServerStrategy
from dmlgbm.neural.strategies.parts.own_rows import weight_of_rank


@dataclass
class ADMM(Strategy):
    """`rho` holds ranks together; `local_epochs` passes over its rows bring a rank near the minimum of its problem.

    An epoch of the training loop is `rounds` rounds; between rounds a rank may be `staleness` rounds ahead. A codec
    carries what ranks hand in; what it leaves out goes with what they hand in next.
    """

    name = "admm"
    synchronous = False
    own_optimisers = True
    rho: float = 1.0
    local_epochs: int = 5
    rounds: int = 1
    staleness: int = 0
    _multiplier: FloatArray | None = field(init=False, default=None)
    _server: ParameterServerStrategy = field(init=False)
    _restored: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rho > 0:
            raise ValueError(f"rho must be above 0, got {self.rho}")
        for name, least in (("local_epochs", 1), ("rounds", 1), ("staleness", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        self._server = (
            ParameterServerStrategy(consistency="ssp", staleness=self.staleness)
            if self.staleness
            else ParameterServerStrategy()
        )

    def check(self, context: RankContext) -> None:
        super().check(context)
        if context.channel.compressor is not None:
            single_payload_codec(context.channel.compressor, self.name)
        self._server.check(context)
        if context.model.n_layers != 1 or len(context.model.buffers):
            raise ValueError(
                f"strategy 'admm' trains linear models, and this one has {context.model.n_layers} layers: use "
                "DMLLinearClassifier or DMLLinearRegressor, or another strategy"
            )

    def begin(self, context: RankContext) -> None:
        self._multiplier = None
        self._restored = {}
        self._server.begin(context)

    def begin_epoch(self, context: RankContext) -> None:
        if self._multiplier is not None:
            return
        # Everybody starts from the model of the group, so the mean of what has been handed in is that model.
        self._consensus = context.model.parameters.copy()
        self._own = self._consensus.copy()
        self._multiplier = np.zeros_like(self._consensus)
        self._handed_in = self._consensus.copy()
        self._server.begin_epoch(context)
        self._n_rounds = 0
        if self._restored:
            self._own, self._multiplier = self._restored["own"], self._restored["multiplier"]
            self._handed_in, self._n_rounds = self._restored["handed_in"], int(self._restored["n_rounds"])

    def train_epoch(self, context: RankContext) -> None:
        first_step = context.epoch * context.batches.steps_per_epoch
        loss = 0.0
        for _ in range(self.rounds):
            loss += self._solve(context, first_step) / self.rounds
            self._hand_in(context)
        context.step = first_step + context.batches.steps_per_epoch
        context.history.add_loss(loss, Batch(np.empty(0, np.int64), 1))

    def _solve(self, context: RankContext, first_step: int) -> float:
        """Bring x near the minimum of the rank's own problem; its share of the loss of all rows."""
        assert self._multiplier is not None
        model, weight = context.model, weight_of_rank(context)
        model.parameters[...] = self._own
        anchor = self._consensus - self._multiplier
        size = max(1, round(context.settings.batch_size * weight))
        loss, n_steps = 0.0, 0
        for epoch in range(self.local_epochs):
            for batch in context.batches.own_epoch(self._n_rounds * self.local_epochs + epoch, size):
                context.step = first_step
                loss += context.compute_gradients(batch, together=False)
                n_steps += 1
                # Problems are weighted by rows, and so that their mean over ranks is the loss of all rows.
                model.gradients *= model.gradients.dtype.type(weight * context.world_size)
                model.gradients += model.gradients.dtype.type(self.rho) * (model.parameters - anchor)
                context.update()
        self._own = model.parameters.copy()
        self._n_rounds += 1
        return weight * loss / n_steps

    def _hand_in(self, context: RankContext) -> None:
        assert self._multiplier is not None
        self._multiplier += self._own - self._consensus
        offered = self._own + self._multiplier
        self._consensus = self._server.exchange(context, (offered - self._handed_in) / context.world_size)
        self._handed_in = offered

    def finish_epoch(self, context: RankContext) -> None:
        """The consensus after everybody has handed in for the last time."""
        self._consensus = self._server.meet(context)
        context.model.parameters[...] = self._consensus

    def rank_state(self) -> dict[str, Any]:
        own = {"own": self._own, "multiplier": self._multiplier, "handed_in": self._handed_in}
        return {**self._server.rank_state(), **own, "n_rounds": self._n_rounds}

    def restore_rank(self, state: dict[str, Any]) -> None:
        self._server.restore_rank(state)
        self._restored = state  # taken up when there are weights on a server

    def end(self, context: RankContext) -> None:
        self._server.end(context)
