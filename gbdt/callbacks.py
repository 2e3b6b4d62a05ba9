"""What can watch a training run: each callback is called once after every iteration."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.system.atomic_file import write_atomically


class Evaluation(NamedTuple):
    """One value of one metric on one evaluation set."""

    set_name: str
    metric: str
    value: float
    higher_is_better: bool


# What callbacks of other libraries look for, and where it is here.
_FOREIGN_NAMES = {
    "evaluation_result_list": "state.evaluations",
    "model": "state.booster_so_far()",
    "begin_iteration": "state.iteration, which is 1 for the first",
    "end_iteration": "state.n_iterations",
}


@dataclass
class TrainingState:
    """What a callback sees after an iteration, and how it can end the run."""

    iteration: int  # 1 for the first
    n_iterations: int  # asked for
    evaluations: list[Evaluation]
    booster_so_far: Callable[[], Booster]
    stop_reason: str | None = field(default=None)

    def stop(self, reason: str) -> None:
        """End training after this iteration."""
        self.stop_reason = reason

    def __setattr__(self, name: str, value: object) -> None:
        # Whatever else a callback sets would change nothing.
        if name not in self.__dataclass_fields__ or (name in self.__dict__ and name != "stop_reason"):
            raise AttributeError(
                f"a callback sets state.{name}, which has no effect: call state.stop(reason) to end training."
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> NoReturn:
        found = f": use {_FOREIGN_NAMES[name]}" if name in _FOREIGN_NAMES else ""
        raise AttributeError(f"the state that a callback gets has no attribute {name!r}{found}.")


Callback = Callable[[TrainingState], None]


# Progress where there is no terminal to draw on.
_LINES_IN_LOGS = 10


def log_evaluation(period: int = 1, stream: TextIO | None = None) -> Callback:
    """Print the metrics every `period` iterations."""

    def log(state: TrainingState) -> None:
        if state.iteration % period == 0 or state.iteration == state.n_iterations:
            print(f"[{state.iteration}] {_described(state.evaluations)}", file=stream or sys.stderr, flush=True)

    return log


def record_evaluation(record: dict[str, dict[str, list[float]]]) -> Callback:
    """Append every metric value to record[set name][metric]."""

    def append(state: TrainingState) -> None:
        for evaluation in state.evaluations:
            record.setdefault(evaluation.set_name, {}).setdefault(evaluation.metric, []).append(evaluation.value)

    return append


def progress_bar(stream: TextIO | None = None, width: int = 30) -> Callback:
    """Draw a bar with the time left and the last metrics, on one line of the terminal.

    Where there is no terminal (a log file, a pipe), ten lines of plain text tell the same.
    """
    started = time.monotonic()

    def draw(state: TrainingState) -> None:
        out = stream or sys.stderr
        iteration, n_iterations = state.iteration, state.n_iterations
        left = (time.monotonic() - started) * (n_iterations / iteration - 1.0)
        text = f"{iteration}/{n_iterations}  {left:.0f} s left  {_described(state.evaluations)}"
        is_last = iteration == n_iterations or bool(state.stop_reason)
        if out.isatty():
            bar = ("█" * round(iteration / n_iterations * width)).ljust(width, "·")
            print(f"\r{bar} {text}\x1b[K", end="\n" if is_last else "", file=out, flush=True)
        elif is_last or iteration * _LINES_IN_LOGS // n_iterations > (iteration - 1) * _LINES_IN_LOGS // n_iterations:
            print(text.rstrip(), file=out, flush=True)

    return draw


def checkpoint(path: str | Path, every: int = 10) -> Callback:
    """Save the model so far every `every` iterations; pass the file as `init_model` to continue."""

    def save(state: TrainingState) -> None:
        if state.iteration % every == 0 or state.iteration == state.n_iterations:
            write_atomically(path, state.booster_so_far().to_bytes())

    return save


def time_limit(seconds: float) -> Callback:
    """Stop after the first iteration that ends later than this many seconds from now."""
    deadline = time.monotonic() + seconds

    def watch(state: TrainingState) -> None:
        if time.monotonic() >= deadline:
            state.stop(f"the time limit of {seconds:g} s is reached")

    return watch


@dataclass(frozen=True)
class ParameterSchedule:
    """Values of parameters for each iteration. A fit reads them before it begins: this is called by nobody."""

    kwargs: dict[str, Any]

    def __call__(self, state: TrainingState) -> None:
        raise RuntimeError("reset_parameter is for the callbacks of an estimator's fit.")


def reset_parameter(*, learning_rate: Callable[[int], float] | Sequence[float]) -> Callback:
    """Change the learning rate: a list with the rate of each iteration, or a function of its number, first 0."""
    return ParameterSchedule({"learning_rate": learning_rate})


def _described(evaluations: list[Evaluation]) -> str:
    return "  ".join(f"{e.set_name} {e.metric} {e.value:.6g}" for e in evaluations)
