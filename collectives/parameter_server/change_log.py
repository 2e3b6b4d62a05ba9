"""When the values of a key changed last, so that a reader who has an older copy gets only what is different.

A server begins to take notes when it is first asked for changes; until then, and on a server that took over, all values
count as changed just now. Notes are therefore no part of what replicas hold in common.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.collectives.parameter_server.codec import Array

# Of positions that nothing is known about, because there is nothing yet.
_NEVER = np.iinfo(np.int64).min


class ChangeLog:
    """For each position of a table the number of the update, of all updates of its shard, that changed it last."""

    def __init__(self, n_positions: int, update: int) -> None:
        self.began = update
        self._changed_by = np.full(n_positions, update, np.int64)

    def note(self, positions: Array, update: int) -> None:
        """These positions, given by numbers or by a mask, have changed; new ones may be among them."""
        if positions.dtype != np.bool_ and positions.size and positions.max() >= len(self._changed_by):
            missing = max(int(positions.max()) + 1 - len(self._changed_by), len(self._changed_by))
            self._changed_by = np.concatenate([self._changed_by, np.full(missing, _NEVER)])
        self._changed_by[positions] = update

    def positions_since(self, update: int) -> Array:
        """The positions that changed after an update, in order."""
        return np.flatnonzero(self._changed_by > update)
