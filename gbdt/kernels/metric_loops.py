"""Loops over rows that metrics are made of: exact sums, logarithms, best classes and pairs for the ROC curve.

The one idea: a float64 is an integer times a power of two. `add_exactly` adds that integer to the bucket of its
power, so a sum is never rounded and has no order: rows may come in any order, in any chunks, from any number of
workers, and buckets of several parts are merged by adding them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import bits_from_float, inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import log

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Eight exponents share a bucket: a 53-bit significand shifted by up to 7 is two halves of 30 bits, and 2^32 halves
# fit an int64. Bucket 256 holds infinities and NaN and nothing else.
EXPONENT_BITS_PER_BUCKET = 3
HALF_BITS = 30
N_BUCKETS = 257

# A fixed-point weight of up to 53 bits is summed as two halves, so that 2^36 weights fit two int64.
WEIGHT_HALF_BITS = 26

_SIGNIFICAND_BITS = 52
_SIGNIFICAND_MASK = (1 << _SIGNIFICAND_BITS) - 1
_EXPONENT_MASK = 0x7FF
_SHIFT_MASK = (1 << EXPONENT_BITS_PER_BUCKET) - 1
_HALF_MASK = (1 << HALF_BITS) - 1
_WEIGHT_HALF_MASK = (1 << WEIGHT_HALF_BITS) - 1
_WEIGHT_HALF_SCALE = float(1 << WEIGHT_HALF_BITS)


@inlined
def _add_value(value: float, buckets: IntArray) -> None:
    bits = bits_from_float(value)
    exponent = (bits >> _SIGNIFICAND_BITS) & _EXPONENT_MASK
    significand = bits & _SIGNIFICAND_MASK
    if exponent == 0:
        exponent = 1
    else:
        significand |= 1 << _SIGNIFICAND_BITS
    # One is added so that the largest exponent, which means "not finite", has the last bucket for itself.
    significand <<= (exponent + 1) & _SHIFT_MASK
    bucket = np.uint64((exponent + 1) >> EXPONENT_BITS_PER_BUCKET)
    buckets[bucket, np.uint64(0)] += significand & _HALF_MASK
    buckets[bucket, np.uint64(1)] += significand >> HALF_BITS


@kernel
def add_exactly(values: FloatArray, buckets: IntArray) -> None:
    """Add values, none of them negative, to the buckets int64[N_BUCKETS, 2] without rounding."""
    for row in range(values.size):
        _add_value(values[row], buckets)


def logarithm(values: FloatArray) -> FloatArray:
    """The natural logarithm of positive numbers; NaN stays NaN."""
    logarithms = np.empty_like(values)
    _write_logarithm(values, logarithms)
    return logarithms


@kernel
def _write_logarithm(values: FloatArray, logarithms: FloatArray) -> None:
    for row in range(values.size):
        value = values[row]
        logarithms[row] = log(value) if value == value else value


@kernel
def keep_higher(challenger: FloatArray, number: float, highest: FloatArray, number_of_highest: FloatArray) -> None:
    """Where the challenger, known by its number, is above the highest value so far, let it take its place."""
    for row in range(challenger.size):
        value = challenger[row]
        higher = value > highest[row]
        highest[row] = value if higher else highest[row]
        number_of_highest[row] = number if higher else number_of_highest[row]


@inlined
def _summed_weight(weight: IntArray, start: int, stop: int) -> tuple[int, int]:
    """The (low, high) halves of the weight of a span of rows; without weights every row weighs one."""
    if weight.size == 0:
        return stop - start, 0
    low = 0
    high = 0
    for row in range(start, stop):
        low += weight[row] & _WEIGHT_HALF_MASK
        high += weight[row] >> WEIGHT_HALF_BITS
    return low, high


@kernel
def add_concordant_pairs(
    positive_score: FloatArray,
    positive_weight: IntArray,
    negative_score: FloatArray,
    negative_weight: IntArray,
    buckets: IntArray,
) -> None:
    """Add twice the weight of the pairs in which the positive row scores higher; a tied pair counts half.

    Scores ascend and hold no NaN. Weights are fixed-point numbers below 2^53, in the order of the scores; an empty
    array means that every row weighs one.
    """
    below_low = 0
    below_high = 0
    positive = np.int64(0)
    negative = np.int64(0)
    while positive < positive_score.size:
        score = positive_score[positive]
        start = positive
        while positive < positive_score.size and positive_score[positive] == score:
            positive += 1
        low, high = _summed_weight(positive_weight, start, positive)
        start = negative
        while negative < negative_score.size and negative_score[negative] < score:
            negative += 1
        passed_low, passed_high = _summed_weight(negative_weight, start, negative)
        below_low += passed_low
        below_high += passed_high
        start = negative
        while negative < negative_score.size and negative_score[negative] == score:
            negative += 1
        tied_low, tied_high = _summed_weight(negative_weight, start, negative)
        beaten = (2 * below_high + tied_high) * _WEIGHT_HALF_SCALE + (2 * below_low + tied_low)
        _add_value((high * _WEIGHT_HALF_SCALE + low) * beaten, buckets)
        below_low += tied_low
        below_high += tied_high
