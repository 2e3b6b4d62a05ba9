"""Histograms as few bytes: each feature's bins as words just wide enough for its largest sums.

A feature is three bytes (bits of gradients, hessians and counts) and then one word a stored bin: gradient, hessian
and count side by side, in whole bytes. Sums of more than 64 bits together take a word each. A feature without rows is
its three bytes. Sums are integers, so nothing is lost.

Words are written and read eight bytes at a time, whatever their width: buffers need `SLACK` bytes behind the last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, load_word, store_word
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.split_scores import unpacked

FEATURE_HEADER_BYTES = 3
MOST_BYTES_PER_BIN = 24
SLACK = 8
_WORD_BITS = 64


@inlined
def stored_bins(layout: RecordArray, feature: int) -> int:
    """How many bins of a feature a histogram holds."""
    return np.int64(layout[feature].bins) - (1 if layout[feature].implicit_bin >= 0 else 0)


@inlined
def bit_length(value: int) -> int:
    """The bits of a number that is not negative."""
    bits = np.int64(0)
    while value > 0:
        value >>= 1
        bits += 1
    return bits


@inlined
def low_bits(word: int, bits: int) -> int:
    """The lowest bits of a word, at most 63, as a number."""
    return word & ((np.int64(1) << bits) - 1)


@inlined
def has_hessians(packing: RecordArray) -> bool:
    """Whether hessians are sums of their own, and not the row count."""
    return packing[0].hessian_factor != 0


@inlined
def bin_sums(packing: RecordArray, planes: npt.NDArray[np.int64], packed: bool, i: int) -> tuple[int, int, int]:
    """Gradient, hessian and count of one bin in either form."""
    if packed:
        return unpacked(packing, planes[0, i])
    return planes[0, i], planes[1, i], planes[2, i]


@inlined
def encode_feature(
    packing: RecordArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    first: int,
    last: int,
    buffer: npt.NDArray[np.uint8],
    cursor: int,
) -> int:
    """Write the bins first..last of a histogram from `cursor` on; return where the next feature goes."""
    own_hessians = has_hessians(packing)
    all_gradients, all_hessians, all_counts = np.int64(0), np.int64(0), np.int64(0)
    for i in range(first, last):
        gradient, hessian, count = bin_sums(packing, planes, packed, i)
        all_gradients |= gradient ^ (gradient >> 63)
        all_hessians |= hessian
        all_counts |= count
    count_bits = bit_length(all_counts)
    gradient_bits = bit_length(all_gradients) + 1 if count_bits > 0 else 0
    hessian_bits = bit_length(all_hessians) if own_hessians else 0
    buffer[cursor], buffer[cursor + 1], buffer[cursor + 2] = gradient_bits, hessian_bits, count_bits
    cursor += FEATURE_HEADER_BYTES
    if count_bits == 0:
        return cursor
    bias = np.int64(1) << (gradient_bits - 1)
    rest_bits = hessian_bits + count_bits
    together = gradient_bits + rest_bits <= _WORD_BITS
    word_bytes = ((gradient_bits + rest_bits if together else gradient_bits) + 7) >> 3
    hessian_bytes, count_bytes = (hessian_bits + 7) >> 3, (count_bits + 7) >> 3
    for i in range(first, last):
        gradient, hessian, count = bin_sums(packing, planes, packed, i)
        if together:
            rest = (hessian << count_bits if own_hessians else 0) | count
            store_word(buffer, cursor, ((gradient + bias) << rest_bits) | rest)
            cursor += word_bytes
        else:
            store_word(buffer, cursor, gradient + bias)
            store_word(buffer, cursor + word_bytes, hessian)
            store_word(buffer, cursor + word_bytes + hessian_bytes, count)
            cursor += word_bytes + hessian_bytes + count_bytes
    return cursor


@inlined
def add_to_bin(
    packing: RecordArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    i: int,
    gradient: int,
    hessian: int,
    count: int,
) -> None:
    """Add to one bin in either form."""
    if packed:
        planes[0, i] += (gradient << packing[0].gradient_shift) + hessian * packing[0].hessian_factor + count
    else:
        planes[0, i] += gradient
        planes[1, i] += hessian
        planes[2, i] += count


@inlined
def add_encoded_feature(
    packing: RecordArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    first: int,
    last: int,
    buffer: npt.NDArray[np.uint8],
    cursor: int,
) -> int:
    """Add what `encode_feature` wrote at `cursor` to the bins first..last; return where the next feature is."""
    own_hessians = has_hessians(packing)
    gradient_bits, hessian_bits = np.int64(buffer[cursor]), np.int64(buffer[cursor + 1])
    count_bits = np.int64(buffer[cursor + 2])
    cursor += FEATURE_HEADER_BYTES
    if count_bits == 0:
        return cursor
    bias = np.int64(1) << (gradient_bits - 1)
    rest_bits = hessian_bits + count_bits
    together = gradient_bits + rest_bits <= _WORD_BITS
    word_bytes = ((gradient_bits + rest_bits if together else gradient_bits) + 7) >> 3
    hessian_bytes, count_bytes = (hessian_bits + 7) >> 3, (count_bits + 7) >> 3
    for i in range(first, last):
        word = load_word(buffer, cursor)
        cursor += word_bytes
        if together:
            gradient = low_bits(word >> rest_bits, gradient_bits) - bias
            hessian, count = low_bits(word >> count_bits, hessian_bits), low_bits(word, count_bits)
        else:
            gradient = low_bits(word, gradient_bits) - bias
            hessian = low_bits(load_word(buffer, cursor), hessian_bits)
            count = low_bits(load_word(buffer, cursor + hessian_bytes), count_bits)
            cursor += hessian_bytes + count_bytes
        add_to_bin(packing, planes, packed, i, gradient, hessian if own_hessians else count, count)
    return cursor
