"""Time and bytes to a target accuracy on mnist, for every strategy, scikit-learn and torch with the same network.

All train 784-256-128-10 with Adam (1e-3) on global batches of the same size. Times are those of training alone: every
system is scored on the test rows after each epoch, and that is not counted.

    python -m benchmarks.bench_neural --data-dir <folder with mnist.parquet> --systems scikit-learn ddp allreduce
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import load_dataset
from benchmarks.run import start_results
from dmlgbm.neural import DMLMLPClassifier, strategy_names
from dmlgbm.neural.history import TrainingHistory
from dmlgbm.neural.schedules import SCHEDULES

NEURAL = "neural"
HIDDEN = (256, 128)
LEARNING_RATE = 1e-3
SEED = 0


@dataclass(frozen=True)
class Digits:
    """mnist in single precision, from 0 to 1."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Budget:
    """What every system gets."""

    epochs: int
    batch_size: int
    ranks: int
    target: float
    backend: str
    schedule: str


@dataclass(frozen=True)
class Figure:
    """One system; to the target NaN where it was not reached, bytes NaN where the system does not tell."""

    system: str
    ranks: int
    epochs: int
    accuracy: float
    best_accuracy: float
    seconds: float
    seconds_to_target: float
    megabytes: float
    megabytes_to_target: float
    accuracies: list[float]


def figure_of(
    system: str,
    ranks: int,
    budget: Budget,
    accuracies: Sequence[float],
    seconds: Sequence[float],
    sent: Sequence[float],
) -> Figure:
    """`seconds` and bytes `sent` are those of each epoch."""
    reached = next((epoch for epoch, score in enumerate(accuracies) if score >= budget.target), None)
    until = None if reached is None else reached + 1
    return Figure(
        system,
        ranks,
        len(accuracies),
        accuracies[-1],
        max(accuracies),
        sum(seconds),
        math.nan if until is None else sum(seconds[:until]),
        sum(sent) / 1e6,
        math.nan if until is None else sum(sent[:until]) / 1e6,
        [round(score, 4) for score in accuracies],
    )


def own(digits: Digits, system: str, budget: Budget, ranks: int, parameters: Mapping[str, Any]) -> Figure:
    """A strategy of ours on so many ranks."""
    model = DMLMLPClassifier(
        HIDDEN,
        learning_rate=LEARNING_RATE,
        batch_size=budget.batch_size,
        max_epochs=budget.epochs,
        patience=None,
        schedule=budget.schedule,  # type: ignore[arg-type]
        n_ranks=ranks,
        backend=budget.backend,  # type: ignore[arg-type]
        random_state=SEED,
    )
    model.set_params(**parameters)
    model.fit(digits.X, digits.y, eval_set=(digits.X_test, digits.y_test))
    history: TrainingHistory = model.history_
    return figure_of(system, ranks, budget, history["score"], history["seconds"], history["bytes_sent"])


def scikit_learn(digits: Digits, budget: Budget) -> Figure:
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        HIDDEN, alpha=0.0, learning_rate_init=LEARNING_RATE, batch_size=budget.batch_size, random_state=SEED
    )
    accuracies, seconds = [], []
    classes = np.unique(digits.y)
    for _ in range(budget.epochs):
        began = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.partial_fit(digits.X, digits.y, classes=classes)
        seconds.append(perf_counter() - began)
        accuracies.append(float(model.score(digits.X_test, digits.y_test)))
    return figure_of("scikit-learn", 1, budget, accuracies, seconds, [math.nan])


def torch_ddp(digits: Digits, budget: Budget) -> Figure:
    """DistributedDataParallel over gloo, one process a rank."""
    import torch.multiprocessing as processes

    with processes.Manager() as manager:
        records = manager.list()
        processes.spawn(_ddp_rank, args=(digits, budget, records), nprocs=budget.ranks, join=True)
        accuracies, seconds = zip(*records, strict=True)
    return figure_of("torch DDP (gloo)", budget.ranks, budget, accuracies, seconds, [math.nan])


