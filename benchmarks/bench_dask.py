"""Fits on Dask clusters: ours beside lightgbm.dask and xgboost.dask, on equal workers with the same partitions.

Systems take turns, so that a slow minute of the machine hits all of them, and the fastest turn counts. Every turn has a
cluster of its own: workers that only wait for their next turn take a tenth of a core each pair. Memory is the sum over
all workers of their highest resident memory during a fit, with the data that Dask holds for everybody. Bytes
are what went over the loopback device; ours also counts what its ranks sent, which is in shared memory on one host.
`python -m benchmarks.dask_report` writes the figures into docs/dask.md.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

from benchmarks.datasets import Dataset, load_dataset
from benchmarks.memory import PeakMemory
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.records import ResultFile
from benchmarks.run import start_results
from benchmarks.tasks import METRICS, Task

DASK = "dask"
PARTITIONS_OF_A_WORKER = 2
LOCAL = "ours, local"
_TREES_TO_WARM_UP = 2


@dataclass(frozen=True)
class Figure:
    """One fit of one system."""

    system: str
    dataset: str
    workers: int
    fit_seconds: float
    peak_bytes: int
    loopback_bytes: int
    sent_bytes: int | None
    rounds_per_tree: float | None
    metric_name: str
    metric: float
    trees: int
    leaves: int


@dataclass(frozen=True)
class Race:
    """A data set on a cluster, ready for everybody."""

    client: Client
    data: Dataset
    X: Any
    y: Any
    settings: Settings

    def warming_up(self) -> Race:
        """A short fit, for workers to import and compile what the one that counts needs."""
        return replace(self, settings=replace(self.settings, n_estimators=_TREES_TO_WARM_UP))


def ours(race: Race) -> Any:
    model = SYSTEMS["ours"].build(replace(race.settings, threads=1), race.data.task)
    return model.fit(race.X, race.y, client=race.client)


def lightgbm(race: Race) -> Any:
    from lightgbm.dask import DaskLGBMClassifier, DaskLGBMRegressor

    kind = DaskLGBMClassifier if _is_classified(race.data.task) else DaskLGBMRegressor
    parameters = SYSTEMS["lightgbm"].parameters(replace(race.settings, threads=1), race.data.task)
    return kind(client=race.client, tree_learner="data", **parameters).fit(race.X, race.y).to_local()


def xgboost(race: Race) -> Any:
    from xgboost.dask import DaskXGBClassifier, DaskXGBRegressor

    kind = DaskXGBClassifier if _is_classified(race.data.task) else DaskXGBRegressor
    parameters = SYSTEMS["xgboost"].parameters(replace(race.settings, threads=1), race.data.task)
    model = kind(**parameters)
    model.client = race.client
    return model.fit(race.X, race.y).get_booster()


COMPETITORS: dict[str, Callable[[Race], Any]] = {
    "ours": ours,
    "lightgbm": lightgbm,
    "xgboost": xgboost,
}


RUNNERS = (*COMPETITORS, LOCAL)


def run_race(
    data: Dataset, n_workers: int, systems: list[str], repeat: int, settings: Settings, results: ResultFile | None
) -> list[Figure]:
    """Every system in turn, each on new workers, so that nobody's memory holds the others' libraries."""
    figures = []
    for system in systems * repeat:
        if system == LOCAL:
            figure = _measured_locally(data, n_workers, settings)
        else:
            with prepared(data, n_workers, settings) as race:
                figure = _measured(race, system, n_workers)
        figures.append(figure)
        print(_line(figure), flush=True)
        if results is not None:
            results.append(DASK, asdict(figure))
    return figures


@contextlib.contextmanager
def prepared(data: Dataset, n_workers: int, settings: Settings) -> Iterator[Race]:
    """A cluster of workers with one thread each that hold the data."""
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        n_partitions = PARTITIONS_OF_A_WORKER * n_workers
        X = dd.from_pandas(data.train.features, npartitions=n_partitions, sort=False)
        y = dd.from_pandas(pd.Series(data.train.target), npartitions=n_partitions, sort=False)
        X, y = client.persist([X, y])
        with client.as_current():
            wait([X, y])
        yield Race(client, data, X, y, settings)


def _measured(race: Race, system: str, n_workers: int) -> Figure:
    with race.client.as_current():
        COMPETITORS[system](race.warming_up())
        race.client.run(_watch_memory)
        before = _loopback_bytes()
        started = time.perf_counter()
        model = COMPETITORS[system](race)
        seconds = time.perf_counter() - started
    sent = _loopback_bytes() - before
    peak = sum(race.client.run(_highest_memory).values())
    return _figure(system, race.data, race.settings, n_workers, model, seconds, peak, sent)


def _measured_locally(data: Dataset, n_workers: int, settings: Settings) -> Figure:
    """A fit in this process, without any cluster, with as many threads as the workers have together."""
    model = SYSTEMS["ours"].build(replace(settings, threads=n_workers), data.task)
    memory = PeakMemory()
    started = time.perf_counter()
    model.fit(data.train.features, data.train.target)
    seconds = time.perf_counter() - started
    return _figure(LOCAL, data, settings, n_workers, model, seconds, memory.peak_bytes(), 0)


def _figure(
    system: str,
    data: Dataset,
    settings: Settings,
    n_workers: int,
    model: Any,
    seconds: float,
    peak: int,
    loopback_bytes: int,
) -> Figure:
    report = getattr(model, "fit_report_", None)
    return Figure(
        system,
        data.name,
        n_workers,
        seconds,
        peak,
        loopback_bytes,
        None if report is None else report.bytes_sent,
        None if report is None else float(np.mean(report.rounds_per_tree)),
        METRICS[data.task].name,
        METRICS[data.task].score(data.test, _prediction(model, data)),
        settings.n_estimators,
        settings.num_leaves,
    )


def _prediction(model: Any, data: Dataset) -> Any:
    features, task = data.test.features, data.task
    if hasattr(model, "predict_proba") and _is_classified(task):
        return model.predict_proba(features)
    if type(model).__name__ != "Booster":
        return model.predict(features)
    from xgboost import DMatrix

    values = model.predict(DMatrix(features, enable_categorical=True))
    return np.stack([1 - values, values], axis=1) if task == "binary" else values


def _watch_memory(dask_worker: Any = None) -> None:
    dask_worker.dmlgbm_memory = PeakMemory()


def _highest_memory(dask_worker: Any = None) -> int:
    return int(dask_worker.dmlgbm_memory.peak_bytes())


def _loopback_bytes() -> int:
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    return 0


def _is_classified(task: Task) -> bool:
    return task in ("binary", "multiclass")


def _line(figure: Figure) -> str:
    rounds = "" if figure.rounds_per_tree is None else f"  {figure.rounds_per_tree:5.1f} rounds a tree"
    sent = "" if figure.sent_bytes is None else f"  ranks sent {figure.sent_bytes / 2**20:8.1f} MB"
    return (
        f"{figure.dataset:20} {figure.workers} workers  {figure.system:12} fit {figure.fit_seconds:7.2f} s"
        f"  peak {figure.peak_bytes / 2**20:6.0f} MB  loopback {figure.loopback_bytes / 2**20:8.1f} MB"
        f"  metric {figure.metric:.5f}{sent}{rounds}"
    )


def summary(figures: list[Figure]) -> list[str]:
    """Our best turn over the best of the peers, for each data set and number of workers, and the geometric means."""
    lines, ratios, memories = [], [], []
    for dataset, workers in dict.fromkeys((figure.dataset, figure.workers) for figure in figures):
        own = [each for each in figures if (each.dataset, each.workers) == (dataset, workers)]
        best = {
            system: (min(each.fit_seconds for each in turns), min(each.peak_bytes for each in turns))
            for system in RUNNERS
            if (turns := [each for each in own if each.system == system])
        }
        peers = [best[system] for system in ("lightgbm", "xgboost") if system in best]
        if "ours" not in best or not peers:
            continue
        ratios.append(best["ours"][0] / min(seconds for seconds, _ in peers))
        memories.append(best["ours"][1] / min(peak for _, peak in peers))
        local = f", over our local fit {best['ours'][0] / best[LOCAL][0]:.2f}" if LOCAL in best else ""
        lines.append(f"{dataset}, {workers} workers: fit {ratios[-1]:.2f}, memory {memories[-1]:.2f}{local}")
    if ratios:
        means = [float(np.exp(np.mean(np.log(values)))) for values in (ratios, memories)]
        lines.append(f"geometric means: fit {means[0]:.2f}, memory {means[1]:.2f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_dask", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="folder with the Parquet tables")
    parser.add_argument("--datasets", nargs="+", default=["generated"], help="default: %(default)s")
    parser.add_argument("--workers", nargs="+", type=int, default=[2], help="default: %(default)s")
    parser.add_argument("--systems", nargs="+", choices=RUNNERS, default=list(RUNNERS))
    parser.add_argument("--repeat", type=int, default=3, help="turns that count (default: %(default)s)")
    parser.add_argument("--trees", type=int, default=Settings.n_estimators)
    parser.add_argument("--leaves", type=int, default=Settings.num_leaves)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    settings = Settings(n_estimators=arguments.trees, num_leaves=arguments.leaves)
    results = None if arguments.json is None else start_results(arguments.json)
    figures = []
    for name in arguments.datasets:
        data = load_dataset(name, arguments.data_dir)
        for n_workers in arguments.workers:
            figures += run_race(data, n_workers, arguments.systems, arguments.repeat, settings, results)
    print(*summary(figures), sep="\n")


if __name__ == "__main__":
    main()
