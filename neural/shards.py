"""The rows a rank can reach, and which of them are its own.

Rows are known by their global numbers. On one machine every rank reaches all rows (`replicated`) and owns an equal
share; on a cluster a rank reaches what its partitions hold and owns all of that. Ranks may own no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmlgbm.neural.model import FloatArray, Inputs, IntArray


@dataclass(frozen=True)
class RowShard:
    """Rows with their global numbers; `numbers` ascends and `owned` holds positions in it, ascending too.

    `n_rows` counts the rows of all ranks. `targets` are class codes (int64) or values (rows x outputs, floating).
    `weights` say how much each row counts, 1 on average over all ranks; None where all count alike.
    """

    inputs: Inputs
    targets: FloatArray | IntArray
    numbers: IntArray
    owned: IntArray
    n_rows: int
    replicated: bool
    weights: FloatArray | None = None

    @classmethod
    def of_all(
        cls,
        inputs: Inputs,
        targets: FloatArray | IntArray,
        rank: int,
        world_size: int,
        weights: FloatArray | None = None,
    ) -> RowShard:
        """Every row, of which this rank owns the stretch rank / world_size."""
        n_rows = inputs.shape[0]
        owned = np.arange(rank * n_rows // world_size, (rank + 1) * n_rows // world_size, dtype=np.int64)
        return cls(inputs, targets, np.arange(n_rows, dtype=np.int64), owned, n_rows, True, weights)

    @classmethod
    def of_part(
        cls,
        inputs: Inputs,
        targets: FloatArray | IntArray,
        numbers: IntArray,
        n_rows: int,
        weights: FloatArray | None = None,
    ) -> RowShard:
        """Rows that only this rank has."""
        return cls(inputs, targets, numbers, np.arange(len(numbers), dtype=np.int64), n_rows, False, weights)

    def with_owned(self, owned: IntArray) -> RowShard:
        """The same rows with another share, such as that of one simulated client."""
        return replace(self, owned=owned)

    def take(self, positions: IntArray) -> tuple[Inputs, FloatArray | IntArray]:
        """Inputs and targets of some rows."""
        return self.inputs[positions], self.targets[positions]

    def weights_of(self, positions: IntArray) -> FloatArray | None:
        """How much some rows count."""
        return None if self.weights is None else self.weights[positions]
