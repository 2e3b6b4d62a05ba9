"""Bootstraps: weights of rows that are drawn anew for every iteration.

The Bayesian bootstrap weighs all rows at random. Minimal variance sampling draws rows with a probability that grows
with their gradient and weighs each by the inverse of it, so that sums stay right on average. Both are CatBoost's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_numbers import Segment, stretches_between
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.kernels.bootstrap import (
    N_SIZE_CLASSES,
    sum_size_classes,
    write_inverse_shares,
    write_random_weights,
    write_sizes,
)
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

SingleArray = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SUM_BITS = 62
_CLASS_SHIFT = 48  # of the bits of a size, as in the kernel


def bayesian_weights(
    parameters: TrainParameters, iteration: int, n_rows: int, segments: Sequence[Segment], workers: Workers
) -> SingleArray:
    """Exponentially distributed weights of the rows here, to the power of the temperature."""
    weights = np.empty(n_rows, np.float32)
    key = random_key(parameters.seed, Purpose.ROW_WEIGHTS, iteration)
    temperature = float(parameters.bagging_temperature)  # kernels are compiled for floats

    def write(start: int, stop: int) -> None:
        for first, last, number in stretches_between(segments, start, stop):
            write_random_weights(first, last, number, key, temperature, weights)

    workers.run_ranges(write, n_rows)
    return weights


def variance_weights(
    parameters: TrainParameters,
    iteration: int,
    gradients: SingleArray,
    segments: Sequence[Segment],
    n_total_rows: int,
    repeats: Repeats | None,
    workers: Workers,
    exchange: Exchange,
) -> SingleArray:
    """The inverse of each row's probability for rows that are drawn, 0 for all others."""
    n_rows = gradients.shape[1]
    if repeats is not None:
        gradients = gradients * repeats.counts.astype(np.float32)
    sizes = _Sizes(gradients, n_total_rows, workers, exchange)
    ridge = sizes.mean(0.0) ** 2 if parameters.mvs_reg is None else float(parameters.mvs_reg)
    certain = sizes.least_certain(ridge, parameters.subsample * n_total_rows)
    if certain == 0.0:  # no row has a gradient
        return np.ones(n_rows, np.float32)
    weights = np.empty(n_rows, np.float32)
    key = random_key(parameters.seed, Purpose.ROW_SAMPLE, iteration)

    def write(start: int, stop: int) -> None:
        for first, last, number in stretches_between(segments, start, stop):
            write_inverse_shares(sizes.values, certain, first, last, number, key, weights)

    workers.run_ranges(write, n_rows)
    return weights


class _Sizes:
    """How large the gradients of rows are: the root of the sum of squares over outputs and a ridge."""

    def __init__(self, gradients: SingleArray, n_total_rows: int, workers: Workers, exchange: Exchange) -> None:
        self.values: FloatArray = np.empty(gradients.shape[1])
        self._gradients = gradients
        self._n_total_rows = n_total_rows
        self._workers = workers
        self._exchange = exchange

    def mean(self, ridge: float) -> float:
        """The mean over all rows."""
        _, scale, sums = self._classes(ridge)
        return int(sums[:, 1].sum()) / (scale * self._n_total_rows)

    def least_certain(self, ridge: float, n_wanted: float) -> float:
        """The size from which on rows are drawn for certain if about so many are to be drawn; 0 if all sizes are 0."""
        largest, scale, sums = self._classes(ridge)
        if largest == 0.0:
            return 0.0
        counts, totals = sums[:, 0], sums[:, 1]
        room = n_wanted - (np.cumsum(counts) - counts)  # beside the rows of larger classes
        certain = np.cumsum(totals[::-1])[::-1] / (scale * np.maximum(room, 0.5))
        top = int(np.float64(largest).view(np.int64)) >> _CLASS_SHIFT
        edges = ((top + 1 - np.arange(N_SIZE_CLASSES, dtype=np.int64)) << _CLASS_SHIFT).view(np.float64)
        fits = np.flatnonzero((certain >= edges) | (room <= counts))
        return float(max(certain[fits[0]], np.finfo(np.float64).tiny))

    def _classes(self, ridge: float) -> tuple[float, float, IntArray]:
        """The largest size of all rows, units of the sums per unit of size, and the classes of all rows."""
        values = self.values
        self._workers.run_ranges(lambda a, b: write_sizes(self._gradients, a, b, ridge, values), len(values))
        largest = float(self._exchange.reduce_max(np.array([values.max(initial=0.0)]))[0])
        bits = _SUM_BITS - self._n_total_rows.bit_length()
        scale = math.ldexp(1.0, bits - math.frexp(largest)[1]) if largest > 0.0 else 1.0

        def sum_part(start: int, stop: int) -> IntArray:
            sums = np.zeros((N_SIZE_CLASSES, 2), np.int64)
            sum_size_classes(values, start, stop, largest, scale, sums)
            return sums

        return largest, scale, self._exchange.reduce_sum(sum(self._workers.run_ranges(sum_part, len(values))))
