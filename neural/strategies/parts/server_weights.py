"""The weights of a model on a parameter server, with a count of the batches behind them: whole, coded, or in blocks.

Workers push changes, which the server adds up. Where pushes leave values out, pulls bring only what changed. The count
travels as one more number behind the weights, so that it always belongs to the values it is pulled with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dmlgbm.neural.model import FloatArray

if TYPE_CHECKING:
    from dmlgbm.collectives import Handle
    from dmlgbm.collectives.compression import GatheredCodec
    from dmlgbm.collectives.parameter_server import Mirror, Store

_KEY = "weights"
_BLOCK = 64


@dataclass
class WholeWeights:
    """Every push and pull carries all values, in so many parts."""

    store: Store
    parts: int
    _size: int = field(init=False, default=0)

    def init(self, values: FloatArray) -> None:
        """Called by every worker with the same values."""
        self._size = len(values)
        self.store.init(_KEY, np.append(values, values.dtype.type(0)), parts=self.parts)

    def restore(self, unsent: FloatArray) -> None:
        """Go on where earlier pushes have left this out."""

    def push(self, change: FloatArray, n_batches: int) -> FloatArray:
        """Add a change; what of it was sent."""
        self.store.push_async(_KEY, np.append(change, change.dtype.type(n_batches)))
        return change

    def start_pull(self, min_clock: int | None = None) -> Handle[FloatArray]:
        """A handle for `read`."""
        return self.store.pull_async(_KEY, min_clock=min_clock)

    def read(self, handle: Handle[FloatArray]) -> tuple[FloatArray, int]:
        """Weights, and the batches in them."""
        found = handle.wait()
        return found[:-1], round(float(found[-1]))


@dataclass
class CodedWeights(WholeWeights):
    """Pushes go through a codec, array by array of the model; pulls bring what changed. The count is never coded."""

    codec: GatheredCodec
    array_starts: Sequence[int]
    _mirror: Mirror = field(init=False)

    def init(self, values: FloatArray) -> None:
        from dmlgbm.collectives.parameter_server import Mirror

        super().init(values)
        self._mirror = Mirror(_KEY)

    def push(self, change: FloatArray, n_batches: int) -> FloatArray:
        from dmlgbm.collectives.parameter_server import PushCoder

        coder = PushCoder(self.codec, [*self.array_starts, len(change)])
        _, sent = self.store.push_coded_async(_KEY, np.append(change, change.dtype.type(n_batches)), coder)
        return sent[:-1]

    def start_pull(self, min_clock: int | None = None) -> Handle[FloatArray]:
        return self.store.pull_changes_async(self._mirror, min_clock=min_clock)


@dataclass
class BlockWeights:
    """Pushes carry the blocks of 64 values that have gathered enough since they were last sent: more than `send_above`
    times the root mean square of what is new in a push. Pulls bring the blocks that anybody's pushes changed.

    The server holds the sum of all changes since the beginning, and only of blocks that ever changed.
    """

    store: Store
    parts: int
    send_above: float
    _mirror: Mirror = field(init=False)
    _initial: FloatArray = field(init=False, default_factory=lambda: np.empty(0))

    def init(self, values: FloatArray) -> None:
        from dmlgbm.collectives.parameter_server import Mirror

        self._mirror = Mirror(_KEY)
        self._initial = values.copy()
        self._left = np.zeros_like(values)
        self._n_blocks = -(-len(values) // _BLOCK)
        # The last row holds the count.
        self.store.init_rows(_KEY, self._n_blocks + 1, (_BLOCK,), values.dtype, parts=self.parts)

    def restore(self, unsent: FloatArray) -> None:
        self._left = unsent.copy()

    def push(self, change: FloatArray, n_batches: int) -> FloatArray:
        blocks = np.zeros((self._n_blocks + 1, _BLOCK), change.dtype)
        blocks[:-1].reshape(-1)[: len(change)] = change
        lengths = np.sqrt(np.mean(np.square(blocks[:-1], dtype=np.float64), axis=1))
        bar = self.send_above * np.sqrt(np.mean(np.square(change - self._left, dtype=np.float64)))
        sent = np.append(lengths > bar, True)
        blocks[-1, 0] = n_batches
        self.store.push_rows_async(_KEY, np.flatnonzero(sent), blocks[sent])
        blocks[~sent] = 0
        taken = blocks[:-1].reshape(-1)[: len(change)]
        self._left = change - taken
        return taken

    def start_pull(self, min_clock: int | None = None) -> Handle[FloatArray]:
        return self.store.pull_changes_async(self._mirror, min_clock=min_clock)

    def read(self, handle: Handle[FloatArray]) -> tuple[FloatArray, int]:
        found = handle.wait()
        return self._initial + found[:-1].reshape(-1)[: len(self._initial)], round(float(found[-1, 0]))
