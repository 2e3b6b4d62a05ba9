"""Messages made of parts, one for each leaf: how they are written and read, and how long they will be.

A message is a head (the length of its sender's longest message to anybody), the length of each part, and the parts.
All messages of a round have one length, which every rank must know before it sees any: it is expected from the rows
of the parts' nodes over all ranks, and from how long parts of such nodes were before. The heads tell everybody alike
whether that was enough, and what to expect next time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel, load_word, store_word
from dmlgbm.gbdt.kernels.histogram_codec import SLACK, bit_length

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEAD_BYTES = 8
# Bytes for the length of each part.
LENGTH_BYTES = 4
# Nodes of a class have as many rows but for a factor of two; class 0 is no part at all.
N_CLASSES = 64
# What was learnt from longer parts fades by this factor a round, and this much more than that is expected. (Measured
# on two tables: 4 to 5 % of all messages are sent twice, and 20 % of their bytes are padding; with 0.97 and nothing
# more 22 to 32 %, and 31 to 36 % of padding and repetition.)
_FADING, _MARGIN = 0.99, 1.05


class StagedParts(NamedTuple):
    """Parts as they are written, before they are joined: bytes[part, rank, : lengths[part, rank]]."""

    bytes: Bytes
    lengths: IntArray
    classes: IntArray  # of the node that each part is about; 0: there is no part


@inlined
def class_of(n_rows: int) -> int:
    """The class of nodes with so many rows."""
    return max(bit_length(n_rows), 1)


@kernel
def message_lengths(parts: StagedParts, n_parts: int, bytes_of_class: npt.NDArray[np.float64]) -> tuple[int, int]:
    """How long the longest message of any rank will probably be (0 if there is nothing to send), and of this rank."""
    classes, lengths = parts.classes, parts.lengths
    heads = HEAD_BYTES + LENGTH_BYTES * n_parts
    expected, longest = 0.0, np.int64(0)
    for k in range(n_parts):
        expected += bytes_of_class[classes[k]]
    for other in range(lengths.shape[1]):
        total = np.int64(0)
        for k in range(n_parts):
            total += lengths[k, other]
        longest = max(longest, total)
    return np.int64(expected * _MARGIN) + heads if expected > 0.0 else np.int64(0), longest + heads


@kernel
def write_messages(parts: StagedParts, n_parts: int, longest: int, messages: Bytes) -> None:
    """Join the parts for each rank; the heads alone, if the longest message does not fit."""
    lengths = parts.lengths
    fits = longest + SLACK <= messages.shape[1]
    for other in range(lengths.shape[1]):
        store_word(messages[other], 0, longest)
        cursor = HEAD_BYTES + LENGTH_BYTES * n_parts
        for k in range(n_parts if fits else 0):
            length = lengths[k, other]
            for byte in range(LENGTH_BYTES):
                messages[other, HEAD_BYTES + LENGTH_BYTES * k + byte] = (length >> (8 * byte)) & 0xFF
            messages[other, cursor : cursor + length] = parts.bytes[k, other, :length]
            cursor += length


@kernel
def learn_longest(
    messages: Bytes, classes: IntArray, n_parts: int, bytes_of_class: npt.NDArray[np.float64], expected: int
) -> int:
    """The length of the longest message of any rank, by the heads of those that came; corrects what is expected."""
    longest = np.int64(0)
    for other in range(messages.shape[0]):
        longest = max(longest, load_word(messages[other], 0))
    heads = HEAD_BYTES + LENGTH_BYTES * n_parts
    correction = max((longest - heads) * _MARGIN / max(expected - heads, 1), _FADING)
    seen = np.int64(0)
    for k in range(n_parts):
        # Once for each class, however many parts are of it.
        mark = np.int64(1) << classes[k]
        if classes[k] > 0 and seen & mark == 0:
            bytes_of_class[classes[k]] *= correction
        seen |= mark
    return longest


@inlined
def part_of_leaf(message: Bytes, k: int, n_parts: int) -> tuple[int, int]:
    """Where in a message part k begins, and how long it is."""
    cursor, length = np.int64(HEAD_BYTES + LENGTH_BYTES * n_parts), np.int64(0)
    for before in range(k + 1):
        cursor += length
        length = np.int64(0)
        for byte in range(LENGTH_BYTES):
            length |= np.int64(message[HEAD_BYTES + LENGTH_BYTES * before + byte]) << (8 * byte)
    return cursor, length
