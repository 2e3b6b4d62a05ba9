"""Values of rows through a codec, for ranks that share one model: activations and their gradients, step by step.

What a codec leaves out of such values can only be made up for with the same rows. Both ends therefore keep what the
messages so far say of every row, and a message codes the difference to that (AQ-SGD, Wang 2022): what was left out
is still in the difference when the row comes again. Rows that travel for the first time go whole, and a few others of
the same batch with them. Each memory takes as much room as the values of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray, IntArray

if TYPE_CHECKING:
    from dmlgbm.collectives.compression import GatheredCodec, Round

Message = npt.NDArray[np.uint8]


class RowMemory:
    """What one sender has told of `width` values of each row; the same on all ends after every message."""

    def __init__(self, codec: GatheredCodec, n_rows: int, width: int, dtype: npt.DTypeLike) -> None:
        self._codec = codec
        self._told: FloatArray = np.zeros((n_rows, width), dtype)
        self._known = np.zeros(n_rows, bool)

    def outgoing(self, rows: IntArray, values: FloatArray) -> tuple[Message, FloatArray]:
        """What to send so that others learn of these values, and what they will make of it."""
        if self._travels_whole(rows):
            message = np.array(values, self._told.dtype, order="C").reshape(-1).view(np.uint8)
        else:
            difference = (values - self._told[rows]).reshape(-1)
            message = np.frombuffer(self._codec.encode(difference, self._round(len(rows))), np.uint8)
        return message, self.incoming(rows, message)

    def incoming(self, rows: IntArray, message: Message) -> FloatArray:
        """What a message makes of these rows."""
        shape = len(rows), self._told.shape[1]
        if self._travels_whole(rows):
            values = message.view(self._told.dtype).reshape(shape)
        else:
            values = self._told[rows] + self._codec.decode(message, self._round(len(rows))).reshape(shape)
        self._told[rows] = values
        self._known[rows] = True
        return values

    def room(self, rows: IntArray) -> Message:
        """An array for the next message about these rows."""
        if self._travels_whole(rows):
            return np.empty(len(rows) * self._told.strides[0], np.uint8)
        return np.empty(self._codec.body_size(self._round(len(rows)).layout), np.uint8)

    def _travels_whole(self, rows: IntArray) -> bool:
        return self._told.shape[1] == 0 or not self._known[rows].all()

    def _round(self, n_rows: int) -> Round:
        from dmlgbm.collectives.compression import Layout, Round

        return Round(Layout((n_rows * self._told.shape[1],), self._told.dtype), "rows", 0, 1)


def told_by_all(
    context: RankContext, memories: Sequence[RowMemory], rows: IntArray, values: FloatArray
) -> list[FloatArray]:
    """What every rank has to tell of these rows, in the order of ranks; `memories` has one of each."""
    message, own = memories[context.rank].outgoing(rows, values)
    with context.history.waiting():
        messages = context.communicator.all_gather_unequal(message)
    return [
        own if rank == context.rank else memory.incoming(rows, message)
        for rank, (memory, message) in enumerate(zip(memories, messages, strict=True))
    ]
