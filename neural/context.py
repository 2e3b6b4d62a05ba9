"""Everything one rank has while it trains: what a strategy is handed in every call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dmlgbm.neural.batches import Batch, BatchSource
from dmlgbm.neural.errors import NonFiniteLossError
from dmlgbm.neural.gradient_channel import GradientChannel
from dmlgbm.neural.history import RankHistory
from dmlgbm.neural.model import FloatArray, LayerReady, Model, Pass
from dmlgbm.neural.optimisers import Optimiser
from dmlgbm.neural.schedules import Schedule
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.shards import RowShard

if TYPE_CHECKING:
    from dmlgbm.collectives import Communicator


@dataclass
class RankContext:
    """One rank's communicator, model, rows, optimiser and records. `step` counts updates, `epoch` passes."""

    communicator: Communicator
    model: Model
    shard: RowShard
    batches: BatchSource
    optimiser: Optimiser
    schedule: Schedule
    settings: TrainingSettings
    history: RankHistory
    channel: GradientChannel
    epoch: int = 0
    step: int = 0
    validation: RowShard | None = None

    @property
    def rank(self) -> int:
        return self.communicator.rank

    @property
    def world_size(self) -> int:
        return self.communicator.world_size

    @property
    def seed(self) -> int:
        return self.settings.seed

    def sum_in_step(self, values: FloatArray) -> FloatArray:
        """Sums that layers need inside a pass of all ranks together (synchronised batch normalisation)."""
        with self.history.waiting():
            return self.communicator.all_reduce(values)

    def compute_gradients(
        self, batch: Batch, *, together: bool, on_layer_ready: LayerReady | None = None, step: int | None = None
    ) -> float:
        """Fill `model.gradients` from this rank's rows of a batch; its share of the loss.

        `together` says that all ranks work on this batch in the same call, so that layers may sum over ranks inside.
        """
        inputs, targets = self.shard.take(batch.positions)
        pass_ = Pass(
            step=self.step if step is None else step,
            row_numbers=self.shard.numbers[batch.positions],
            n_rows=batch.n_rows,
            sum_over_ranks=self.sum_in_step if together and self.world_size > 1 else None,
            weights=self.shard.weights_of(batch.positions),
        )
        loss = self.model.compute_gradients(inputs, targets, pass_, on_layer_ready)
        if not math.isfinite(loss):
            raise NonFiniteLossError(loss, self.rank, self.epoch, self.step, self.model.name_of_bad_layer())
        return loss

    def update(self) -> None:
        """One step of the optimiser with the gradients in the model: penalty, clipping, learning rate of this step."""
        model, settings = self.model, self.settings
        if settings.l2:
            for part in model.parts:
                if part.decays:
                    model.gradients[part.start : part.stop] += settings.l2 * model.parameters[part.start : part.stop]
        if settings.clip_norm is not None:
            length = float(np.linalg.norm(model.gradients))
            if length > settings.clip_norm:
                model.gradients *= settings.clip_norm / length
        self.optimiser.step(model.parameters, model.gradients, self.schedule.at(self.step))
        self.step += 1