def _ddp_rank(rank: int, digits: Digits, budget: Budget, records: Any) -> None:
    import torch
    import torch.distributed as distributed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // budget.ranks))
    distributed.init_process_group("gloo", rank=rank, world_size=budget.ranks)
    torch.manual_seed(SEED)
    sizes = [digits.X.shape[1], *HIDDEN]
    layers: list[Any] = []
    for n_inputs, n_outputs in pairwise(sizes):
        layers += [torch.nn.Linear(n_inputs, n_outputs), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 10))
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    X, y = torch.from_numpy(digits.X), torch.from_numpy(digits.y)
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(budget.epochs):
        distributed.barrier()
        began = perf_counter()
        order = torch.randperm(len(X), generator=generator)
        for batch in order.split(budget.batch_size):
            mine = batch.tensor_split(budget.ranks)[rank]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(X[mine]), y[mine]).backward()
            optimiser.step()
        seconds = perf_counter() - began
        if rank == 0:
            with torch.no_grad():
                predicted = network(torch.from_numpy(digits.X_test)).argmax(dim=1).numpy()
            records.append((float(np.mean(predicted == digits.y_test)), seconds))
    distributed.destroy_process_group()


# Synchronous steps whose gradients travel through a codec.
CODECS: dict[str, dict[str, Any]] = {
    "top_k": {"compression": "top_k", "compression_options": {"fraction": 0.01}},
    "power_sgd": {"compression": "power_sgd", "compression_options": {"rank": 2}},
}


def systems_of(budget: Budget) -> dict[str, Callable[[Digits], Figure]]:
    """Everything that can be measured, by name."""
    systems: dict[str, Callable[[Digits], Figure]] = {
        "scikit-learn": partial(scikit_learn, budget=budget),
        "ddp": partial(torch_ddp, budget=budget),
        "alone": partial(own, system="alone", budget=budget, ranks=1, parameters={}),
    }
    ways = {name: {"strategy": name} for name in strategy_names()} | CODECS
    for name, parameters in ways.items():
        systems[name] = partial(own, system=name, budget=budget, ranks=budget.ranks, parameters=parameters)
    return systems


def read_digits(data_dir: Path, n_rows: int | None) -> Digits:
    dataset = load_dataset("mnist", data_dir)
    splits = (dataset.train, dataset.test)
    tables = [np.ascontiguousarray(split.features, np.float32) / np.float32(255) for split in splits]
    targets = [np.asarray(split.target).astype(np.int64) for split in splits]
    return Digits(tables[0][:n_rows], targets[0][:n_rows], tables[1], targets[1])


def text_of(figures: Sequence[Figure], target: float) -> str:
    lines = [f"{'system':18} ranks epochs accuracy  best   seconds  s to {target:g}        MB  MB to {target:g}"]
    lines += [
        f"{each.system:18} {each.ranks:5d} {each.epochs:6d} {each.accuracy:8.4f} {each.best_accuracy:.4f} "
        f"{each.seconds:8.2f} {each.seconds_to_target:9.2f} {each.megabytes:9.1f} {each.megabytes_to_target:11.1f}"
        for each in figures
    ]
    return "\n".join(lines)


def main(arguments_given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_neural", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", help="scikit-learn, ddp, alone, top_k, power_sgd or a strategy")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, help="only the first rows, for a quick look")
    parser.add_argument("--target", type=float, default=0.97)
    parser.add_argument("--backend", choices=("threads", "processes"), default="processes")
    parser.add_argument("--schedule", choices=SCHEDULES, default="constant", help="of our own systems")
    parser.add_argument("--out", type=Path, default=Path("neural.jsonl"))
    arguments = parser.parse_args(arguments_given)
    budget = Budget(
        arguments.epochs,
        arguments.batch_size,
        arguments.ranks,
        arguments.target,
        arguments.backend,
        arguments.schedule,
    )
    systems = systems_of(budget)
    unknown = [name for name in arguments.systems or () if name not in systems]
    if unknown:
        parser.error(f"unknown system {unknown[0]!r}; there are {', '.join(systems)}")
    digits = read_digits(arguments.data_dir, arguments.rows)
    results = start_results(arguments.out)
    figures = []
    for name in arguments.systems or systems:
        try:
            figures.append(systems[name](digits))
        except ValueError as error:
            print(f"{name}: {error}", flush=True)
            continue
        results.append(NEURAL, asdict(budget) | asdict(figures[-1]))
        print(text_of(figures[-1:], budget.target), flush=True)
    print(text_of(figures, budget.target))


if __name__ == "__main__":
    main()
