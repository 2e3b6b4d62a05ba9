"""From many measurements to one comparison for each data set: minima over repetitions, ratios to the best peer.

Repetitions are compared within a run only; a data set measured in several runs counts with its newest.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.peers import OURS, PEERS
from benchmarks.records import Figures, Measurement, Purpose, Record
from benchmarks.tasks import METRICS, Metric, Task

# Growth below a megabyte is the allocator's, not the system's: no ratio is made of it.
LEAST_GROWTH_BYTES = 2.0**20

# A repetition counts as undisturbed while other processes took no more than this many cores.
QUIET_CORES = 0.2

Quantity = Callable[["SystemFigures"], float]


@dataclass(frozen=True)
class SystemFigures:
    """One system on one data set: the best of its repetitions, and the mean of its metric.

    Memory growth and metric are those of measurements made for them, where there are any.
    """

    quiet_repetitions: int
    fit_seconds: float
    predict_seconds: float
    predict_row_seconds: float
    peak_bytes: float
    growth_bytes: float
    metric: float
    fit_cpu_seconds: float | None = None

    @property
    def cores_used(self) -> float | None:
        """CPU time over wall time of the fastest fit."""
        return None if self.fit_cpu_seconds is None else self.fit_cpu_seconds / self.fit_seconds


@dataclass
class Comparison:
    """All systems on one data set."""

    dataset: str
    settings: Record
    task: Task | None = None
    train_rows: int = 0
    n_features: int = 0
    accuracy_splits: int = 0
    figures: dict[str, SystemFigures] = field(default_factory=dict)
    # Why a system has no figures; and why it has fewer repetitions than the others, where some went well.
    refusals: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)

    @property
    def metric(self) -> Metric | None:
        """None where no system got through."""
        return None if self.task is None else METRICS[self.task]

    def best_peer(self, quantity: Quantity) -> str | None:
        peers = [peer for peer in PEERS if peer in self.figures]
        return min(peers, key=lambda peer: quantity(self.figures[peer]), default=None)

    def ratio(self, quantity: Quantity) -> float | None:
        """Ours over the best peer: below 1 is a win. None if one of the two is missing."""
        best = self.best_peer(quantity)
        if best is None or OURS not in self.figures:
            return None
        return quantity(self.figures[OURS]) / quantity(self.figures[best])


def fit_seconds(figures: SystemFigures) -> float:
    return figures.fit_seconds


def predict_row_seconds(figures: SystemFigures) -> float:
    return figures.predict_row_seconds


def predict_seconds(figures: SystemFigures) -> float:
    return figures.predict_seconds


def peak_bytes(figures: SystemFigures) -> float:
    return figures.peak_bytes


def growth_bytes(figures: SystemFigures) -> float:
    return max(figures.growth_bytes, LEAST_GROWTH_BYTES)


def compare(records: Iterable[Record], kind: str) -> dict[str, Comparison]:
    """One comparison for each data set measured as `kind`, in the order of first appearance."""
    newest: dict[str, str] = {}
    chosen = [record for record in records if record["kind"] == kind]
    for record in chosen:
        newest[record["dataset"]] = max(newest.get(record["dataset"], ""), record["run"])
    by_dataset: dict[str, list[Record]] = {dataset: [] for dataset in newest}
    for record in chosen:
        if record["run"] == newest[record["dataset"]]:
            by_dataset[record["dataset"]].append(record)
    return {dataset: _compare_one(dataset, members) for dataset, members in by_dataset.items()}


def _compare_one(dataset: str, records: Sequence[Record]) -> Comparison:
    comparison = Comparison(dataset, settings=records[0]["settings"])
    successes: dict[str, dict[Purpose, list[Figures]]] = {}
    failures: dict[str, Measurement] = {}
    quiet: Counter[str] = Counter()
    for measurement in map(Measurement.from_record, records):
        if measurement.figures is None:
            failures[measurement.system] = measurement
            continue
        of_system = successes.setdefault(measurement.system, {"time": [], "memory": [], "accuracy": []})
        of_system[measurement.purpose].append(measurement.figures)
        if measurement.purpose != "time":
            continue
        quiet[measurement.system] += measurement.foreign_cores <= QUIET_CORES
        comparison.task = measurement.task
        comparison.train_rows, comparison.n_features = measurement.train_rows, measurement.n_features
    comparison.accuracy_splits = max((len(measured["accuracy"]) for measured in successes.values()), default=0)
    comparison.figures = {system: _best_of(measured, quiet[system]) for system, measured in successes.items()}
    for system, failure in failures.items():
        if system in successes:
            comparison.unfinished[system] = failure.reason
        else:
            comparison.refusals[system] = f"{failure.status}: {failure.reason}"
    return comparison


def _best_of(measured: dict[Purpose, list[Figures]], quiet_repetitions: int) -> SystemFigures:
    repetitions = measured["time"]
    fastest = min(repetitions, key=lambda figures: figures.fit_seconds)
    return SystemFigures(
        quiet_repetitions=quiet_repetitions,
        fit_seconds=fastest.fit_seconds,
        predict_seconds=min(figures.predict_seconds for figures in repetitions),
        predict_row_seconds=min(figures.predict_row_seconds for figures in repetitions),
        peak_bytes=min(figures.peak_bytes for figures in repetitions),
        growth_bytes=min(figures.growth_bytes for figures in measured["memory"] or repetitions),
        metric=statistics.fmean(figures.metric for figures in measured["accuracy"] or repetitions),
        fit_cpu_seconds=fastest.fit_cpu_seconds,
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
