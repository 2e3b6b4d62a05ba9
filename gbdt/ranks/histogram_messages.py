"""Encoded histograms on their way: a staging area for each leaf and rank, and one message to every rank.

Messages of a round have one agreed length, the next of few: the communicator keeps plans for lengths it knows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.histogram_codec import HEADER_BYTES, MOST_BYTES_PER_BIN, SLACK
from gbdt.kernels.histogram_exchange import longest_message, write_messages
from gbdt.kernels.layout import RecordArray
from gbdt.ranks.exchange import RankExchange

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_LENGTHS_PER_OCTAVE_BITS = 4
_SHORTEST = 512


def stored_bins(layout: RecordArray, features: IntArray) -> IntArray:
    """The bins of each feature that a histogram holds."""
    chosen = layout[features]
    return chosen["bins"].astype(np.int64) - (chosen["implicit_bin"] >= 0)


def most_bytes(layout: RecordArray, features: IntArray) -> int:
    """The most bytes that the histograms of these features are ever encoded in."""
    return HEADER_BYTES * len(features) + MOST_BYTES_PER_BIN * int(stored_bins(layout, features).sum()) + SLACK


class HistogramMessages:
    """What kernels write is in staging[leaf, rank, :lengths[leaf, rank]]."""

    def __init__(self, exchange: RankExchange, part_bytes: int) -> None:
        self._exchange = exchange
        # Untouched memory costs nothing: the operating system hands out pages on first use.
        self.staging = np.empty((1, exchange.n_ranks, part_bytes), np.uint8)
        self.lengths = np.zeros((1, exchange.n_ranks), np.int64)
        self._outgoing = self._incoming = np.empty(0, np.uint8)

    def make_room(self, n_leaves: int) -> None:
        """Provide for as many leaves."""
        if n_leaves > len(self.staging):
            n_leaves = max(n_leaves, 2 * len(self.staging))
            self.staging = np.empty((n_leaves, *self.staging.shape[1:]), np.uint8)
            self.lengths = np.zeros((n_leaves, self._exchange.n_ranks), np.int64)

    def exchanged(self, n_leaves: int) -> Bytes:
        """What every rank wrote for this one, [rank, byte]."""
        n_ranks = self._exchange.n_ranks
        longest = self._exchange.maximum(np.array([longest_message(self.lengths, n_leaves)], np.int64))
        size = agreed_length(int(longest[0]))
        if n_ranks * size > len(self._outgoing):
            self._outgoing, self._incoming = (np.empty(n_ranks * size * 5 // 4, np.uint8) for _ in range(2))
        outgoing = self._outgoing[: n_ranks * size].reshape(n_ranks, size)
        write_messages(self.staging, self.lengths, n_leaves, outgoing)
        return self._exchange.all_to_all(outgoing, self._incoming[: n_ranks * size].reshape(n_ranks, size))


def agreed_length(longest: int) -> int:
    """The length of all messages of a round whose longest has so many bytes."""
    longest = max(longest + SLACK, _SHORTEST)
    step = 1 << max(longest.bit_length() - 1 - _LENGTHS_PER_OCTAVE_BITS, 0)
    return -(-longest // step) * step
