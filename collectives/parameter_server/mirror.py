"""A worker's own copy of a key, brought up to date by the changes that servers send it.

Answers may overtake each other. Each says which update of its shard it is as of, and brings everything that changed
since an update the copy already had when it was asked for: an answer older than the copy has nothing to add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.codec import Array
from dmlgbm.collectives.parameter_server.messages import Changes, KeySpec
from dmlgbm.collectives.parameter_server.table import part_bounds

_NEVER = -1


@dataclass
class Mirror:
    """The copy of one key; `Store.pull_changes` keeps it. A table is held whole, with all the rows it may have."""

    key: str
    _as_of: list[int] = field(init=False, default_factory=list)
    _values: Array = field(init=False, default_factory=lambda: np.empty(0))

    def as_of(self, part: int) -> int:
        """The update of its shard up to which a part is known; negative where nothing is."""
        return self._as_of[part] if self._as_of else _NEVER

    def update(self, spec: KeySpec, answers: Sequence[Changes]) -> Array:
        """Take one answer for each part; the values of the key as they are then, as an array of the caller's own."""
        if not self._as_of:
            self._as_of = [_NEVER] * spec.parts
            width = prod(spec.shape)
            self._values = np.full((spec.n_rows, width) if spec.n_rows else width, spec.fill, spec.dtype)
        for part, changes in enumerate(answers):
            if changes.index >= self._as_of[part]:
                self._take(spec, part, changes)
                self._as_of[part] = changes.index
        shape = (spec.n_rows, *spec.shape) if spec.n_rows else spec.shape
        return self._values.reshape(shape).copy()

    def _take(self, spec: KeySpec, part: int, changes: Changes) -> None:
        target = self._values if spec.n_rows else self._values[slice(*part_bounds(spec, part))]
        if spec.n_rows and changes.complete:
            self._values[part :: spec.parts] = spec.fill
        values = changes.values.reshape(-1, *target.shape[1:])
        if changes.positions is None:
            if values.shape != target.shape:
                raise ProtocolError(f"part {part} of key {self.key!r} came with {values.shape} for {target.shape}")
            target[...] = values
            return
        positions = changes.positions
        inside = not positions.size or 0 <= positions.min() <= positions.max() < len(target)
        if not inside or positions.shape != values.shape[:1]:
            raise ProtocolError(f"changes of part {part} of key {self.key!r} are for positions that it does not have")
        target[positions] = values
