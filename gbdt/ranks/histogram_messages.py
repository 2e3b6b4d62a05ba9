"""Encoded histograms on their way: a staging area for each leaf and rank, and one message to every rank.

Messages of a round have one length, the next of few: the communicator keeps the work of lengths it knows. Ranks do not
ask each other for it. Everybody expects the same one (`kernels/part_messages.py`), and where some rank's messages
turn out to be longer, all are sent again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import for_types_of
from dmlgbm.gbdt.kernels.histogram_codec import FEATURE_HEADER_BYTES, MOST_BYTES_PER_BIN, SLACK
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.part_messages import (
    N_CLASSES,
    StagedParts,
    learn_longest,
    message_lengths,
    write_messages,
)
from dmlgbm.gbdt.ranks.exchange import RankExchange

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_LENGTHS_PER_OCTAVE_BITS = 4
_SHORTEST = 512
# What a bin probably takes before anything was sent, in bits: some, and more for every class of larger nodes.
_BITS_PER_BIN, _MORE_BITS_PER_CLASS = 20.0, 1.5


def stored_bins(layout: RecordArray, features: IntArray) -> IntArray:
    """The bins of each feature that a histogram holds."""
    chosen = layout[features]
    return chosen["bins"].astype(np.int64) - (chosen["implicit_bin"] >= 0)


def most_bytes(layout: RecordArray, features: IntArray) -> int:
    """The most bytes that the histograms of these features are ever encoded in."""
    return FEATURE_HEADER_BYTES * len(features) + MOST_BYTES_PER_BIN * int(stored_bins(layout, features).sum()) + SLACK


class HistogramMessages:
    """Kernels write to `parts`, one for each leaf and rank; what they wrote for a rank is its message."""

    def __init__(self, exchange: RankExchange, part_bytes: int) -> None:
        self._exchange = exchange
        self.parts = _room_for(1, exchange.n_ranks, part_bytes)
        bits = _BITS_PER_BIN + _MORE_BITS_PER_CLASS * np.arange(N_CLASSES)
        self._bytes_of_class = part_bytes / MOST_BYTES_PER_BIN * bits / 8
        self._bytes_of_class[0] = 0.0
        self._outgoing = self._incoming = np.empty(0, np.uint8)
        self._rooms: dict[int, tuple[Bytes, Bytes]] = {}
        # Looked up once: the types of their arguments stay the same.
        self._lengths = for_types_of(message_lengths, self.parts, 0, self._bytes_of_class)
        self._learn = for_types_of(learn_longest, self.parts.bytes[0], self.parts.classes, 0, self._bytes_of_class, 0)
        self._write = for_types_of(write_messages, self.parts, 0, 0, self.parts.bytes[0])

    def make_room(self, n_leaves: int) -> None:
        """Provide for as many leaves."""
        room, n_ranks, part_bytes = self.parts.bytes.shape
        if n_leaves > room:
            self.parts = _room_for(max(n_leaves, 2 * room), n_ranks, part_bytes)

    def parts_of(self, leaves: slice) -> StagedParts:
        """Where the parts of some leaves are written."""
        parts = self.parts
        return StagedParts(parts.bytes[leaves], parts.lengths[leaves], parts.classes[leaves])

    def swap(self, n_leaves: int) -> Bytes | None:
        """Send every rank its message, and return the messages for this one, [rank, byte]; None if nobody wrote any."""
        expected, own_longest = self._lengths(self.parts, n_leaves, self._bytes_of_class)
        if expected == 0:
            return None
        size = agreed_length(expected)
        messages = self._send(n_leaves, own_longest, size)
        longest = self._learn(messages, self.parts.classes, n_leaves, self._bytes_of_class, expected)
        # Everybody has seen the same heads.
        return messages if longest + SLACK <= size else self._send(n_leaves, own_longest, agreed_length(longest))

    def _send(self, n_leaves: int, own_longest: int, size: int) -> Bytes:
        outgoing, incoming = self._room(size)
        self._write(self.parts, n_leaves, own_longest, outgoing)
        return self._exchange.all_to_all(outgoing, incoming)

    def _room(self, size: int) -> tuple[Bytes, Bytes]:
        """Where messages of this size are written and received; the same memory for all sizes."""
        room = self._rooms.get(size)
        if room is None:
            n_ranks = self._exchange.n_ranks
            n_bytes = n_ranks * size
            if n_bytes > len(self._outgoing):
                self._outgoing, self._incoming = (np.empty(n_bytes * 5 // 4, np.uint8) for _ in range(2))
                self._rooms.clear()
            outgoing, incoming = self._outgoing[:n_bytes], self._incoming[:n_bytes]
            room = self._rooms[size] = outgoing.reshape(n_ranks, size), incoming.reshape(n_ranks, size)
        return room


def _room_for(n_leaves: int, n_ranks: int, part_bytes: int) -> StagedParts:
    # Untouched memory costs nothing: the operating system hands out pages on first use.
    return StagedParts(
        np.empty((n_leaves, n_ranks, part_bytes), np.uint8),
        np.zeros((n_leaves, n_ranks), np.int64),
        np.zeros(n_leaves, np.int64),
    )


def agreed_length(longest: int) -> int:
    """The length of all messages of a round whose longest is expected to have so many bytes."""
    longest = max(longest + SLACK, _SHORTEST)
    step = 1 << max(longest.bit_length() - 1 - _LENGTHS_PER_OCTAVE_BITS, 0)
    return -(-longest // step) * step
