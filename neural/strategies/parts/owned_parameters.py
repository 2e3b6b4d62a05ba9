"""Parameters that one rank alone keeps up to date, where ranks share the work on a model instead of the rows.

Between epochs every rank has the whole model and the whole state of the optimiser. During an epoch a rank moves only
what it owns: stretches of the flat vector, with an optimiser of its own over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray, IntArray, ParameterPart
from dmlgbm.neural.optimisers import OPTIMISERS, Optimiser


@dataclass
class OwnedParameters:
    """`positions` in the model's vector that this rank owns, in an order in which `parts` are consecutive.

    `buffer_positions` are those of the buffers. `parameters` and `gradients` are vectors of the owned values.
    """

    positions: IntArray
    parts: Sequence[ParameterPart]
    buffer_positions: IntArray
    parameters: FloatArray = field(init=False)
    gradients: FloatArray = field(init=False)
    buffers: FloatArray = field(init=False)
    _optimiser: Optimiser = field(init=False)

    def begin(self, context: RankContext) -> None:
        """Make room and the optimiser."""
        dtype, settings = context.model.parameters.dtype, context.settings
        self.parameters, self.gradients = (np.zeros(len(self.positions), dtype) for _ in range(2))
        self.buffers = np.zeros(len(self.buffer_positions), dtype)
        self._optimiser = OPTIMISERS[settings.optimiser](**settings.optimiser_options)
        self._optimiser.begin(self.parameters, self.parts)

    def take(self, context: RankContext) -> None:
        """The owned values of the model and of its optimiser."""
        self.parameters[...] = context.model.parameters[self.positions]
        self.buffers[...] = context.model.buffers[self.buffer_positions]
        self._optimiser.n_steps = context.optimiser.n_steps
        for name, vector in self._optimiser.state.items():
            vector[...] = context.optimiser.state[name][self.positions]

    def update(self, context: RankContext) -> None:
        """What `context.update` does, for the owned values; the length of the gradient is that of all ranks."""
        settings = context.settings
        if settings.l2:
            for part in self.parts:
                if part.decays:
                    stretch = slice(part.start, part.stop)
                    self.gradients[stretch] += settings.l2 * self.parameters[stretch]
        if settings.clip_norm is not None:
            square = np.array([np.square(self.gradients, dtype=np.float64).sum()])
            if context.world_size > 1:
                with context.history.waiting():
                    square = context.communicator.all_reduce(square)
            length = float(np.sqrt(square[0]))
            if length > settings.clip_norm:
                self.gradients *= settings.clip_norm / length
        self._optimiser.step(self.parameters, self.gradients, context.schedule.at(context.step))
        context.step += 1

    def give(self, context: RankContext) -> None:
        """Put the owned values of all ranks together in every rank's model and optimiser."""
        model, optimiser = context.model, context.optimiser
        self._spread(context, model.parameters, self.parameters, self.positions)
        self._spread(context, model.buffers, self.buffers, self.buffer_positions)
        for name, vector in self._optimiser.state.items():
            self._spread(context, optimiser.state[name], vector, self.positions)
        optimiser.n_steps = self._optimiser.n_steps

    @staticmethod
    def _spread(context: RankContext, whole: FloatArray, owned: FloatArray, positions: IntArray) -> None:
        if not len(whole):
            return
        # Exactly one rank has a value for each position; zeros of the others do not change it.
        mine = np.zeros_like(whole)
        mine[positions] = owned
        if context.world_size > 1:
            with context.history.waiting():
                mine = context.communicator.all_reduce(mine)
        whole[...] = mine


def check_whole_rows(context: RankContext, name: str) -> None:
    """Refuse rows that lie on different ranks, which all must see."""
    if not context.shard.replicated and context.world_size > 1:
        raise ValueError(
            f"strategy {name!r} needs all rows on every rank: fit arrays with backend='threads' or 'processes'"
        )


def positions_of(parts: Sequence[ParameterPart]) -> IntArray:
    """Where whole parts lie, one behind the other."""
    stretches = [np.arange(part.start, part.stop, dtype=np.int64) for part in parts]
    return np.concatenate(stretches) if stretches else np.empty(0, np.int64)


def consecutive(parts: Sequence[ParameterPart]) -> list[ParameterPart]:
    """The same parts in a vector that holds nothing else."""
    moved, start = [], 0
    for part in parts:
        stop = start + part.stop - part.start
        moved.append(ParameterPart(part.name, part.layer, start, stop, part.shape, part.decays))
        start = stop
    return moved
