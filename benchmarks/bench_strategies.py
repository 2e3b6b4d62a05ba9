"""What the strategies of `neural` are measured by on `mnist`: `python -m benchmarks.bench_strategies --data-dir DIR`.

Each measurement compares some runs with its first one: `--out FILE` keeps the figures, `benchmarks.neural_report` makes
tables of them. Ranks are threads of one process, but for those that are killed. Where speeds matter, every gradient
takes at least 10 ms and that of a slow worker 50 ms, as if each had its own machine: four workers and a server then
just fit two cores, if no other program needs them. Test rows are looked at after every epoch or round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.killed_rank import train_processes
from benchmarks.run import start_results
from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.lone_communicator import LoneCommunicator
from dmlgbm.neural.model import Model
from dmlgbm.neural.running.local import LocalRows
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.training import Job, Trained, train

Array = npt.NDArray[Any]
STRATEGY = "neural strategy"
GRADIENT_SECONDS = 0.01


@dataclass(frozen=True)
class Digits:
    """Rows to learn from and rows to test with; a quick look takes `most_epochs` epochs or rounds at most."""

    rows: Array
    labels: Array
    test_rows: Array
    test_labels: Array
    most_epochs: int | None = None

    @classmethod
    def read(cls, folder: Path, most_epochs: int | None = None) -> Digits:
        table = pd.read_parquet(folder / "mnist.parquet")
        test = table.pop("split").to_numpy() == 1
        labels = table.pop("label").to_numpy().astype(np.int64)
        rows = table.to_numpy().astype(np.float32) / 255
        return cls(rows[~test], labels[~test], rows[test], labels[test], most_epochs)


@dataclass(frozen=True)
class SlowedBlueprint:
    """A network whose gradients take so many seconds, at least."""

    blueprint: NetworkBlueprint
    seconds: float

    def build(self) -> Model:
        model = self.blueprint.build()
        compute = model.compute_gradients

        def slowly(*arguments: Any) -> float:
            until = time.monotonic() + self.seconds
            loss = compute(*arguments)
            time.sleep(max(0.0, until - time.monotonic()))
            return loss

        model.compute_gradients = slowly  # type: ignore[method-assign, assignment]
        return model


def job(strategy: str, options: Mapping[str, Any], hidden: tuple[int, ...] = (256, 128), **settings: Any) -> Job:
    """A job on digits; settings are those of `TrainingSettings`."""
    given = {"max_epochs": 10, "batch_size": 128, "learning_rate": 1e-3, "optimiser": "adam", "restore_best": False}
    blueprint = NetworkBlueprint(784, 10, "logistic", hidden)
    return Job(blueprint, TrainingSettings(**{**given, **settings}), True, strategy, options)


@dataclass(frozen=True)
class Run:
    """One training that a measurement compares; `seconds` say how long gradients take on each rank, at least."""

    name: str
    job: Job
    n_ranks: int = 1
    seconds: tuple[float, ...] = ()

    def train(self, digits: Digits) -> Trained:
        """Ranks are threads."""
        asked = self.shortened(digits)

        def work(communicator: Communicator) -> Trained:
            rank_and_size = communicator.rank, communicator.world_size
            mine = asked
            if self.seconds:
                assert isinstance(asked.blueprint, NetworkBlueprint)
                mine = replace(asked, blueprint=SlowedBlueprint(asked.blueprint, self.seconds[communicator.rank]))
            learnt = RowShard.of_all(digits.rows, digits.labels, *rank_and_size)
            return train(
                communicator, mine, learnt, RowShard.of_all(digits.test_rows, digits.test_labels, *rank_and_size)
            )

        with threadpool_limits(1):
            if self.n_ranks == 1:
                return work(cast(Communicator, LoneCommunicator()))
            results: list[Trained] = run_threads(work, self.n_ranks)
        return results[0]

    def shortened(self, digits: Digits) -> Job:
        """The job, with as many epochs as a quick look takes."""
        if digits.most_epochs is None:
            return self.job
        n_epochs = min(digits.most_epochs, self.job.settings.max_epochs)
        return replace(self.job, settings=replace(self.job.settings, max_epochs=n_epochs))


@dataclass(frozen=True)
class ProcessRun(Run):
    """Ranks are processes, and one of them may be killed halfway."""

    kill: bool = False

    def train(self, digits: Digits) -> Trained:
        watched = LocalRows(digits.test_rows, digits.test_labels)
        rows = LocalRows(digits.rows, digits.labels, validation=watched)
        trained, losses = train_processes(self.shortened(digits), rows, self.n_ranks, kill=self.kill)
        if len(losses) != self.kill:
            raise RuntimeError(f"{self.name}: lost ranks {losses}")
        return trained


@dataclass(frozen=True)
class Figure:
    """What is kept of a run; `reached` says whether it came to the score it was to end at, if there was one."""

    measurement: str
    name: str
    epochs: int
    accuracy: float
    reached: bool
    seconds: float
    megabytes: float
    most_stale: int

    @classmethod
    def of(cls, measurement: str, run: Run, trained: Trained) -> Figure:
        epochs, target = trained.so_far.epochs, run.job.settings.target_score
        return cls(
            measurement,
            run.name,
            len(epochs),
            epochs[-1]["score"],
            target is None or epochs[-1]["score"] >= target,
            sum(epoch["seconds"] for epoch in epochs),
            sum(epoch["bytes_sent"] for epoch in epochs) / 1e6,
            round(max(epoch["staleness_max"] for epoch in epochs)),
        )

    def __str__(self) -> str:
        return (
            f"{self.name:48} epochs {self.epochs:4}  accuracy {self.accuracy:.4f}  {self.seconds:6.1f} s  "
            f"{self.megabytes:9.2f} MB  staleness at most {self.most_stale}"
        )


def federated() -> Iterator[Run]:
    """FedSGD and FedAvg, 100 clients, rounds to 95 %: clients with mixed digits, and clients with two digits each."""
    shared: dict[str, Any] = {"optimiser": "sgd", "hidden": (200, 200), "target_score": 0.95, "batch_size": 10}
    for rate, momentum in ((0.5, 0.0), (0.1, 0.0), (1.0, 0.0), (0.2, 0.8)):
        steps = {"local_batch_size": "all", "server_momentum": momentum}
        asked = job("fedavg", steps, max_epochs=400, learning_rate=rate, **shared)
        yield Run(f"FedSGD, mixed digits, rate {rate}, momentum {momentum}", asked)
    apart = {"partition": "classes", "local_epochs": 2}
    for name, rate, options in (
        ("mixed digits, 10 clients a round", 0.1, {"local_epochs": 5}),
        ("2 digits each, 50 clients a round", 0.1, {**apart, "client_fraction": 0.5, "server_momentum": 0.7}),
        ("2 digits each, all in every round", 0.15, {**apart, "client_fraction": 1.0, "server_momentum": 0.8}),
    ):
        yield Run(f"FedAvg, {name}", job("fedavg", options, max_epochs=100, learning_rate=rate, **shared))


def robust() -> Iterator[Run]:
    """20 clients, of which one in five sends minus ten times what it has learnt."""
    base = {"n_clients": 20, "client_fraction": 1.0, "local_epochs": 1}
    attack = {"sign_flippers": 0.2, "flip_scale": 10.0}
    settings: dict[str, Any] = {"optimiser": "sgd", "learning_rate": 0.2, "batch_size": 50, "hidden": (64,)}
    settings["max_epochs"] = 5
    yield Run("mean, all clients honest", job("fedavg", base, **settings))
    for aggregator in ("krum", "multi_krum", "trimmed_mean", "median"):
        asked = job("fedavg", {**base, **attack, "aggregator": aggregator}, **settings)
        yield Run(f"{aggregator}, 20 % flip signs", asked)
    yield Run("mean, 20 % flip signs", job("fedavg", {**base, **attack, "clip_update": 100.0}, **settings))


def secure() -> Iterator[Run]:
    """The same rounds with and without masks, two of ten clients lost in each."""
    base = {"n_clients": 50, "client_fraction": 0.2, "lost_fraction": 0.2}
    settings: dict[str, Any] = {"optimiser": "sgd", "batch_size": 20, "learning_rate": 0.1, "hidden": (100,)}
    settings["max_epochs"] = 5
    yield Run("FedAvg, plain", job("fedavg", base, **settings))
    yield Run("FedAvg, secure", job("fedavg", {**base, "secure": True}, **settings))


def stale() -> Iterator[Run]:
    """Four workers of a parameter server, one of them five times slower, to 97 %."""
    fast, slow = GRADIENT_SECONDS, 5 * GRADIENT_SECONDS
    settings: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 512, "hidden": (128,)}
    settings |= {"target_score": 0.97, "max_epochs": 20}
    for name, options in (
        ("BSP", {}),
        ("SSP, staleness 500", {"consistency": "ssp", "staleness": 500}),
        ("ASP", {"consistency": "asp"}),
        ("BSP, 1 backup worker", {"backup_workers": 1}),
    ):
        yield Run(name, job("parameter_server", options, **settings), 4, (fast, fast, fast, slow))


def compression() -> Iterator[Run]:
    """All-reduce on two ranks through codecs with error feedback."""
    for name, codec, options in (
        ("whole gradients", None, {}),
        ("top-k 1 %", "top_k", {"fraction": 0.01}),
        ("PowerSGD rank 2", "power_sgd", {"rank": 2}),
    ):
        yield Run(name, job("allreduce", {}, max_epochs=3, compression=codec, compression_options=options), 2)


def server_compression() -> Iterator[Run]:
    """Two workers of a parameter server: codecs with error feedback, and what changed most."""
    for name, codec, options, send in (
        ("whole changes", None, {}, {}),
        ("top-k 1 %", "top_k", {"fraction": 0.01}, {}),
        ("blocks that gathered 8 changes", None, {}, {"send_above": 8.0}),
    ):
        asked = job("parameter_server", send, max_epochs=3, compression=codec, compression_options=options)
        yield Run(name, asked, 2)


def shared_compression() -> Iterator[Run]:
    """The layers of one network on two ranks of a pipeline; in the first epoch all values travel whole."""
    for name, codec, options in (
        ("whole values", None, {}),
        ("int8", "int8", {}),
        ("top-k 10 %", "top_k", {"fraction": 0.1}),
    ):
        yield Run(name, job("pipeline", {}, max_epochs=6, compression=codec, compression_options=options), 2)


def killed() -> Iterator[Run]:
    """Two processes; SIGKILL of one of them after half of the steps."""
    asked = job("allreduce", {}, max_epochs=5, batch_size=200)
    yield ProcessRun("undisturbed", asked, 2)
    yield ProcessRun("one of two killed", asked, 2, kill=True)


def others() -> Iterator[Run]:
    """The other ways to train the same network, two ranks, three epochs."""
    for strategy, options in (
        ("allreduce", {}),
        ("local_sgd", {"interval": 8}),
        ("gossip", {"interval": 4}),
        ("ensemble_distil", {"distil_epochs": 1}),
        ("tensor", {}),
        ("pipeline", {}),
    ):
        yield Run(strategy, job(strategy, options, max_epochs=3), 2)


MEASUREMENTS: dict[str, Callable[[], Iterator[Run]]] = {
    each.__name__: each
    for each in (federated, robust, secure, stale, compression, server_compression, shared_compression, killed, others)
}


def main(arguments: Iterable[str] | None = None) -> None:
    """Run the chosen measurements, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_strategies", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with mnist.parquet")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="one measurement; may be repeated")
    parser.add_argument("--runs", default="", help="only runs with this text in their names")
    parser.add_argument(
        "--most-epochs", type=int, help="end every run after so many epochs or rounds, for a quick look"
    )
    parser.add_argument("--out", type=Path, default=Path("neural.jsonl"), help="appended to (default: %(default)s)")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    digits = Digits.read(chosen.data_dir, chosen.most_epochs)
    results = start_results(chosen.out)
    for measurement in chosen.only or MEASUREMENTS:
        print(f"{measurement}: {MEASUREMENTS[measurement].__doc__}", flush=True)
        for run in MEASUREMENTS[measurement]():
            if chosen.runs in run.name:
                figure = Figure.of(measurement, run, run.train(digits))
                results.append(STRATEGY, asdict(figure))
                print(figure, flush=True)


if __name__ == "__main__":
    main()
