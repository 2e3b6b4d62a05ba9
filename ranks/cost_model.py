"""What a tree would cost in each parallel mode, and the choice of `tree_learner="auto"`.

Costs are seconds a tree: work of the slowest rank, bytes through its connection, and waiting for messages. The
constants were measured on one core (ns for each row, bin or byte); they decide between orders of magnitude, not
between neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Rows of the table that a tree's histograms and partitions visit, as multiples of all rows.
_HISTOGRAM_VISITS = 2.0
_PARTITION_VISITS = 6.5
# Seconds for each (row, column) of a histogram, row of a partition, bin of a search, bin encoded or decoded.
_ADD_BIN = 0.6e-9
_MOVE_ROW = 0.9e-9
_SEARCH_BIN = 3.0e-9
_ENCODE_BIN = 3.0e-9
# Gradients, rounding, leaf sums and scores of a row.
_BOOST_ROW = 12e-9
# Bytes of an encoded bin (see `gbdt.kernels.histogram_codec`) and of a best split.
_BYTES_PER_BIN = 5.5
_BYTES_PER_CANDIDATE = 112.0
# What each message costs beyond the first of a call, in seconds.
_EACH_MESSAGE = 5e-6
# Calls a round: agreed length, histograms or bits or votes, best splits.
_CALLS = {"data": 3, "feature": 2, "voting": 4}
# Voting leaves out splits: it must be this much faster than the best exact mode.
_VOTING_ADVANTAGE = 2.0

DEFAULT_BANDWIDTH = 1.0e9
DEFAULT_LATENCY = 100e-6


@dataclass(frozen=True)
class Cost:
    """Seconds a tree takes a rank, and the bytes it sends."""

    work: float
    transfer: float
    waiting: float
    bytes_sent: float

    @property
    def total(self) -> float:
        return self.work + self.transfer + self.waiting


@dataclass(frozen=True)
class Plan:
    """The chosen mode and why."""

    tree_learner: str
    reasons: str
    costs: dict[str, float]  # seconds a tree

    def __str__(self) -> str:
        return self.reasons


@dataclass(frozen=True)
class Workload:
    """What decides the cost of a tree. `n_bins` are those of all features together."""

    n_rows: int
    n_features: int
    n_bins: int
    n_leaves: int
    n_ranks: int
    n_trees: int = 100
    top_k: int = 20

    @property
    def n_rounds(self) -> float:
        """Measured: 15 for 31 leaves, 29 for 255."""
        return max(1.0, 3.3 * math.log2(max(self.n_leaves, 2)))

    def work(self, mode: str) -> float:
        """Seconds that the slowest rank computes for a tree."""
        ranks = self.n_ranks
        histograms = _HISTOGRAM_VISITS * self.n_rows * self.n_features * _ADD_BIN / ranks
        all_bins = self.n_leaves * self.n_bins
        rows = self.n_rows * (_PARTITION_VISITS * _MOVE_ROW + _BOOST_ROW)
        if mode == "feature":
            return histograms + rows + 2 * all_bins * _SEARCH_BIN / ranks
        if mode == "data":
            return histograms + rows / ranks + 2 * all_bins * _SEARCH_BIN / ranks + all_bins * _ENCODE_BIN
        elected = 2 * self._elected_bins()
        return histograms + rows / ranks + 2 * all_bins * _SEARCH_BIN + elected * (_SEARCH_BIN + _ENCODE_BIN)

    def bytes_sent(self, mode: str) -> float:
        """Bytes that a rank sends for a tree."""
        others = self.n_ranks - 1
        share = others / self.n_ranks
        candidates = 2 * self.n_leaves * _BYTES_PER_CANDIDATE * others
        if mode == "feature":
            once = self.n_rows * self.n_features / self.n_ranks * share / self.n_trees
            return 2 * share * _PARTITION_VISITS * self.n_rows / 8 + candidates + once
        if mode == "data":
            return self.n_leaves * self.n_bins * _BYTES_PER_BIN * share + candidates
        votes = 2 * self.n_leaves * self.top_k * 4 * others
        return 2 * self._elected_bins() * _BYTES_PER_BIN * share + votes + candidates

    def cost(self, mode: str, bandwidth: float, latency: float) -> Cost:
        """All of it."""
        sent = self.bytes_sent(mode) if self.n_ranks > 1 else 0.0
        call = latency + _EACH_MESSAGE * (self.n_ranks - 2) if self.n_ranks > 1 else 0.0
        return Cost(self.work(mode), sent / bandwidth, self.n_rounds * _CALLS[mode] * call, sent)

    def _elected_bins(self) -> float:
        """Bins of the elected features of a level of children."""
        elected = min(2 * self.top_k, self.n_features)
        return self.n_leaves * self.n_bins / max(self.n_features, 1) * elected


def choose_tree_learner(
    *,
    n_rows: int,
    n_features: int,
    n_bins: int,
    n_leaves: int,
    n_ranks: int,
    n_trees: int = 100,
    top_k: int = 20,
    bandwidth: float = DEFAULT_BANDWIDTH,
    latency: float = DEFAULT_LATENCY,
) -> Plan:
    """The mode in which a tree is expected to take the least time; voting only if it is much faster.

    `n_bins` are those of all features together, `bandwidth` is in bytes a second, `latency` in seconds a call.
    """
    workload = Workload(n_rows, n_features, n_bins, n_leaves, n_ranks, n_trees, top_k)
    costs = {mode: workload.cost(mode, bandwidth, latency) for mode in _CALLS}
    exact = min(("data", "feature"), key=lambda mode: costs[mode].total)
    faster = costs[exact].total / max(costs["voting"].total, 1e-12)
    chosen = "voting" if faster >= _VOTING_ADVANTAGE else exact
    shape = f"{n_rows:,} rows, {n_features:,} features with {n_bins:,} bins, {n_leaves} leaves, {n_ranks} ranks"
    lines = [
        f"{shape}; {bandwidth / 1e6:,.0f} MB/s, {latency * 1e6:,.0f} us a call:",
        f"{'mode':8} {'ms a tree':>10} {'work':>8} {'transfer':>9} {'waiting':>8} {'bytes sent':>13}",
    ]
    for mode, cost in costs.items():
        parts = f"{cost.work * 1e3:8.2f} {cost.transfer * 1e3:9.2f} {cost.waiting * 1e3:8.2f}"
        lines.append(f"{mode:8} {cost.total * 1e3:10.2f} {parts} {cost.bytes_sent:13,.0f}")
    lines.append(f"chosen: {chosen}" + _why(chosen, exact, faster))
    return Plan(chosen, "\n".join(lines), {mode: cost.total for mode, cost in costs.items()})


def _why(chosen: str, exact: str, faster: float) -> str:
    if chosen == "voting":
        return f", {faster:.1f} times as fast as {exact}; it is approximate"
    if faster > 1.0:
        return f", the faster exact mode; voting, {faster:.2f} times as fast, does not pay for being approximate"
    return ", the fastest"
