"""Who was still at risk when an event came: sums over all rows with the same or a longer time.

Times are known once; what changes are the risks of rows. These are added up as integers for each distinct time, so that
the sums do not depend on the order of rows or on who holds them. Ties are Breslow's: the events of one time share one
risk set.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import write_exponential

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SUM_BITS = 62


class RiskSets:
    """The distinct times of all processes, the events of each, and which of them each row here has."""

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange = ALONE) -> None:
        time = np.abs(target)
        self._exchange = exchange
        self._times = _distinct_everywhere(time, exchange)
        self.time_of_row = np.searchsorted(self._times, time)
        # What a row weighs, or each of its repetitions, where whole weights stand for these.
        self.weight = np.ones(len(target)) if weights.in_derivatives.size == 0 else weights.in_derivatives
        self._counts = None if weights.repeats is None else weights.repeats.counts
        largest = float(exchange.reduce_max(np.array([self.weight.max(initial=0.0)], np.float64))[0])
        self.weight_bits = math.frexp(largest)[1]
        self.share = np.ldexp(self.weight, -self.weight_bits)  # at most 1
        n_rows = int(exchange.reduce_sum(np.array([len(target)], np.int64))[0])
        self._sum_bits = _SUM_BITS - (n_rows if weights.repeats is None else weights.repeats.total).bit_length()
        events = self._sums_by_time(self._units(np.where(target > 0.0, self.share, 0.0)))
        self.event_weight = np.ldexp(self._as_numbers(events), self.weight_bits)

    def at_risk(self, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Exponentials of the scores here, times `share`, and their sums over the risk set of each time.

        Only their quotients mean something: exponentials are divided by the largest.
        """
        highest = float(self._exchange.reduce_max(np.array([score.max(initial=-np.inf)]))[0])
        risk = np.empty_like(score)
        write_exponential(score - highest, risk)
        # A row that weighs something counts, however low its risk: no sum is zero where there is anybody.
        risk *= self.share
        units = np.maximum(self._units(risk), self.share > 0.0)
        from_time_on = np.cumsum(self._sums_by_time(units)[::-1])[::-1]
        return risk, self._as_numbers(from_time_on)

    def _units(self, shares: FloatArray) -> IntArray:
        return np.rint(np.ldexp(shares, self._sum_bits)).astype(np.int64)

    def _sums_by_time(self, units: IntArray) -> IntArray:
        sums = np.zeros(len(self._times), np.int64)
        np.add.at(sums, self.time_of_row, units if self._counts is None else units * self._counts)
        return self._exchange.reduce_sum(sums)

    def _as_numbers(self, units: IntArray) -> FloatArray:
        return np.ldexp(units.astype(np.float64), -self._sum_bits)


def _distinct_everywhere(values: FloatArray, exchange: Exchange) -> FloatArray:
    own = np.unique(values)
    if exchange.alone:
        return own
    everybody = exchange.gather(own)
    distinct = own if everybody is None else np.unique(np.concatenate(everybody))
    n_distinct = int(exchange.broadcast(np.array([float(len(distinct))]))[0])
    return exchange.broadcast(distinct if everybody is not None else np.zeros(n_distinct))
