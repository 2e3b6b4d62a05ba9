"""Ensemble and distil: ranks train apart without a word, then one model of the same size learns to answer like all.

First every rank trains a teacher of its own on its own rows. For the last epochs all ranks know all teachers and train
one student together, on batches of all rows, towards the mean of the teachers' answers. Until then the model of the
group is the teacher of rank 0, which has seen the rows of that rank alone and is never the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.losses import CrossEntropy, probabilities_of
from dmlgbm.neural.model import FloatArray, Pass
from dmlgbm.neural.network import Network
from dmlgbm.neural.random_numbers import permutation
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.parts.model_vector import set_vector, vector_of
from dmlgbm.neural.strategies.parts.own_rows import equal_batches, own_step
from dmlgbm.neural.strategies.parts.updates import UpdateSum


@dataclass
class EnsembleDistil(SteppedStrategy):
    """The last `distil_epochs` (None: a half) train the student.

    It learns from the teachers' probabilities at `temperature`, with weight `soft`, and from the targets with the rest.
    """

    name = "ensemble_distil"
    synchronous = False
    own_optimisers = True
    distil_epochs: int | None = None
    soft: float = 0.9
    temperature: float = 2.0
    _teachers: FloatArray | None = field(init=False, default=None)
    _own: FloatArray | None = field(init=False, default=None)
    _sum: UpdateSum = field(init=False, default_factory=UpdateSum)

    def __post_init__(self) -> None:
        if self.distil_epochs is not None and self.distil_epochs < 1:
            raise ValueError(f"distil_epochs must be at least 1, got {self.distil_epochs}")
        if not 0 <= self.soft <= 1:
            raise ValueError(f"soft must be from 0 to 1, got {self.soft}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

    def check(self, context: RankContext) -> None:
        super().check(context)
        model, settings = context.model, context.settings
        if not isinstance(model, Network) or not isinstance(model.loss, CrossEntropy):
            raise ValueError("strategy 'ensemble_distil' needs a network of this library with loss='logistic'")
        if settings.max_epochs < 2 or self._n_distil(context) >= settings.max_epochs:
            raise ValueError(
                f"max_epochs={settings.max_epochs} leaves no epochs to train teachers before "
                f"distil_epochs={self._n_distil(context)}"
            )

    def _n_distil(self, context: RankContext) -> int:
        return context.settings.max_epochs // 2 if self.distil_epochs is None else self.distil_epochs

    def _distils(self, context: RankContext) -> bool:
        return context.epoch >= context.settings.max_epochs - self._n_distil(context)

    def begin(self, context: RankContext) -> None:
        self._initial = vector_of(context.model)
        self._own = self._teachers = None

    def begin_epoch(self, context: RankContext) -> None:
        if self._distils(context):
            if context.epoch == context.settings.max_epochs - self._n_distil(context):
                set_vector(context.model, self._initial)
                context.optimiser.begin(context.model.parameters, context.model.parts)
            return
        if self._own is None:
            self._own = self._first_teacher(context)
            context.optimiser.begin(context.model.parameters, context.model.parts)
        set_vector(context.model, self._own)

    def _first_teacher(self, context: RankContext) -> FloatArray:
        """Where a rank goes on, or its beginning: other initial weights than all others, of the same distribution."""
        if self._teachers is not None and context.rank < len(self._teachers):
            return self._teachers[context.rank].copy()
        start = self._initial.copy()
        for part in context.model.parts:
            if context.rank and part.decays:
                order = permutation(hash_of(context.seed, "teacher", context.rank, part.name), part.stop - part.start)
                start[part.start : part.stop] = start[part.start : part.stop][order]
        return start

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        return context.batches.global_epoch(epoch) if self._distils(context) else equal_batches(context, epoch)

    def step(self, context: RankContext, batch: Batch) -> float:
        if not self._distils(context):
            return own_step(context, batch)
        loss = self._student_gradients(context, batch)
        gradients = context.model.gradients
        gradients[...] = self._sum(context, "gradients", gradients)
        context.update()
        return loss

    def _student_gradients(self, context: RankContext, batch: Batch) -> float:
        """Gradients of the mixed loss, from this rank's rows; its share of the loss against the targets."""
        model = context.model
        assert isinstance(model, Network)
        inputs, targets = context.shard.take(batch.positions)
        teaching = self._teaching(context, inputs)
        pass_ = Pass(context.step, context.shard.numbers[batch.positions], batch.n_rows, None)
        outputs = model.forward(inputs, pass_)
        soft = probabilities_of(outputs / self.temperature) - teaching
        weights = context.shard.weights_of(batch.positions)
        loss, hard = model.loss.value_and_gradient(outputs.copy(), targets, weights)
        if weights is not None:
            soft *= weights[:, None].astype(soft.dtype)
        # The gradient of softened answers shrinks with the temperature; times it, both halves stay comparable.
        slope = (1.0 - self.soft) * hard + self.soft * self.temperature * soft[:, -hard.shape[1] :]
        model.backward((slope / batch.n_rows).astype(outputs.dtype))
        return loss / batch.n_rows

    def _teaching(self, context: RankContext, inputs: Any) -> FloatArray:
        """The mean of the teachers' probabilities for rows."""
        assert self._teachers is not None
        student = vector_of(context.model)
        answers = []
        for teacher in self._teachers:
            set_vector(context.model, teacher)
            answers.append(probabilities_of(context.model.outputs(inputs) / self.temperature))
        set_vector(context.model, student)
        return np.asarray(np.mean(answers, axis=0, dtype=np.float64), student.dtype)

    def finish_epoch(self, context: RankContext) -> None:
        if self._distils(context):
            buffers = context.model.buffers
            if len(buffers) and context.world_size > 1:
                buffers[...] = context.communicator.all_reduce(buffers) / buffers.dtype.type(context.world_size)
            return
        self._own = vector_of(context.model)
        self._teachers = self._own[None] if context.world_size == 1 else context.communicator.all_gather(self._own)
        set_vector(context.model, self._teachers[0])

    def has_result(self, context: RankContext) -> bool:
        return self._distils(context)

    def state(self) -> dict[str, Any]:
        return {} if self._teachers is None else {"teachers": self._teachers.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        if "teachers" in state:
            self._teachers = np.array(state["teachers"])

    def rank_state(self) -> dict[str, Any]:
        return {"own": self._own}

    def restore_rank(self, state: dict[str, Any]) -> None:
        # Set, so that the optimiser of a teacher is not begun again.
        self._own = state["own"]
