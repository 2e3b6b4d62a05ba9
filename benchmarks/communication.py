"""The communication model: bytes and rounds of a tree in each parallel mode, for sizes that nobody has at hand.

Made of the formulas that the modes themselves use (shares of features, words of the codec, agreed lengths, the
schedules of collectives) and of two assumptions: splits halve their nodes, and bins hold equal shares of the rows but
for chance. `bench_communication` counts the bytes of real runs beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dmlgbm.collectives import all_reduce_bytes
from dmlgbm.gbdt.kernels.histogram_codec import FEATURE_HEADER_BYTES
from dmlgbm.gbdt.kernels.part_messages import HEAD_BYTES, LENGTH_BYTES
from dmlgbm.gbdt.kernels.round_growth import CANDIDATE_WORDS
from dmlgbm.gbdt.ranks.histogram_messages import agreed_length

Mode = Literal["data", "feature", "voting"]
MODES: tuple[Mode, ...] = ("data", "feature", "voting")

_WORD = 8
_BALLOT = 4
# Sums of a root: gradient, hessian, rows.
_ROOT_SUMS = 3 * _WORD
# Bits of the gradient and hessian of one row where both fit a word with its count (`dmlgbm.gbdt.growth.quantisation`).
_GRADIENT_BITS, _HESSIAN_BITS = 10, 8
# The largest of 255 counts that only chance makes unequal is about this many standard deviations above the others.
_LARGEST_DEVIATION = 2.8
# Messages are longer than the longest of them needs by this factor: ranks expect a bit more than comes.
_EXPECTED_OVER_NEEDED = 1.09
# What LightGBM sends for a bin: two float64.
LIGHTGBM_BYTES_PER_BIN = 16


@dataclass(frozen=True)
class Round:
    """The nodes that a round splits, as rows over all ranks; the first round only searches the root."""

    nodes: tuple[int, ...]
    searches_root: bool = False
    is_last: bool = False  # one split is left, so nobody asks for those of its children

    @property
    def children(self) -> tuple[int, ...]:
        """Rows of the nodes whose best splits the round finds."""
        if self.is_last:
            return ()
        return self.nodes if self.searches_root else tuple(n // 2 for n in self.nodes for _ in range(2))

    @property
    def smaller_children(self) -> tuple[int, ...]:
        """Rows of the nodes whose histograms are built; those of their siblings are differences."""
        return self.children if self.searches_root else self.children[::2]

    @property
    def n_candidates(self) -> int:
        """Candidates that are told of: two for each leaf of the round."""
        return 2 * len(self.nodes)


def rounds_of(n_rows: int, n_leaves: int) -> list[Round]:
    """The rounds of best-first growth if every leaf is worth splitting: each takes a third of those that are due."""
    rounds = [Round((n_rows,), searches_root=True)]
    leaves, n_splits = [n_rows], 0
    while n_splits < n_leaves - 1:
        still_due = n_leaves - 1 - n_splits
        n_picked = (min(len(leaves), still_due) + 2) // 3
        leaves.sort(reverse=True)
        picked, leaves = leaves[:n_picked], leaves[n_picked:]
        leaves += [rows // 2 for rows in picked for _ in range(2)]
        n_splits += n_picked
        rounds.append(Round(tuple(picked), is_last=still_due == 1))
    return rounds


@dataclass(frozen=True)
class TreeTraffic:
    """What one tree takes each rank."""

    n_rounds: int
    n_calls: int
    bytes_sent: int


@dataclass(frozen=True)
class CommunicationModel:
    """Trees over a table; every feature has `n_bins` bins."""

    n_rows: int
    n_features: int
    n_ranks: int
    n_leaves: int = 31
    n_bins: int = 255
    top_k: int = 20

    def tree(self, mode: Mode) -> TreeTraffic:
        """Rounds, calls and bytes of a tree."""
        rounds = rounds_of(self.n_rows, self.n_leaves)
        calls = [] if mode == "feature" else [all_reduce_bytes(_ROOT_SUMS, self.n_ranks)]
        for each in rounds:
            calls += {"data": self._data, "feature": self._feature, "voting": self._voting}[mode](each)
        return TreeTraffic(len(rounds), len(calls), sum(calls))

    def lightgbm_bytes(self) -> float:
        """A reduce-scatter of two float64 a bin, for the root and the smaller child of every split."""
        share = (self.n_ranks - 1) / self.n_ranks
        return self.n_leaves * self.n_features * self.n_bins * LIGHTGBM_BYTES_PER_BIN * share

    def _data(self, this: Round) -> list[int]:
        """Bytes of each call of a round: histograms of smaller children, candidates."""
        if not this.children:
            return []
        owned = math.ceil(self.n_features / self.n_ranks)
        histograms = sum(owned * self._encoded(rows) for rows in this.smaller_children)
        return [self._messages(LENGTH_BYTES * len(this.nodes) + histograms), self._candidates(this)]

    def _feature(self, this: Round) -> list[int]:
        """A bit for each row of the nodes that are split, and candidates."""
        calls = []
        if not this.searches_root:
            n_bytes = sum(-(-rows // 8) for rows in this.nodes)
            calls.append(all_reduce_bytes(-(-n_bytes // _WORD) * _WORD, self.n_ranks))
        return [*calls, self._candidates(this)] if this.children else calls

    def _voting(self, this: Round) -> list[int]:
        """Ballots, elected histograms of both children, candidates."""
        if not this.children:
            return []
        ballots = this.n_candidates * self.top_k * _BALLOT * (self.n_ranks - 1)
        return [ballots, self._messages(self._longest_elected(this)), self._candidates(this)]

    def _longest_elected(self, this: Round) -> int:
        """The longest message of elected histograms: each elected feature of each child goes to the next rank."""
        lengths = [LENGTH_BYTES * this.n_candidates] * self.n_ranks
        n_elected = min(2 * self.top_k, self.n_features)
        for child, rows in enumerate(this.children):
            encoded = self._encoded(rows)
            for position in range(n_elected):
                lengths[(child + position) % self.n_ranks] += encoded
        return max(lengths)

    def _messages(self, longest: int) -> int:
        return agreed_length(HEAD_BYTES + math.ceil(_EXPECTED_OVER_NEEDED * longest)) * (self.n_ranks - 1)

    def _candidates(self, this: Round) -> int:
        return this.n_candidates * CANDIDATE_WORDS * _WORD * (self.n_ranks - 1)

    def _encoded(self, rows: int) -> int:
        """Bytes of one feature of a node, of the rows that a rank has."""
        expected = rows / self.n_ranks / self.n_bins
        largest = max(1, math.floor(expected + _LARGEST_DEVIATION * math.sqrt(expected)))
        count_bits = largest.bit_length()
        gradient_bits = (largest << _GRADIENT_BITS).bit_length() + 1
        hessian_bits = (largest << _HESSIAN_BITS).bit_length()
        return FEATURE_HEADER_BYTES + self.n_bins * ((gradient_bits + hessian_bits + count_bits + 7) // 8)
