"""Pictures of histories: loss and score by epoch, by time and by bytes, and what ranks wait. Needs the extra `plot`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from neural.history import TrainingHistory

_MEGABYTE = 1e6


def plot_history(histories: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """A matplotlib figure of one history (or fitted estimator), or of several by name; written to `path` if given.

    Above: loss by epoch, loss by seconds. Below: score (or loss) by megabytes sent, and for each rank (or each
    history, where there are several) the share of time spent waiting.
    """
    figure_of = _matplotlib_figure()
    named = {name: _history(value) for name, value in _by_name(histories).items()}
    figure = figure_of(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    for name, history in named.items():
        epochs = range(1, len(history) + 1)
        quality = "score" if "score" in history else "loss"
        axes[0, 0].plot(epochs, history["loss"], marker=".", label=name)
        axes[0, 1].plot(history.cumulative("seconds"), history["loss"], marker=".", label=name)
        megabytes = [sent / _MEGABYTE for sent in history.cumulative("bytes_sent")]
        axes[1, 0].plot(megabytes, history[quality], marker=".", label=name)
        axes[1, 0].set_ylabel(quality)
    for place, label in ((axes[0, 0], "epoch"), (axes[0, 1], "seconds"), (axes[1, 0], "megabytes sent by all ranks")):
        place.set_xlabel(label)
    for place in axes[0]:
        place.set_ylabel("loss")
        place.set_yscale("log")
    _plot_waiting(axes[1, 1], named)
    if len(named) > 1:
        axes[0, 0].legend()
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _plot_waiting(place: Any, named: Mapping[str, TrainingHistory]) -> None:
    place.set_xlabel("epoch")
    place.set_ylabel("share of time spent waiting")
    place.set_ylim(0, 1)
    if len(named) > 1:
        lines = {name: (history["wait_seconds"], history["seconds"]) for name, history in named.items()}
    else:
        history = next(iter(named.values()))
        ranks = [history.of_rank(rank) for rank in range(history.n_ranks)]
        lines = {f"rank {rank}": (each["wait_seconds"], each["seconds"]) for rank, each in enumerate(ranks)}
    for name, (waited, seconds) in lines.items():
        shares = [wait / total if total else 0.0 for wait, total in zip(waited, seconds, strict=True)]
        place.plot(range(1, len(shares) + 1), shares, marker=".", label=name)
    place.legend()


def bar_chart(names: Sequence[str], panels: Mapping[str, Sequence[float]], path: str | os.PathLike[str] | None) -> Any:
    """A figure with a panel of horizontal bars for each measure."""
    figure = _matplotlib_figure()(figsize=(4 * len(panels), 0.4 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for place, (title, values) in zip(axes, panels.items(), strict=True):
        bars = place.barh(list(names), [0.0 if value != value else value for value in values])
        place.bar_label(bars, ["never" if value != value else f"{value:.4g}" for value in values], padding=2)
        place.set_title(title)
        place.margins(x=0.2)
        place.invert_yaxis()
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
