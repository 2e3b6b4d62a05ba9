"""`plot_search`: scores over each parameter, and over the time of the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier, is_regressor

FloatArray = npt.NDArray[np.float64]

_BEST_COLOUR = "tab:red"


@dataclass(frozen=True)
class _Scores:
    """One score of each candidate: its mean over folds, its deviation, and which candidate is the best."""

    name: str
    mean: FloatArray
    deviation: FloatArray
    best: int | None


def plot_search(search: Any, metric: str | None = None, figure: Any = None) -> Any:
    """Draw a fitted search: one panel for each parameter that varies, and the best score so far over time.

    Points are means over the folds, bars their standard deviations; a star marks the best candidate. `metric` is the
    name of the score where there are several; `figure` a matplotlib figure to draw into. Returns the figure.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('plot_search needs matplotlib: pip install "dmlgbm[plot]".') from error
    results = search.cv_results_
    scores = _scores(search, metric)
    names = [name for name in results if name.startswith("param_") and len(_distinct(results[name])) > 1]
    n_panels = len(names) + 1
    n_columns = 2 if n_panels == 4 else min(3, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = pyplot.figure(figsize=(4.5 * n_columns, 3.5 * n_rows)) if figure is None else figure
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axis, name in zip(axes, names, strict=False):
        _draw_parameter(axis, name.removeprefix("param_"), results[name], scores)
    _draw_time(axes[len(names)], search, scores)
    for axis in axes[:n_panels]:
        axis.set_ylabel(scores.name)
    for axis in axes[n_panels:]:
        axis.set_visible(False)
    if scores.best is not None:
        best = f"best {scores.name}: {scores.mean[scores.best]:.4g} ± {scores.deviation[scores.best]:.2g}"
        figure.suptitle(best, color=_BEST_COLOUR)
    figure.tight_layout()
    return figure


def _scores(search: Any, metric: str | None) -> _Scores:
    known = [name.removeprefix("mean_test_") for name in search.cv_results_ if name.startswith("mean_test_")]
    chosen = metric or (search.refit if isinstance(search.refit, str) and search.refit in known else known[0])
    name = _metric_name(search) if known == ["score"] else chosen
    if chosen not in known:
        if chosen != name:
            raise ValueError(f"metric={chosen!r} is not a score of this search: it has {', '.join(known)}.")
        chosen = "score"  # the only one, called by its own name
    mean = np.asarray(search.cv_results_[f"mean_test_{chosen}"], float)
    deviation = np.asarray(search.cv_results_[f"std_test_{chosen}"], float)
    return _Scores(name, mean, deviation, _best(search, chosen, known, mean))


def _metric_name(search: Any) -> str:
    """What the one score of a search is: `scoring`, or what the estimator's own `score` measures."""
    scoring = search.scoring
    if isinstance(scoring, str):
        return scoring
    if scoring is not None:
        function = getattr(scoring, "_score_func", scoring)  # that of a scorer of make_scorer
        return str(getattr(function, "__name__", "score"))
    if is_classifier(search.estimator):
        return "accuracy"
    return "r2" if is_regressor(search.estimator) else "score"


def _best(search: Any, chosen: str, known: list[str], mean: FloatArray) -> int | None:
    """The candidate that the search chose, or the one with the highest score where it chose by none or another."""
    own_choice = getattr(search, "best_index_", None)
    if own_choice is not None and (len(known) == 1 or callable(search.refit) or search.refit == chosen):
        return int(own_choice) if np.isfinite(mean[own_choice]) else None
    return int(np.nanargmax(mean)) if np.isfinite(mean).any() else None


def _distinct(values: Any) -> set[str]:
    return {repr(value) for value in np.ma.asarray(values).filled(None).tolist()}


def _draw_parameter(axis: Any, name: str, values: Any, scores: _Scores) -> None:
    shown = np.ma.asarray(values)
    given = ~np.ma.getmaskarray(shown)
    plain = shown.data[given].tolist()
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in plain):
        positions = np.asarray(plain, float)
        if positions.min() > 0 and positions.max() / positions.min() >= 100:
            axis.set_xscale("log")
            positions = np.exp(_side_by_side(np.log(positions)))
        else:
            positions = _side_by_side(positions)
    else:
        labels = sorted({str(value)[:20] for value in plain})
        positions = _side_by_side(np.array([labels.index(str(value)[:20]) for value in plain], float))
        axis.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
        axis.margins(x=0.15)
    everywhere = np.full(len(scores.mean), np.nan)
    everywhere[given] = positions
    _draw_points(axis, everywhere, scores, "tab:blue")
    axis.set_xlabel(name)


def _side_by_side(positions: FloatArray) -> FloatArray:
    """Candidates with the same value of a parameter, beside one another so that their bars can be told apart."""
    distinct, group = np.unique(positions, return_inverse=True)
    room = 0.5 * np.diff(distinct).min() if len(distinct) > 1 else 0.0
    counts = np.bincount(group)
    order = np.argsort(group, kind="stable")
    number = np.empty(len(positions))
    number[order] = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return positions + room * ((number + 0.5) / counts[group] - 0.5)


def _draw_time(axis: Any, search: Any, scores: _Scores) -> None:
    seconds = np.asarray(search.search_report_.finished_at, float)
    order = np.argsort(seconds)
    order = order[np.isfinite(seconds[order]) & np.isfinite(scores.mean[order])]
    _draw_points(axis, seconds, scores, "0.7")
    axis.step(seconds[order], np.maximum.accumulate(scores.mean[order]), where="post")
    axis.set_xlabel("seconds")


def _draw_points(axis: Any, positions: FloatArray, scores: _Scores, colour: str) -> None:
    drawn = np.isfinite(positions) & np.isfinite(scores.mean)
    bars = {"fmt": "o", "markersize": 4, "elinewidth": 0.8, "capsize": 2, "alpha": 0.7}
    axis.errorbar(positions[drawn], scores.mean[drawn], scores.deviation[drawn], color=colour, **bars)
    if scores.best is not None and drawn[scores.best]:
        # Above the points, which may lie on the same spot.
        axis.plot(positions[scores.best], scores.mean[scores.best], "*", color=_BEST_COLOUR, markersize=13, zorder=5)
