"""Messages made of parts, one for each leaf: how they are written and read, and how long they will be.

A message is a head (the length of its sender's longest message to anybody), the length of each part, and the parts.
All messages of a round have one length, which every rank must know before it sees any: it is expected from the rows
of the parts' nodes over all ranks, and from how long parts of such nodes were before. The heads tell everybody alike
whether that was enough, and what to expect next time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import inlined, kernel, load_word, store_word
from gbdt.kernels.histogram_codec import SLACK, bit_length

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEAD_BYTES = 8
# Bytes for the length of each part.
LENGTH_BYTES = 4
# Nodes of a class have as many rows but for a factor of two; class 0 is no part at all.
N_CLASSES = 64
# What was learnt from longer parts fades by this factor a round.
_FADING = 0.97


@inlined
def class_of(n_rows: int) -> int:
    """The class of nodes with so many rows."""
    return max(bit_length(n_rows), 1)


@kernel
def expected_length(classes: IntArray, n_parts: int, bytes_of_class: npt.NDArray[np.float64]) -> int:
    """How long the longest message of any rank will probably be; 0 if there is nothing to send."""
    expected = 0.0
    for k in range(n_parts):
        expected += bytes_of_class[classes[k]]
    return np.int64(expected) + HEAD_BYTES + LENGTH_BYTES * n_parts if expected > 0.0 else 0


@kernel
def learn_lengths(
    classes: IntArray, n_parts: int, bytes_of_class: npt.NDArray[np.float64], expected: int, longest: int
) -> None:
    """Correct what is expected of these classes by what came."""
    heads = HEAD_BYTES + LENGTH_BYTES * n_parts
    correction = max((longest - heads) / max(expected - heads, 1), _FADING)
    seen = np.int64(0)
    for k in range(n_parts):
        # Once for each class, however many parts are of it.
        mark = np.int64(1) << classes[k]
        if classes[k] > 0 and seen & mark == 0:
            bytes_of_class[classes[k]] *= correction
        seen |= mark


@kernel
def longest_message(lengths: IntArray, n_parts: int) -> int:
    """The length of this rank's longest message to any rank."""
    longest = np.int64(0)
    for other in range(lengths.shape[1]):
        total = np.int64(0)
        for k in range(n_parts):
            total += lengths[k, other]
        longest = max(longest, total)
    return longest + HEAD_BYTES + LENGTH_BYTES * n_parts


@kernel
def write_messages(staging: Bytes, lengths: IntArray, n_parts: int, longest: int, messages: Bytes) -> None:
    """Join the parts for each rank; the heads alone, if the longest message does not fit."""
    fits = longest + SLACK <= messages.shape[1]
    for other in range(lengths.shape[1]):
        store_word(messages[other], 0, longest)
        cursor = HEAD_BYTES + LENGTH_BYTES * n_parts
        for k in range(n_parts if fits else 0):
            length = lengths[k, other]
            for byte in range(LENGTH_BYTES):
                messages[other, HEAD_BYTES + LENGTH_BYTES * k + byte] = (length >> (8 * byte)) & 0xFF
            messages[other, cursor : cursor + length] = staging[k, other, :length]
            cursor += length


@kernel
def longest_of_all(messages: Bytes) -> int:
    """The length of the longest message of any rank, by the heads of those that came."""
    longest = np.int64(0)
    for other in range(messages.shape[0]):
        longest = max(longest, load_word(messages[other], 0))
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
