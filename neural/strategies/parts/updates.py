"""Changes of a model that ranks add up: whole, through the codec of `compression=`, or only what changed enough.

Codecs get the arrays of the model one by one, in their own shapes, because a low-rank codec needs matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray


@dataclass
class UpdateSum:
    """Sums of changes over ranks, the same bits on every rank.

    With `send_above` = t, a value travels once what has gathered of it since it was last sent exceeds t times the root
    mean square of a single change; the rest is kept and added to the next one. 0 sends everything.
    """

    send_above: float = 0.0
    _waiting: dict[str, FloatArray] = field(init=False, default_factory=dict)

    def check(self, context: RankContext) -> None:
        """Raise ValueError for settings that exclude each other."""
        if not self.send_above >= 0:
            raise ValueError(f"send_above must be at least 0, got {self.send_above}")
        if self.send_above and context.settings.compression is not None:
            raise ValueError("send_above and compression exclude each other: set send_above=0 or compression=None")

    def state(self) -> dict[str, FloatArray]:
        """What waits to be sent from this rank."""
        return {f"waiting {key}": values.copy() for key, values in self._waiting.items()}

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Take back what `state` returned."""
        prefix = "waiting "
        self._waiting = {name[len(prefix) :]: values for name, values in state.items() if name.startswith(prefix)}

    def __call__(self, context: RankContext, key: str, values: FloatArray) -> FloatArray:
        """The sum over ranks of `values`: a change of the parameters, with or without the buffers behind them."""
        if context.world_size == 1:
            return values
        if self.send_above:
            return self._filtered(context, key, values)
        if context.channel.compressor is None:
            return context.channel.all_reduce(key, values)
        return sum_by_parts(context, key, values)

    def _filtered(self, context: RankContext, key: str, values: FloatArray) -> FloatArray:
        waiting = values + self._waiting.get(key, np.zeros_like(values))
        bar = self.send_above * float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
        positions = np.flatnonzero(np.abs(waiting) > bar)
        with context.history.waiting():
            all_positions = context.communicator.all_gather_unequal(positions.astype(_position_type(values)))
            all_values = context.communicator.all_gather_unequal(waiting[positions])
        waiting[positions] = 0
        self._waiting[key] = waiting
        total = np.zeros_like(values)
        for where, what in zip(all_positions, all_values, strict=True):
            total[where] += what
        return total


def sum_by_parts(context: RankContext, key: str, values: FloatArray) -> FloatArray:
    """The sum over ranks through the codec, array by array of the model."""
    total = np.empty_like(values)
    model = context.model
    for part in model.parts:
        part_sum = context.channel.all_reduce(f"{key} {part.name}", model.view(values, part))
        total[part.start : part.stop] = part_sum.reshape(-1)
    rest = len(model.parameters)
    if rest < len(values):
        total[rest:] = context.communicator.all_reduce(values[rest:])
    return total


def _position_type(values: FloatArray) -> type[np.unsignedinteger]:
    return np.uint32 if len(values) < 1 << 32 else np.uint64
