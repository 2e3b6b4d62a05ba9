"""Bytes and rounds of trees in the three parallel modes: the model for large sizes, checked against runs of small ones.

`python -m benchmarks.bench_communication` runs the small ones (ranks as threads of this process) and writes both tables
into docs/parallel_modes.md, between the markers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.communication import MODES, CommunicationModel, Mode
from benchmarks.marked_section import markdown_table, write_section
from benchmarks.run import PROJECT, start_results
from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.partition_binning import plan_bins, sample_rows, summarise_columns
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.ranks.rank import RankData, RankPartition, RankResult, RankTask, train_rank

COMMUNICATION = "communication"
SECTION = "communication"
N_TREES = 3
# The published table.
FEATURES = (10, 100, 1_000, 10_000)
RANKS = (2, 4, 16, 64, 256)
ROWS = 10_000_000
LEAVES = 255
# Runs beside the model: rows, features, ranks, leaves.
CHECKED = ((40_000, 10, 2, 31), (40_000, 100, 2, 31), (40_000, 50, 4, 63), (60_000, 20, 3, 255), (8_000, 2_000, 2, 15))


@dataclass(frozen=True)
class Check:
    """What ranks counted for a tree beside what the model says."""

    mode: Mode
    n_rows: int
    n_features: int
    n_ranks: int
    n_leaves: int
    rounds: float
    bytes_sent: float
    model_rounds: int
    model_bytes: int

    @property
    def ratio(self) -> float:
        """The model over what was counted."""
        return self.model_bytes / self.bytes_sent


def check(n_rows: int, n_features: int, n_ranks: int, n_leaves: int, mode: Mode) -> Check:
    """Train a few trees over ranks that are threads, and compare."""
    report = _trained(n_rows, n_features, n_ranks, n_leaves, mode).report
    model = CommunicationModel(n_rows, n_features, n_ranks, n_leaves).tree(mode)
    return Check(
        mode,
        n_rows,
        n_features,
        n_ranks,
        n_leaves,
        float(np.mean(report.rounds_per_tree)),
        float(np.mean(report.bytes_per_tree)),
        model.n_rounds,
        model.bytes_sent,
    )


def _trained(n_rows: int, n_features: int, n_ranks: int, n_leaves: int, mode: Mode) -> RankResult:
    """What rank 0 says of a fit of normal features and a target that many of them explain."""
    random = np.random.default_rng(0)
    features = random.normal(size=(n_features, n_rows)).astype(np.float32)
    weights = 1.0 / np.arange(1, n_features + 1)
    target = (weights @ features + random.normal(scale=0.5, size=n_rows) > 0).astype(np.float64)
    binning, bounds = BinningParameters(), [n_rows * rank // n_ranks for rank in range(n_ranks + 1)]
    tables = [
        Table(tuple(NumericColumn(column[start:stop]) for column in features), stop - start)
        for start, stop in pairwise(bounds)
    ]
    samples = [
        sample_rows(table, first_row_number=start, n_total_rows=n_rows, parameters=binning)
        for table, start in zip(tables, bounds, strict=False)
    ]
    plan = plan_bins(summarise_columns(samples, binning))
    data = [
        RankData.assembled(
            plan,
            [RankPartition.of(Rows(table, target[start:stop]), plan, start)],
        )
        for table, (start, stop) in zip(tables, pairwise(bounds), strict=True)
    ]
    parameters = TrainParameters(n_estimators=N_TREES, num_leaves=n_leaves, n_threads=1)
    columns = Columns.of(tables[0])
    task = RankTask(parameters, ObjectiveSettings("binary"), plan, columns, n_rows, tree_learner=mode)

    def train(communicator: Communicator) -> RankResult:
        return train_rank(communicator, data[communicator.rank], task)

    results: list[RankResult] = run_threads(train, n_ranks)
    return results[0]


def model_table() -> str:
    """The model for the published sizes."""
    rows = []
    for n_features in FEATURES:
        for n_ranks in RANKS:
            model = CommunicationModel(ROWS, n_features, n_ranks, LEAVES)
            sent = [model.tree(mode).bytes_sent for mode in MODES]
            cells = [f"{n_features:,}", str(n_ranks), *(_megabytes(each) for each in sent)]
            rows.append([*cells, f"{sent[0] / model.lightgbm_bytes():.2f}", f"{sent[2] / sent[0]:.3f}"])
    header = ["features", "workers", *(f"{mode}, MB" for mode in MODES), "data / LightGBM", "voting / data"]
    return markdown_table(header, rows)


def check_table(checks: Iterable[Check]) -> str:
    """The model beside runs."""
    rows = [
        [
            each.mode,
            f"{each.n_rows:,} x {each.n_features:,}",
            str(each.n_ranks),
            str(each.n_leaves),
            f"{each.rounds:.1f}",
            str(each.model_rounds),
            _megabytes(each.bytes_sent),
            _megabytes(each.model_bytes),
            f"{each.ratio:.2f}",
        ]
        for each in checks
    ]
    header = ["mode", "rows x features", "ranks", "leaves", "rounds", "model", "MB sent", "model", "model / counted"]
    return markdown_table(header, rows)


def section(checks: Sequence[Check]) -> str:
    """What stands between the markers."""
    calls = {mode: CommunicationModel(ROWS, FEATURES[1], RANKS[1], LEAVES).tree(mode) for mode in MODES}
    rounds = "; ".join(f"{mode} {tree.n_rounds} rounds, {tree.n_calls} calls" for mode, tree in calls.items())
    introduction = (
        f"What each worker sends for a tree of {LEAVES} leaves over {ROWS:,} rows, by the model. Rounds and calls do "
        f"not depend on features and workers: {rounds}."
    )
    return "\n\n".join([introduction, model_table(), "The model beside what ranks counted:", check_table(checks)])


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.3g}" if n_bytes < 1e9 else f"{n_bytes / 1e6:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_communication", description=__doc__)
    parser.add_argument("--page", type=Path, default=PROJECT / "docs" / "parallel_modes.md")
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    checks = [check(*sizes, mode) for sizes in CHECKED for mode in MODES]
    print(check_table(checks))
    write_section(arguments.page, SECTION, section(checks))
    if arguments.json is not None:
        results = start_results(arguments.json)
        for each in checks:
            results.append(COMMUNICATION, asdict(each))


if __name__ == "__main__":
    main()
