"""Interleaved repetitions: system after system on one data set, then all of them again, each in a process of its own.

A slow minute of the machine then hits all systems, and the minimum over repetitions is comparable. A system that
refused, crashed or ran out of time on a data set is recorded once and not asked again for that data set. After the
repetitions come, where asked for, one measurement of memory on many times the rows, and accuracies on other splits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.datasets import (
    DATASET_NAMES,
    DATASETS_FOR_EVERYONE,
    DATASETS_OF_DATA_DIR,
    MissingDataError,
    locate_files,
)
from benchmarks.environment import ForeignLoad, describe_environment
from benchmarks.measure import Method
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.record_arguments import add_record_arguments, record_from_arguments, record_to_arguments
from benchmarks.records import BENCHMARK, ENVIRONMENT, Measurement, Purpose, ResultFile

PROJECT = Path(__file__).resolve().parent.parent
DEFAULT_RESULTS = Path("results.jsonl")
# A fit on fewer cells than this grows by little more than the allocator's noise: memory is measured on more rows.
SMALL_CELLS, ROW_COPIES, MEMORY_TREES = 1_200_000, 10, 10


@dataclass(frozen=True)
class Place:
    """Where a measurement runs: the interpreter, and the folders whose packages come before the installed ones."""

    python: str = sys.executable
    folders: tuple[Path, ...] = (PROJECT,)

    def environment(self) -> dict[str, str]:
        """Variables under which `-m benchmarks.measure` finds its packages in these folders, not in the current one."""
        paths = [*map(str, self.folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


HERE = Place()


@dataclass(frozen=True)
class RunSettings:
    """What every measurement of a run has in common."""

    settings: Settings
    method: Method
    data_dir: Path | None
    repeat: int
    timeout: float
    accuracy_splits: int = 0
    enlarge_small: bool = False
    # Of systems that need another interpreter than this one.
    places: Mapping[str, Place] = field(default_factory=dict)


def run_dataset(
    dataset: str, systems: Sequence[str], run: RunSettings, results: ResultFile, kind: str = BENCHMARK
) -> None:
    """All repetitions of all systems on one data set, then what is measured once."""
    race = _Race(dataset, list(systems), results, kind)
    for repetition in range(run.repeat):
        race.run_turn(run, "time", repetition)
    if run.enlarge_small and 0 < race.n_cells < SMALL_CELLS:
        race.run_turn(_memory_run(run), "memory", 0)
    for split in range(1, run.accuracy_splits + 1):
        race.run_turn(_accuracy_run(run, split), "accuracy", split)


def _memory_run(run: RunSettings) -> RunSettings:
    """The first trees need all the memory there is, so a few of them are enough."""
    method = replace(run.method, fits=1, fit_seconds=0.0, predict_seconds=0.0, row_copies=ROW_COPIES)
    return replace(run, method=method, settings=replace(run.settings, n_estimators=MEMORY_TREES))


def _accuracy_run(run: RunSettings, split: int) -> RunSettings:
    method = replace(run.method, fits=1, fit_seconds=0.0, predict_seconds=0.0, warm_up=False, split=split)
    return replace(run, method=method, settings=replace(run.settings, seed=run.settings.seed + split))


@dataclass
class _Race:
    """The systems that still run on a data set, and where their measurements go."""

    dataset: str
    running: list[str]
    results: ResultFile
    kind: str
    n_cells: int = 0

    def run_turn(self, run: RunSettings, purpose: Purpose, repetition: int) -> None:
        for system in list(self.running):
            foreign_load = ForeignLoad()
            measurement = measure_in_new_process(system, self.dataset, run)
            measurement = replace(measurement, foreign_cores=foreign_load.cores(), purpose=purpose)
            self.n_cells = max(self.n_cells, measurement.train_rows * measurement.n_features)
            common = {"repetition": repetition, "settings": asdict(run.settings)}
            self.results.append(self.kind, common | measurement.to_record())
            print(describe(measurement, repetition), file=sys.stderr, flush=True)
            if measurement.status != "ok":
                self.running.remove(system)


def measure_in_new_process(system: str, dataset: str, run: RunSettings) -> Measurement:
    place = run.places.get(system, HERE)
    command = [place.python, "-m", "benchmarks.measure", f"--system={system}", f"--dataset={dataset}"]
    command += [*record_to_arguments(run.method), *record_to_arguments(run.settings)]
    if run.data_dir is not None:
        command.append(f"--data-dir={run.data_dir.resolve()}")
    try:
        finished = subprocess.run(
            command,
            cwd=PROJECT,
            env=place.environment(),
            capture_output=True,
            text=True,
            timeout=run.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Measurement(system, dataset, "timeout", reason=f"no answer after {run.timeout:.0f} s")
    if finished.returncode != 0:
        last_words = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        return Measurement(system, dataset, "crashed", reason=f"exit status {finished.returncode}: {last_words}")
    return Measurement.from_record(json.loads(finished.stdout))


def describe(measurement: Measurement, repetition: int) -> str:
    """One line of progress."""
    start = f"{measurement.dataset:20} {measurement.system:19} {measurement.purpose:8} {repetition + 1}"
    if measurement.figures is None:
        return f"{start}  {measurement.status}: {measurement.reason}"
    figures = measurement.figures
    return (
        f"{start}  fit {figures.fit_seconds:8.3f} s  predict {figures.predict_seconds * 1e3:8.2f} ms"
        f"  row {figures.predict_row_seconds * 1e3:6.3f} ms  peak {figures.peak_bytes / 2**20:6.0f} MB"
        f" (+{figures.growth_bytes / 2**20:.0f})  metric {figures.metric:.5f}"
        f"  foreign load {measurement.foreign_cores:.2f}"
    )


def add_run_arguments(
    parser: argparse.ArgumentParser,
    datasets: Sequence[str] = DATASET_NAMES,
    systems: Sequence[str] = tuple(SYSTEMS),
    systems_to_choose: Sequence[str] = tuple(SYSTEMS),
) -> None:
    """The options of every race: over which data sets, by which systems unless others are named, how often."""
    parser.add_argument(
        "--data-dir", type=Path, help="folder with the Parquet tables; without it, only sets that need none"
    )
    parser.add_argument("--datasets", nargs="+", metavar="NAME", choices=datasets, help="default: all that can be read")
    parser.add_argument("--systems", nargs="+", metavar="NAME", choices=systems_to_choose, default=list(systems))
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions (default: %(default)s)")
    parser.add_argument("--fits", type=int, default=2, help="fits in each process (default: %(default)s)")
    parser.add_argument(
        "--accuracy-splits",
        type=int,
        default=0,
        metavar="N",
        help="accuracy is the mean over N more splits and seeds (default: that of the timed fits)",
    )
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_RESULTS, help="appended to (default: %(default)s)")
    add_record_arguments(parser, Settings)


def run_settings_from_arguments(arguments: argparse.Namespace) -> RunSettings:
    return RunSettings(
        settings=record_from_arguments(arguments, Settings),
        method=Method(fits=arguments.fits),
        data_dir=arguments.data_dir,
        repeat=arguments.repeat,
        timeout=arguments.timeout,
        accuracy_splits=arguments.accuracy_splits,
        enlarge_small=True,
    )


def chosen_datasets(arguments: argparse.Namespace) -> list[str]:
    """Those asked for, which must be there; else all that are there of the data directory, or of those for everyone."""
    if arguments.datasets:
        for name in arguments.datasets:
            locate_files(name, arguments.data_dir)
        return list(arguments.datasets)
    found: list[str] = []
    for name in DATASETS_FOR_EVERYONE if arguments.data_dir is None else DATASETS_OF_DATA_DIR:
        try:
            locate_files(name, arguments.data_dir)
        except MissingDataError as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def start_results(path: Path) -> ResultFile:
    """A new run in the result file, opened with its environment."""
    results = ResultFile(path, run=datetime.now(UTC).isoformat(timespec="seconds"))
    results.append(ENVIRONMENT, describe_environment())
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    add_run_arguments(parser)
    arguments = parser.parse_args()
    try:
        datasets = chosen_datasets(arguments)
    except MissingDataError as error:
        parser.error(str(error))
    results = start_results(arguments.out)
    for dataset in datasets:
        run_dataset(dataset, arguments.systems, run_settings_from_arguments(arguments), results)


if __name__ == "__main__":
    main()
