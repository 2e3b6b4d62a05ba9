"""`plot_search`: scores over each parameter, and over the time of the search."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def plot_search(search: Any, metric: str | None = None, figure: Any = None) -> Any:
    """Draw a fitted search: one panel for each parameter that varies, and the best score so far over time.

    `metric` is the name of the score where there are several; `figure` a matplotlib figure to draw into. Returns the
    figure.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('plot_search needs matplotlib: pip install "dmlgbm[plot]".') from error
    results = search.cv_results_
    column = _score_column(search, metric)
    scores = np.asarray(results[column], float)
    names = [name for name in results if name.startswith("param_") and len(_distinct(results[name])) > 1]
    n_columns = min(3, len(names) + 1)
    n_rows = -(-(len(names) + 1) // n_columns)
    figure = pyplot.figure(figsize=(4.5 * n_columns, 3.5 * n_rows)) if figure is None else figure
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axis, name in zip(axes, names, strict=False):
        _draw_parameter(axis, name.removeprefix("param_"), results[name], scores)
    _draw_time(axes[len(names)], search, scores)
    for axis in axes[: len(names) + 1]:
        axis.set_ylabel(column.removeprefix("mean_test_").replace("_", " "))
    for axis in axes[len(names) + 1 :]:
        axis.set_visible(False)
    figure.tight_layout()
    return figure


def _score_column(search: Any, metric: str | None) -> str:
    known = [name for name in search.cv_results_ if name.startswith("mean_test_")]
    chosen = metric or (search.refit if isinstance(search.refit, str) else known[0].removeprefix("mean_test_"))
    if f"mean_test_{chosen}" not in known:
        names = ", ".join(name.removeprefix("mean_test_") for name in known)
        raise ValueError(f"metric={chosen!r} is not a score of this search: it has {names}.")
    return f"mean_test_{chosen}"


def _distinct(values: Any) -> set[str]:
    return {repr(value) for value in np.ma.asarray(values).filled(None).tolist()}


def _draw_parameter(axis: Any, name: str, values: Any, scores: npt.NDArray[np.float64]) -> None:
    shown = np.ma.asarray(values)
    given = ~np.ma.getmaskarray(shown)
    plain = shown.data[given].tolist()
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in plain):
        axis.scatter(plain, scores[given], s=16)
        positive = np.asarray(plain, float)
        if positive.min() > 0 and positive.max() / positive.min() >= 100:
            axis.set_xscale("log")
    else:
        labels = sorted({str(value)[:20] for value in plain})
        axis.scatter([labels.index(str(value)[:20]) for value in plain], scores[given], s=16)
        axis.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    axis.set_xlabel(name)


def _draw_time(axis: Any, search: Any, scores: npt.NDArray[np.float64]) -> None:
    seconds = np.asarray(search.search_report_.finished_at, float)
    order = np.argsort(seconds)
    order = order[np.isfinite(seconds[order]) & np.isfinite(scores[order])]
    axis.scatter(seconds[order], scores[order], s=16, color="0.7")
    axis.step(seconds[order], np.maximum.accumulate(scores[order]), where="post")
    axis.set_xlabel("seconds")
