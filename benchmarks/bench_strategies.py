"""What the strategies of `neural` are measured by on `mnist`: `python -m benchmarks.bench_strategies --data-dir DIR`.

Each measurement prints one line for each run it compares. Ranks are threads of one process. Where speeds matter, every
gradient takes at least 40 ms and that of a slow worker 200 ms, as if each had its own machine: four workers and a
server then leave two cores idle most of the time. Test rows are looked at after every epoch or round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits

from collectives import Communicator
from collectives.launch import run_threads
from neural.lone_communicator import LoneCommunicator
from neural.model import Model
from neural.plans import NetworkPlan
from neural.settings import TrainingSettings
from neural.shards import RowShard
from neural.training import Job, Trained, train

Array = npt.NDArray[Any]
GRADIENT_SECONDS = 0.04


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
class SlowedPlan:
    """A network whose gradients take so many seconds, at least."""

    plan: NetworkPlan
    seconds: float

    def build(self) -> Model:
        model = self.plan.build()
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
    plan = NetworkPlan(784, 10, "logistic", hidden)
    return Job(plan, TrainingSettings(**{**given, **settings}), True, strategy, options)


def run(asked: Job, digits: Digits, n_ranks: int = 1, seconds: tuple[float, ...] = ()) -> Trained:
    """Train, with test rows for validation; `seconds` say how long gradients take on each rank."""
    if digits.most_epochs is not None:
        n_epochs = min(digits.most_epochs, asked.settings.max_epochs)
        asked = replace(asked, settings=replace(asked.settings, max_epochs=n_epochs))

    def work(communicator: Communicator) -> Trained:
        place = communicator.rank, communicator.world_size
        mine = asked
        if seconds:
            assert isinstance(asked.plan, NetworkPlan)
            mine = replace(asked, plan=SlowedPlan(asked.plan, seconds[communicator.rank]))
        learnt = RowShard.of_all(digits.rows, digits.labels, *place)
        return train(communicator, mine, learnt, RowShard.of_all(digits.test_rows, digits.test_labels, *place))

    with threadpool_limits(1):
        if n_ranks == 1:
            return work(cast(Communicator, LoneCommunicator()))
        results: list[Trained] = run_threads(work, n_ranks)
    return results[0]


def show(name: str, trained: Trained) -> None:
    """One line: how long, how good, how much was sent."""
    epochs = trained.progress.epochs
    scores = [epoch["score"] for epoch in epochs]
    seconds = sum(epoch["seconds"] for epoch in epochs)
    megabytes = sum(epoch["bytes_sent"] for epoch in epochs) / 1e6
    print(
        f"{name:44} epochs {len(epochs):4}  accuracy {scores[-1]:.4f} (best {max(scores):.4f})  {seconds:6.1f} s  "
        f"{megabytes:9.2f} MB  staleness at most {max(epoch['staleness_max'] for epoch in epochs):.0f}",
        flush=True,
    )


def federated(digits: Digits) -> None:
    """FedSGD and FedAvg on clients with mixed digits, FedAvg on clients with two digits each: rounds to 95 %."""
    shared: dict[str, Any] = {"optimiser": "sgd", "hidden": (200, 200), "target_score": 0.95, "batch_size": 10}
    for rate, momentum in ((0.1, 0.0), (0.5, 0.0), (1.0, 0.0), (0.2, 0.8)):
        steps = {"local_batch_size": "all", "server_momentum": momentum}
        asked = job("fedavg", steps, max_epochs=400, learning_rate=rate, **shared)
        show(f"fedsgd, mixed digits, rate {rate}, momentum {momentum}", run(asked, digits))
    apart = {"partition": "classes", "local_epochs": 2}
    for name, rate, options in (
        ("mixed digits, 10 clients a round", 0.1, {"local_epochs": 5}),
        ("2 digits a client, 50 clients a round", 0.1, {**apart, "client_fraction": 0.5, "server_momentum": 0.7}),
        ("2 digits a client, all in every round", 0.15, {**apart, "client_fraction": 1.0, "server_momentum": 0.8}),
    ):
        asked = job("fedavg", options, max_epochs=100, learning_rate=rate, **shared)
        show(f"fedavg, {name}", run(asked, digits))


def robust(digits: Digits) -> None:
    """One client in five sends minus ten times what it has learnt."""
    base = {"n_clients": 20, "client_fraction": 1.0, "local_epochs": 1}
    attack = {"sign_flippers": 0.2, "flip_scale": 10.0}
    settings: dict[str, Any] = {"optimiser": "sgd", "learning_rate": 0.2, "batch_size": 50, "hidden": (64,)}
    settings["max_epochs"] = 5
    show("mean, all clients honest", run(job("fedavg", base, **settings), digits))
    for aggregator in ("krum", "multi_krum", "trimmed_mean", "median"):
        asked = job("fedavg", {**base, **attack, "aggregator": aggregator}, **settings)
        show(f"{aggregator}, 20 % flip signs", run(asked, digits))
    show("mean, 20 % flip signs", run(job("fedavg", {**base, **attack, "clip_update": 100.0}, **settings), digits))


def secure(digits: Digits) -> None:
    """The same rounds with and without masks, two of ten clients lost in each."""
    base = {"n_clients": 50, "client_fraction": 0.2, "lost_fraction": 0.2}
    settings: dict[str, Any] = {
        "optimiser": "sgd",
        "max_epochs": 5,
        "batch_size": 20,
        "learning_rate": 0.1,
        "hidden": (100,),
    }
    show("fedavg, plain", run(job("fedavg", base, **settings), digits))
    show("fedavg, secure", run(job("fedavg", {**base, "secure": True}, **settings), digits))


def stale(digits: Digits) -> None:
    """Four workers, one of them five times slower, to 97 %."""
    fast, slow = GRADIENT_SECONDS, 5 * GRADIENT_SECONDS
    settings: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 512, "hidden": (128,)}
    settings |= {"target_score": 0.97, "max_epochs": 20}
    for name, options in (
        ("bsp", {}),
        ("ssp, staleness 500", {"consistency": "ssp", "staleness": 500}),
        ("asp", {"consistency": "asp"}),
        ("bsp, 1 backup worker", {"backup_workers": 1}),
    ):
        asked = job("parameter_server", options, **settings)
        show(f"parameter server, {name}", run(asked, digits, 4, (fast, fast, fast, slow)))


def compression(digits: Digits) -> None:
    """All-reduce and pushes to a server, on two ranks, through codecs with error feedback."""
    for name, codec, options in (
        ("whole gradients", None, {}),
        ("top-k 1 %", "top_k", {"fraction": 0.01}),
        ("PowerSGD rank 2", "power_sgd", {"rank": 2}),
    ):
        asked = job("allreduce", {}, max_epochs=3, compression=codec, compression_options=options)
        show(f"allreduce, {name}", run(asked, digits, 2))
    for name, codec, options in (("whole changes", None, {}), ("top-k 1 %", "top_k", {"fraction": 0.01})):
        asked = job("parameter_server", {}, max_epochs=3, compression=codec, compression_options=options)
        show(f"parameter server, {name}", run(asked, digits, 2))


def others(digits: Digits) -> None:
    """The other ways to train the same network, two ranks, three epochs."""
    for strategy, options in (
        ("local_sgd", {"interval": 8}),
        ("gossip", {"interval": 4}),
        ("ensemble_distil", {"distil_epochs": 1}),
        ("tensor", {}),
        ("pipeline", {}),
    ):
        show(strategy, run(job(strategy, options, max_epochs=3), digits, 2))


MEASUREMENTS: dict[str, Callable[[Digits], None]] = {
    each.__name__: each for each in (federated, robust, secure, stale, compression, others)
}


def main(arguments: Iterable[str] | None = None) -> None:
    """Run the chosen measurements, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with mnist.parquet")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="one measurement; may be repeated")
    parser.add_argument(
        "--most-epochs", type=int, help="end every run after so many epochs or rounds, for a quick look"
    )
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    digits = Digits.read(chosen.data_dir, chosen.most_epochs)
    for name in chosen.only or MEASUREMENTS:
        print(f"{name}: {MEASUREMENTS[name].__doc__}", flush=True)
        MEASUREMENTS[name](digits)


if __name__ == "__main__":
    main()
