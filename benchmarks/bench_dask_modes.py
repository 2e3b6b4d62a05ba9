"""The parallel modes beside each other on one Dask cluster: accuracy, seconds, rounds and bytes.

Shows how close voting comes to data mode on tables with many features, how many rounds trees take, and what data mode
sends beside the two float64 a bin of LightGBM.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.bench_dask import Race, prepared
from benchmarks.communication import LIGHTGBM_BYTES_PER_BIN, MODES
from benchmarks.datasets import Dataset, Split, load_dataset
from benchmarks.generated import generate_rows
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.run import start_results

DASK_MODES = "dask_modes"
WIDE = "wide"
N_WIDE_FEATURES = 2_000


@dataclass(frozen=True)
class ModeFigure:
    """The fits of one mode on one table; the fastest counts."""

    dataset: str
    mode: str
    workers: int
    trees: int
    leaves: int
    fit_seconds: float
    accuracy: float
    rounds_per_tree: float
    most_rounds: int
    bytes_per_tree: float  # sent by each rank
    lightgbm_bytes_per_tree: float
    wait_seconds: float


def compare_modes(data: Dataset, n_workers: int, modes: list[str], repeat: int, settings: Settings) -> list[ModeFigure]:
    """Every mode in turn on one cluster; the first turn, which loads kernels, does not count."""
    figures: dict[str, ModeFigure] = {}
    with prepared(data, n_workers, settings) as race:
        for repetition in range(repeat + 1):
            for mode in modes:
                figure = _measured(race, mode, n_workers)
                if repetition > 0 and (mode not in figures or figure.fit_seconds < figures[mode].fit_seconds):
                    figures[mode] = figure
    return list(figures.values())


def wide_table(n_rows: int) -> Dataset:
    """Generated rows with 2,000 features, of which four matter."""
    names = [f"feature_{number}" for number in range(N_WIDE_FEATURES)]
    splits = []
    for seed in (1, 2):
        features, target = generate_rows(n_rows, N_WIDE_FEATURES, seed)
        splits.append(Split(pd.DataFrame(features.astype(np.float32), columns=names), target))
    return Dataset(WIDE, "binary", *splits)


def _measured(race: Race, mode: str, n_workers: int) -> ModeFigure:
    settings, data = race.settings, race.data
    model = SYSTEMS["ours"].build(settings, data.task).set_params(tree_learner=mode, n_jobs=1)
    began = time.perf_counter()
    model.fit(race.X, race.y, client=race.client)
    seconds = time.perf_counter() - began
    report = model.fit_report_
    share = (n_workers - 1) / n_workers
    return ModeFigure(
        data.name,
        mode,
        n_workers,
        settings.n_estimators,
        settings.num_leaves,
        seconds,
        float(np.mean(model.predict(data.test.features) == data.test.target)),
        float(np.mean(report.rounds_per_tree)),
        max(report.rounds_per_tree),
        float(np.mean(report.bytes_per_tree)),
        settings.num_leaves * _bins(data, settings) * LIGHTGBM_BYTES_PER_BIN * share,
        report.wait_seconds,
    )


def _bins(data: Dataset, settings: Settings) -> int:
    """A bin for each value of a column, as far as bins go."""
    assert isinstance(data.train.features, pd.DataFrame)
    return int(data.train.features.nunique().clip(upper=settings.max_bin).sum())


def _line(figure: ModeFigure) -> str:
    return (
        f"{figure.dataset:12} {figure.mode:8} {figure.leaves:4} leaves  fit {figure.fit_seconds:7.2f} s  accuracy "
        f"{figure.accuracy:.4f}  {figure.rounds_per_tree:5.1f} rounds a tree, at most {figure.most_rounds}"
        f"  {figure.bytes_per_tree / 1e6:8.3f} MB a tree, "
        f"{figure.bytes_per_tree / figure.lightgbm_bytes_per_tree:.3f} of LightGBM's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_dask_modes", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="folder with the Parquet tables")
    parser.add_argument(
        "--datasets",
        nargs="+",
        default=[WIDE],
        help="classification tables; 'wide' is generated (default: %(default)s)",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["data", "voting"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1, help="turns that count (default: %(default)s)")
    parser.add_argument("--trees", type=int, default=Settings.n_estimators)
    parser.add_argument("--leaves", nargs="+", type=int, default=[Settings.num_leaves])
    parser.add_argument("--wide-rows", type=int, default=20_000, help="rows of the generated table")
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    results = None if arguments.json is None else start_results(arguments.json)
    for name in arguments.datasets:
        data = wide_table(arguments.wide_rows) if name == WIDE else load_dataset(name, arguments.data_dir)
        if data.task not in ("binary", "multiclass"):
            parser.error(f"{name} has no classes, so there is no accuracy to compare")
        for leaves in arguments.leaves:
            settings = Settings(n_estimators=arguments.trees, num_leaves=leaves)
            for figure in compare_modes(data, arguments.workers, arguments.modes, arguments.repeat, settings):
                print(_line(figure), flush=True)
                if results is not None:
                    results.append(DASK_MODES, asdict(figure))


if __name__ == "__main__":
    main()
