"""One measurement: one system fits and predicts one data set in this fresh process and prints one JSON line.

Import and loading stand outside the clock of the fit. The first fit carries compilation and first touch and gives the
peak memory; the fastest of `--fits` fits is the published one, for every system alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.memory import PeakMemory
from benchmarks.peers import SYSTEMS, Settings, System
from benchmarks.records import Figures, Measurement
from benchmarks.tasks import METRICS

if TYPE_CHECKING:
    from benchmarks.datasets import Dataset, Features

PREDICT_CALLS, PREDICT_SECONDS = 3, 1.0
ROW_CALLS, ROW_SECONDS = 20, 0.2


def measure(system_name: str, dataset_name: str, data_dir: Path | None, settings: Settings, fits: int) -> Measurement:
    """Whatever the system raises becomes a refusal with its reason; a missing data set is the caller's error."""
    system = SYSTEMS[system_name]
    answer = Measurement(system_name, dataset_name, "refused", threads=settings.threads, fits=fits)
    started = perf_counter()
    try:
        importlib.import_module(system.package)
    except ImportError as error:
        return dataclasses.replace(answer, reason=_first_line(error))
    import_seconds = perf_counter() - started

    # Imported only now: pandas must not shorten the import that was just measured.
    from benchmarks.datasets import load_dataset

    started = perf_counter()
    dataset = load_dataset(dataset_name, data_dir)
    load_seconds = perf_counter() - started
    train_rows, n_features = dataset.train.features.shape
    answer = dataclasses.replace(
        answer, task=dataset.task, train_rows=train_rows, test_rows=len(dataset.test.target), n_features=n_features
    )
    try:
        figures = _race(system, _prepared(system, dataset), settings, fits)
    except Exception as error:  # noqa: BLE001 - whatever a system raises is its published answer
        return dataclasses.replace(answer, reason=_first_line(error))
    figures = dataclasses.replace(figures, import_seconds=import_seconds, load_seconds=load_seconds)
    return dataclasses.replace(answer, status="ok", figures=figures)


def _prepared(system: System, dataset: Dataset) -> Dataset:
    train = dataclasses.replace(dataset.train, features=system.prepare(dataset.train.features))
    test = dataclasses.replace(dataset.test, features=system.prepare(dataset.test.features))
    return dataclasses.replace(dataset, train=train, test=test)


def _race(system: System, dataset: Dataset, settings: Settings, fits: int) -> Figures:
    train, test, task = dataset.train, dataset.test, dataset.task
    arguments = system.fit_arguments(train)
    memory = PeakMemory()
    peak_bytes = 0
    fit_seconds: list[float] = []
    for fit in range(fits):
        model: Any = None
        gc.collect()
        model = system.build(settings, task)
        started = perf_counter()
        model.fit(train.features, train.target, **arguments)
        fit_seconds.append(perf_counter() - started)
        if fit == 0:
            peak_bytes = memory.peak_bytes()

    prediction = system.predict(model, test.features, settings, task)
    first_row = _first_row(test.features)
    return Figures(
        import_seconds=0.0,
        load_seconds=0.0,
        first_fit_seconds=fit_seconds[0],
        fit_seconds=min(fit_seconds),
        predict_seconds=_fastest_call(
            lambda: system.predict(model, test.features, settings, task), PREDICT_CALLS, PREDICT_SECONDS
        ),
        predict_row_seconds=_fastest_call(
            lambda: system.predict(model, first_row, settings, task), ROW_CALLS, ROW_SECONDS
        ),
        peak_bytes=peak_bytes,
        growth_bytes=peak_bytes - memory.start_bytes,
        metric=METRICS[task].score(test, prediction),
    )


def _fastest_call(call: Callable[[], object], least_calls: int, least_seconds: float) -> float:
    """The minimum over at least so many calls, and over more of them while they are short."""
    durations: list[float] = []
    while len(durations) < least_calls or sum(durations) < least_seconds:
        started = perf_counter()
        call()
        durations.append(perf_counter() - started)
    return min(durations)


def _first_row(features: Features) -> Features:
    return features[:1]


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of `Settings`, under its own name and default."""
    for field in dataclasses.fields(Settings):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=type(field.default), default=field.default, help="default: %(default)s")


def settings_from_arguments(arguments: argparse.Namespace) -> Settings:
    return Settings(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Settings)})


def settings_to_arguments(settings: Settings) -> list[str]:
    """The command line that gives another process the same settings."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in dataclasses.asdict(settings).items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--fits", type=int, default=2, help="fits in this process (default: %(default)s)")
    add_settings_arguments(parser)
    arguments = parser.parse_args()
    settings = settings_from_arguments(arguments)

    # Read by OpenMP and the linear algebra libraries when they are loaded, and nothing has been loaded yet. Arrow's own
    # allocator would keep the pages freed after loading, out of reach of malloc_trim.
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    # Standard output carries the answer only; what libraries print goes to standard error.
    answer_channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    measurement = measure(arguments.system, arguments.dataset, arguments.data_dir, settings, arguments.fits)
    print(json.dumps(measurement.to_record()), file=answer_channel, flush=True)


if __name__ == "__main__":
    main()
