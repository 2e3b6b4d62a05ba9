"""Interleaved repetitions: system after system on one data set, then all of them again, each in a process of its own.

A slow minute of the machine then hits all systems, and the minimum over repetitions is comparable. A system that
refused, crashed or ran out of time on a data set is recorded once and not asked again for that data set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from benchmarks.measure import add_settings_arguments, settings_from_arguments, settings_to_arguments
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.records import BENCHMARK, ENVIRONMENT, Measurement, ResultFile

PROJECT = Path(__file__).resolve().parent.parent
DEFAULT_RESULTS = Path("results.jsonl")


@dataclass(frozen=True)
class Plan:
    """What every measurement of a run has in common."""

    settings: Settings
    data_dir: Path | None
    repeat: int
    fits: int
    timeout: float


def run_dataset(dataset: str, systems: Sequence[str], plan: Plan, results: ResultFile, kind: str = BENCHMARK) -> None:
    """All repetitions of all systems on one data set."""
    running = list(systems)
    for repetition in range(plan.repeat):
        for system in list(running):
            foreign_load = ForeignLoad()
            measurement = measure_in_new_process(system, dataset, plan)
            measurement = replace(measurement, foreign_cores=foreign_load.cores())
            common = {"repetition": repetition, "settings": asdict(plan.settings)}
            results.append(kind, common | measurement.to_record())
            print(describe(measurement, repetition), file=sys.stderr, flush=True)
            if measurement.status != "ok":
                running.remove(system)


def measure_in_new_process(system: str, dataset: str, plan: Plan) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.measure", f"--system={system}", f"--dataset={dataset}"]
    command += [f"--fits={plan.fits}", *settings_to_arguments(plan.settings)]
    if plan.data_dir is not None:
        command.append(f"--data-dir={plan.data_dir.resolve()}")
    try:
        finished = subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, timeout=plan.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Measurement(system, dataset, "timeout", reason=f"no answer after {plan.timeout:.0f} s")
    if finished.returncode != 0:
        last_words = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        return Measurement(system, dataset, "crashed", reason=f"exit status {finished.returncode}: {last_words}")
    return Measurement.from_record(json.loads(finished.stdout))


def describe(measurement: Measurement, repetition: int) -> str:
    """One line of progress."""
    start = f"{measurement.dataset:20} {measurement.system:19} {repetition + 1}"
    if measurement.figures is None:
        return f"{start}  {measurement.status}: {measurement.reason}"
    figures = measurement.figures
    return (
        f"{start}  fit {figures.fit_seconds:8.3f} s  predict {figures.predict_seconds * 1e3:8.2f} ms"
        f"  row {figures.predict_row_seconds * 1e3:6.3f} ms  peak {figures.peak_bytes / 2**20:6.0f} MB"
        f" (+{figures.growth_bytes / 2**20:.0f})  metric {figures.metric:.5f}"
        f"  foreign load {measurement.foreign_cores:.2f}"
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, help="folder with the Parquet tables; without it, only sets that need none"
    )
    parser.add_argument(
        "--datasets", nargs="+", metavar="NAME", choices=DATASET_NAMES, help="default: all that can be read"
    )
    parser.add_argument("--systems", nargs="+", metavar="NAME", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions (default: %(default)s)")
    parser.add_argument("--fits", type=int, default=2, help="fits in each process (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_RESULTS, help="appended to (default: %(default)s)")
    add_settings_arguments(parser)


def plan_from_arguments(arguments: argparse.Namespace) -> Plan:
    settings = settings_from_arguments(arguments)
    return Plan(settings, arguments.data_dir, arguments.repeat, arguments.fits, arguments.timeout)


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
        run_dataset(dataset, arguments.systems, plan_from_arguments(arguments), results)


if __name__ == "__main__":
    main()
