"""Pictures of histories: loss and score by epoch, by time and by bytes, and what ranks wait. Needs the extra `plot`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlgbm.neural.history import TrainingHistory

_MEGABYTE = 1e6

Panel = Callable[[Any, Mapping[str, TrainingHistory]], None]
"""Draws histories by name into axes."""


def plot_history(histories: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """A matplotlib figure of one history (or fitted estimator), or of several by name; written to `path` if given.

    Panels: loss by epoch, loss by seconds, score (or loss) by megabytes sent, and for each rank (or each history, where
    there are several) the share of time spent waiting. A rank that trained alone sent nothing and did not wait: instead
    of the last two panels there is the score by epoch, if scores were recorded.
    """
    figure_of = _matplotlib_figure()
    named = {name: _history(value) for name, value in _by_name(histories).items()}
    panels: list[Panel] = [_plot_loss_by_epoch, _plot_loss_by_seconds]
    if any(history.n_ranks > 1 for history in named.values()):
        panels += [_plot_quality_by_bytes, _plot_waiting]
    elif any("score" in history for history in named.values()):
        panels += [_plot_score_by_epoch]
    n_rows, n_columns = (2, 2) if len(panels) == 4 else (1, len(panels))
    figure = figure_of(figsize=(5 * n_columns, 3.5 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axis, plot in zip(axes, panels, strict=True):
        plot(axis, named)
    if len(named) > 1:
        axes[0].legend()
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _plot_loss_by_epoch(axis: Any, named: Mapping[str, TrainingHistory]) -> None:
    for name, history in named.items():
        axis.plot(range(1, len(history) + 1), history["loss"], marker=".", label=name)
    axis.set(xlabel="epoch", ylabel="loss", yscale=_scale_of_loss(named))
    _tick_whole_numbers(axis)


def _plot_loss_by_seconds(axis: Any, named: Mapping[str, TrainingHistory]) -> None:
    for name, history in named.items():
        axis.plot(history.cumulative("seconds"), history["loss"], marker=".", label=name)
    axis.set(xlabel="seconds", ylabel="loss", yscale=_scale_of_loss(named))


def _plot_quality_by_bytes(axis: Any, named: Mapping[str, TrainingHistory]) -> None:
    for name, history in named.items():
        quality = "score" if "score" in history else "loss"
        megabytes = [sent / _MEGABYTE for sent in history.cumulative("bytes_sent")]
        axis.plot(megabytes, history[quality], marker=".", label=name)
        axis.set_ylabel(quality)
    axis.set_xlabel("megabytes sent by all ranks")


def _plot_score_by_epoch(axis: Any, named: Mapping[str, TrainingHistory]) -> None:
    for name, history in named.items():
        if "score" in history:
            axis.plot(range(1, len(history) + 1), history["score"], marker=".", label=name)
    axis.set(xlabel="epoch", ylabel="score")
    _tick_whole_numbers(axis)


def _plot_waiting(axis: Any, named: Mapping[str, TrainingHistory]) -> None:
    if len(named) > 1:
        lines = {name: (history["wait_seconds"], history["seconds"]) for name, history in named.items()}
    else:
        history = next(iter(named.values()))
        ranks = [history.of_rank(rank) for rank in range(history.n_ranks)]
        lines = {f"rank {rank}": (each["wait_seconds"], each["seconds"]) for rank, each in enumerate(ranks)}
    for name, (waited, seconds) in lines.items():
        shares = [wait / total if total else 0.0 for wait, total in zip(waited, seconds, strict=True)]
        axis.plot(range(1, len(shares) + 1), shares, marker=".", label=name)
    axis.set(xlabel="epoch", ylabel="share of time spent waiting", ylim=(0, 1))
    _tick_whole_numbers(axis)
    axis.legend()


def _scale_of_loss(named: Mapping[str, TrainingHistory]) -> str:
    """Logarithmic for losses of several orders of magnitude: for others its ticks are hard to read."""
    losses = [loss for history in named.values() for loss in history["loss"]]
    return "log" if 0 < 10 * min(losses) <= max(losses) else "linear"


def _tick_whole_numbers(axis: Any) -> None:
    axis.xaxis.get_major_locator().set_params(integer=True)


def bar_chart(names: Sequence[str], panels: Mapping[str, Sequence[float]], path: str | os.PathLike[str] | None) -> Any:
    """A figure with a panel of horizontal bars for each measure."""
    figure = _matplotlib_figure()(figsize=(4 * len(panels), 0.4 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        bars = axis.barh(list(names), [0.0 if value != value else value for value in values])
        axis.bar_label(bars, ["never" if value != value else f"{value:.4g}" for value in values], padding=2)
        axis.set_title(title)
        axis.margins(x=0.2)
        axis.invert_yaxis()
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _matplotlib_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'dmlgbm[plot]'") from None
    return Figure


def _by_name(histories: Any) -> Mapping[str, Any]:
    return histories if isinstance(histories, Mapping) else {"": histories}


def _history(value: Any) -> TrainingHistory:
    history = getattr(value, "history_", value)
    if not isinstance(history, TrainingHistory):
        raise TypeError(f"histories are those of fitted estimators (`history_`), not {value!r}")
    return history
