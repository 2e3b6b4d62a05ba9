"""One measurement: one system fits and predicts one data set in this fresh process and prints one JSON line.

Import and loading stand outside the clock of the fit. The first fit carries compilation and first touch and gives the
peak memory; the fastest of `--fits` fits is the published one, for every system alike. With `--warm-up` a fit of a few
rows goes before them, and one fit of the table is enough.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from benchmarks.memory import PeakMemory
from benchmarks.peers import Settings, System
from benchmarks.predictors import EVERY_SYSTEM
from benchmarks.record_arguments import add_record_arguments, record_from_arguments
from benchmarks.records import Figures, Measurement
from benchmarks.tasks import METRICS

if TYPE_CHECKING:
    from benchmarks.datasets import Dataset, Features

PREDICT_CALLS, ROW_CALLS = 3, 20
# Of the seconds for calls that predict all rows, those for calls that predict one.
ROW_SHARE = 0.2
WARM_UP_TREES = 3


@dataclasses.dataclass(frozen=True)
class Method:
    """How a measurement is made: at least so many fits, and more while they took less than `fit_seconds` together.

    `arrays` makes float arrays of frames, `split` chooses other test rows, `row_copies` trains on so many times the
    rows.
    """

    fits: int = 2
    fit_seconds: float = 0.0
    warm_up: bool = False
    predict_seconds: float = 1.0
    arrays: bool = False
    split: int = 0
    row_copies: int = 1


def measure(
    system_name: str, dataset_name: str, data_dir: Path | None, settings: Settings, method: Method
) -> Measurement:
    """Whatever the system raises becomes a refusal with its reason; a missing data set is the caller's error."""
    system = EVERY_SYSTEM[system_name]
    answer = Measurement(system_name, dataset_name, "refused", threads=settings.threads, fits=method.fits)
    started = perf_counter()
    try:
        system.load()
    except ImportError as error:
        return dataclasses.replace(answer, reason=_first_line(error))
    import_seconds = perf_counter() - started

    # Imported only now: pandas must not shorten the import that was just measured.
    from benchmarks.datasets import load_dataset

    started = perf_counter()
    dataset = _in_form(load_dataset(dataset_name, data_dir, method.split), method)
    load_seconds = perf_counter() - started
    train_rows, n_features = dataset.train.features.shape
    answer = dataclasses.replace(
        answer, task=dataset.task, train_rows=train_rows, test_rows=len(dataset.test.target), n_features=n_features
    )
    try:
        figures = _race(system, _prepared(system, dataset), settings, method)
    except Exception as error:  # noqa: BLE001 - whatever a system raises is its published answer
        return dataclasses.replace(answer, reason=_first_line(error))
    figures = dataclasses.replace(figures, import_seconds=import_seconds, load_seconds=load_seconds)
    return dataclasses.replace(answer, status="ok", figures=figures)


def _in_form(dataset: Dataset, method: Method) -> Dataset:
    from benchmarks.table_forms import as_arrays, repeat_rows

    if method.arrays:
        dataset = as_arrays(dataset)
    return dataclasses.replace(dataset, train=repeat_rows(dataset.train, method.row_copies))


def _prepared(system: System, dataset: Dataset) -> Dataset:
    train = dataclasses.replace(dataset.train, features=system.prepare(dataset.train.features))
    test = dataclasses.replace(dataset.test, features=system.prepare(dataset.test.features))
    return dataclasses.replace(dataset, train=train, test=test)


def _race(system: System, dataset: Dataset, settings: Settings, method: Method) -> Figures:
    train, test, task = dataset.train, dataset.test, dataset.task
    if method.warm_up:
        _warm_up(system, dataset, settings)
    arguments = system.fit_arguments(train)
    memory = PeakMemory()
    peak_bytes = 0
    # Seconds on the clock first: the fastest fit is the least of these pairs.
    fits: list[tuple[float, float]] = []
    while len(fits) < method.fits or sum(seconds for seconds, _ in fits) < method.fit_seconds:
        model: Any = None
        gc.collect()
        model = system.build(settings, task)
        started, started_cpu = perf_counter(), process_time()
        model.fit(train.features, train.target, **arguments)
        fits.append((perf_counter() - started, process_time() - started_cpu))
        if len(fits) == 1:
            peak_bytes = memory.peak_bytes()

    prediction = system.predict(model, test.features, settings, task)
    first_row = _first_row(test.features)
    return Figures(
        import_seconds=0.0,
        load_seconds=0.0,
        first_fit_seconds=fits[0][0],
        fit_seconds=min(fits)[0],
        predict_seconds=_fastest_call(
            lambda: system.predict(model, test.features, settings, task), PREDICT_CALLS, method.predict_seconds
        ),
        predict_row_seconds=_fastest_call(
            lambda: system.predict(model, first_row, settings, task), ROW_CALLS, ROW_SHARE * method.predict_seconds
        ),
        peak_bytes=peak_bytes,
        growth_bytes=peak_bytes - memory.start_bytes,
        metric=METRICS[task].score(test, prediction),
        fit_cpu_seconds=min(fits)[1],
    )


def _warm_up(system: System, dataset: Dataset, settings: Settings) -> None:
    """Machine code is loaded, threads are started and pages are touched as in any later fit of the process."""
    from benchmarks.table_forms import warm_up_rows

    rows = warm_up_rows(dataset.train)
    model = system.build(dataclasses.replace(settings, n_estimators=WARM_UP_TREES), dataset.task)
    model.fit(rows.features, rows.target, **system.fit_arguments(rows))
    system.predict(model, _first_row(rows.features), settings, dataset.task)


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("--system", choices=EVERY_SYSTEM, required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data-dir", type=Path)
    add_record_arguments(parser, Method)
    add_record_arguments(parser, Settings)
    arguments = parser.parse_args()
    settings = record_from_arguments(arguments, Settings)

    # Read by OpenMP and the linear algebra libraries when they are loaded, and nothing has been loaded yet. Arrow's own
    # allocator would keep the pages freed after loading, out of reach of malloc_trim.
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    # Standard output carries the answer only; what libraries print goes to standard error.
    answer_channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    method = record_from_arguments(arguments, Method)
    measurement = measure(arguments.system, arguments.dataset, arguments.data_dir, settings, method)
    print(json.dumps(measurement.to_record()), file=answer_channel, flush=True)


if __name__ == "__main__":
    main()
