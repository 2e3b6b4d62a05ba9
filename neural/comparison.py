"""Strategies side by side: the same estimator trained by each, in one table of accuracy, time, bytes and waiting."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sklearn.base import clone

from dmlgbm.neural.history import TrainingHistory
from dmlgbm.neural.plotting import bar_chart


@dataclass(frozen=True)
class Row:
    """One fit. Figures up to the target are NaN where it was not reached."""

    name: str
    score: float
    epochs: int
    seconds: float
    megabytes: float
    waiting: float
    staleness: float
    seconds_to_target: float
    megabytes_to_target: float


@dataclass(frozen=True)
class Comparison:
    """The rows of a comparison and the histories behind them; `str` makes a table of text."""

    rows: tuple[Row, ...]
    histories: Mapping[str, TrainingHistory]
    target: float | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" to {self.target:g}"
        heads = ["strategy", "score", "epochs", "seconds", "MB sent", "waiting", "staleness"]
        columns = ["name", "score", "epochs", "seconds", "megabytes", "waiting", "staleness"]
        if self.target is not None:
            heads += [f"s{target}", f"MB{target}"]
            columns += ["seconds_to_target", "megabytes_to_target"]
        table = [heads, *([_text(getattr(row, column)) for column in columns] for row in self.rows)]
        widths = [max(len(line[position]) for line in table) for position in range(len(heads))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if position == 0 else cell.rjust(width)
                for position, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A matplotlib figure of score, time and bytes; written to `path` if given."""
        to_target = self.target is not None
        panels = {
            "score": [row.score for row in self.rows],
            f"seconds{f' to {self.target:g}' if to_target else ''}": [
                row.seconds_to_target if to_target else row.seconds for row in self.rows
            ],
            f"MB sent{f' to {self.target:g}' if to_target else ''}": [
                row.megabytes_to_target if to_target else row.megabytes for row in self.rows
            ],
        }
        return bar_chart([row.name for row in self.rows], panels, path)

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows as plain values."""
        return [{each.name: getattr(row, each.name) for each in fields(Row)} for row in self.rows]


def compare(
    estimator: Any,
    X: Any,
    y: Any,
    strategies: Sequence[str] | Mapping[str, Mapping[str, Any]],
    *,
    eval_set: tuple[Any, Any],
    target: float | None = None,
) -> Comparison:
    """Train a copy of `estimator` with each strategy and tell how each did on the rows of `eval_set`.

    `strategies` are names, or names of your own with the parameters that make each: {"ssp": {"strategy":
    "parameter_server", "strategy_options": {...}, "learning_rate": 0.01}}.
    """
    chosen = strategies if isinstance(strategies, Mapping) else {name: {"strategy": name} for name in strategies}
    histories, rows = {}, []
    for name, parameters in chosen.items():
        fitted = clone(estimator).set_params(**parameters).fit(X, y, eval_set=eval_set)
        histories[name] = fitted.history_
        rows.append(summarise(name, fitted.history_, target))
    return Comparison(tuple(rows), histories, target)


def summarise(name: str, history: TrainingHistory, target: float | None) -> Row:
    """One row from the history of a fit with watched rows."""
    seconds, sent = history.cumulative("seconds"), history.cumulative("bytes_sent")
    reached = next(
        (epoch for epoch, score in enumerate(history["score"]) if target is not None and score >= target), None
    )
    return Row(
        name=name,
        score=history["score"][-1],
        epochs=len(history),
        seconds=seconds[-1],
        megabytes=sent[-1] / 1e6,
        waiting=sum(history["wait_seconds"]) / max(seconds[-1], 1e-9),
        staleness=max(history["staleness_max"]),
        seconds_to_target=float("nan") if reached is None else seconds[reached],
        megabytes_to_target=float("nan") if reached is None else sent[reached] / 1e6,
    )


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "never" if value != value else f"{value:.4g}"
