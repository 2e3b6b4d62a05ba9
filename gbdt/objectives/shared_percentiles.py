"""Exact percentiles of values that lie with several processes, of many groups at once.

The value sought is the lowest one at which the weight of all values up to there exceeds a limit. The bits of floats,
with the negative ones turned over, are in the order of the floats: eight bits at a time, from the top, every process
adds up the weights of its values by their next bits, and the sums over all processes say which bits the value has.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import Exchange

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DIGIT_BITS = 8
_N_DIGITS = 1 << _DIGIT_BITS
# As in `dmlgbm.gbdt.objectives.averages`: fixed-point sums of weights stay below 2^62.
_WEIGHT_SUM_BITS = 62


def percentiles_of_groups(
    values: FloatArray,
    weight: FloatArray | IntArray | None,
    group: IntArray,
    n_groups: int,
    level: float,
    exchange: Exchange,
) -> FloatArray:
    """What `averages.percentile` gives for each group's values; 0 for groups without any weight."""
    counts = exchange.reduce_sum(np.bincount(group, minlength=n_groups).astype(np.int64))
    if weight is not None and weight.dtype.kind == "f":
        units = _fixed_point(weight, group, counts, exchange)
        totals = exchange.reduce_sum(_sums(group, units, n_groups))
        limits = np.array([min(math.floor(level * total), total - 1) for total in totals.tolist()], np.int64)
        return np.where(totals > 0, _lowest_above(values, units, group, limits, exchange), 0.0)
    repeats = np.ones(len(values), np.int64) if weight is None else weight.astype(np.int64)
    totals = counts if weight is None else exchange.reduce_sum(_sums(group, repeats, n_groups))
    positions = [position_among(total, level) for total in totals.tolist()]
    lower = np.array([below for _, below in positions], np.int64)
    below = _lowest_above(values, repeats, group, lower, exchange)
    above = _lowest_above(values, repeats, group, np.minimum(lower + 1, totals - 1), exchange)
    shares = [position - floor for position, floor in positions]
    found = zip(below.tolist(), above.tolist(), shares, totals.tolist(), strict=True)
    return np.array([between(low, high, share) if total else 0.0 for low, high, share, total in found])


def position_among(n_values: int, level: float) -> tuple[float, int]:
    """Where the value at this level lies among the sorted values, and the last one before it."""
    position = (n_values - 1) * level
    return position, max(math.floor(position), 0)


def between(low: float, high: float, share: float) -> float:
    """Numpy's linear interpolation between two neighbours; adding zero turns -0.0 into 0.0."""
    return float(np.quantile([low, high], share)) + 0.0


def _fixed_point(weight: FloatArray | IntArray, group: IntArray, counts: IntArray, exchange: Exchange) -> IntArray:
    """Weights as integers, in the unit that `percentile` takes for each group."""
    largest = np.zeros(len(counts))
    np.maximum.at(largest, group, weight)
    largest = exchange.reduce_max(largest)
    shifts = [
        _WEIGHT_SUM_BITS - count.bit_length() - math.frexp(most)[1]
        for count, most in zip(counts.tolist(), largest.tolist(), strict=True)
    ]
    return np.rint(np.ldexp(weight, np.array(shifts, np.int64)[group])).astype(np.int64)


def _sums(position: IntArray, units: IntArray, n_positions: int) -> IntArray:
    sums = np.zeros(n_positions, np.int64)
    np.add.at(sums, position, units)
    return sums


def _lowest_above(
    values: FloatArray, units: IntArray, group: IntArray, limits: IntArray, exchange: Exchange
) -> FloatArray:
    """The lowest value of each group at which the units of all its values up to there exceed the group's limit."""
    keys = _ordered_bits(values)
    n_groups = len(limits)
    prefix, left = np.zeros(n_groups, np.uint64), limits.copy()
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        digit = ((keys >> np.uint64(shift)) & np.uint64(_N_DIGITS - 1)).astype(np.int64)
        sums = exchange.reduce_sum(_sums(group * _N_DIGITS + digit, units, n_groups * _N_DIGITS)).reshape(n_groups, -1)
        running = np.cumsum(sums, axis=1)
        found = np.minimum((running <= left[:, None]).sum(axis=1), _N_DIGITS - 1)
        before = np.take_along_axis(running - sums, found[:, None], axis=1)[:, 0]
        left -= before
        prefix |= found.astype(np.uint64) << np.uint64(shift)
        kept = digit == found[group]
        keys, units, group = keys[kept], units[kept], group[kept]
    return _from_ordered_bits(prefix)


def _ordered_bits(values: FloatArray) -> npt.NDArray[np.uint64]:
    """Unsigned integers in the order of the values; adding zero turns -0.0 into 0.0."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    top = np.uint64(1 << 63)
    return np.where(bits & top, ~bits, bits | top)


def _from_ordered_bits(keys: npt.NDArray[np.uint64]) -> FloatArray:
    top = np.uint64(1 << 63)
    return np.where(keys & top, keys ^ top, ~keys).view(np.float64)
