"""When the values of a key changed last, so that a reader who has an older copy gets only what is different.

A server begins to take notes when it is first asked for changes; until then, and on a server that took over, all values
count as changed just now. Notes are therefore no part of what replicas hold in common.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.collectives.parameter_server.codec import Array

# Of places that nothing is known about, because there is nothing yet.
_NEVER = np.iinfo(np.int64).min


class ChangeLog:
    """For each place of a table the number of the update, of all updates of its shard, that changed it last."""

    def __init__(self, n_places: int, update: int) -> None:
        self.began = update
        self._changed_by = np.full(n_places, update, np.int64)

    def note(self, places: Array, update: int) -> None:
        """These places, given by numbers or by a mask, have changed; new ones may be among them."""
        if places.dtype != np.bool_ and places.size and places.max() >= len(self._changed_by):
            missing = max(int(places.max()) + 1 - len(self._changed_by), len(self._changed_by))
            self._changed_by = np.concatenate([self._changed_by, np.full(missing, _NEVER)])
        self._changed_by[places] = update

    def places_since(self, update: int) -> Array:
        """The places that changed after an update, in order."""
        return np.flatnonzero(self._changed_by > update)
