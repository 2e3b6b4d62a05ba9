"""What the loss of a worker costs: fits with one SIGKILL in mid-training beside fits without, in turns.

Workers are processes that Dask starts again. Both kinds of fit must end in the same bytes.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench_dask import Race, prepared
from benchmarks.datasets import load_dataset
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.run import start_results

DASK_KILL = "dask_kill"


@dataclass(frozen=True)
class KillFigure:
    """One pair of fits."""

    dataset: str
    workers: int
    trees: int
    leaves: int
    quiet_seconds: float
    killed_seconds: float
    restarts: int
    same_bytes: bool

    @property
    def cost(self) -> float:
        return self.killed_seconds - self.quiet_seconds


class KillOnce:
    """A callback that kills a worker after an iteration."""

    def __init__(self, iteration: int, process: int) -> None:
        self._iteration = iteration
        self._process = process

    def __call__(self, state: Any) -> None:
        if state.iteration == self._iteration:
            os.kill(self._process, signal.SIGKILL)


def run_pair(race: Race, n_workers: int) -> KillFigure:
    """A quiet fit and one that loses a worker after half of its iterations, or soon after."""
    quiet, quiet_seconds = _fit(race, ())
    race.client.wait_for_workers(n_workers, timeout=60)
    victim = next(iter(race.client.run(os.getpid).values()))
    killer = KillOnce(max(1, race.settings.n_estimators // 2), victim)
    killed, killed_seconds = _fit(race, (killer,))
    race.client.wait_for_workers(n_workers, timeout=60)
    return KillFigure(
        race.data.name,
        n_workers,
        race.settings.n_estimators,
        race.settings.num_leaves,
        quiet_seconds,
        killed_seconds,
        killed.fit_report_.n_restarts,
        quiet.booster_.to_bytes() == killed.booster_.to_bytes(),
    )


def _fit(race: Race, callbacks: tuple[Callable[[Any], None], ...]) -> tuple[Any, float]:
    model = SYSTEMS["ours"].build(race.settings, race.data.task).set_params(n_jobs=1)
    began = time.perf_counter()
    model.fit(race.X, race.y, callbacks=callbacks, client=race.client)
    return model, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_dask_kill", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="folder with the Parquet tables")
    parser.add_argument("--dataset", default="generated")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="pairs that count (default: %(default)s)")
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--leaves", type=int, default=Settings.num_leaves)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    arguments = parser.parse_args()
    results = None if arguments.json is None else start_results(arguments.json)
    settings = Settings(n_estimators=arguments.trees, num_leaves=arguments.leaves)
    with prepared(load_dataset(arguments.dataset, arguments.data_dir), arguments.workers, settings) as race:
        _fit(race, ())  # loads kernels
        for _ in range(arguments.repeat):
            figure = run_pair(race, arguments.workers)
            print(
                f"{figure.dataset}: {figure.quiet_seconds:.2f} s without, {figure.killed_seconds:.2f} s with one kill: "
                f"{figure.cost:.2f} s more, {figure.restarts} restarts, "
                f"{'same bytes' if figure.same_bytes else 'OTHER BYTES'}",
                flush=True,
            )
            if results is not None:
                results.append(DASK_KILL, asdict(figure))


if __name__ == "__main__":
    main()
