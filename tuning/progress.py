"""A line on the standard error stream: fits done, best score, time left."""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TextIO

from dmlgbm.tuning.calls import FitCall, FitResult
from dmlgbm.tuning.driver import Watcher

_SECONDS_BETWEEN = 0.2


class ProgressLine:
    """Rewrites one line on a terminal; elsewhere it writes a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._started = time.monotonic()
        self._shown_at = -math.inf
        self._text = ""
        self._scores: dict[int, list[float]] = defaultdict(list)
        self._best = math.nan

    def update(self, call: FitCall, result: FitResult, n_done: int, n_asked: int) -> None:
        scores = self._scores[call.number - call.fold]
        scores.append(_first_score(result))
        _, n_folds = call.own_arguments.get("split_progress", (0, 1))
        if len(scores) == n_folds:
            mean = sum(scores) / n_folds
            self._best = mean if math.isnan(self._best) else max(self._best, mean)
        now = time.monotonic()
        if now - self._shown_at >= _SECONDS_BETWEEN or n_done == n_asked:
            self._shown_at = now
            self._show(n_done, n_asked, now - self._started)

    def close(self) -> None:
        if self._text:
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, n_done: int, n_asked: int, seconds: float) -> None:
        left = seconds / max(1, n_done) * (n_asked - n_done)
        best = "" if math.isnan(self._best) else f", best score {self._best:.6g}"
        text = f"{n_done}/{n_asked} fits{best}, {seconds:.0f} s, about {left:.0f} s left"
        if self._stream.isatty():
            self._stream.write(f"\r{text:<{len(self._text)}}")
        else:
            self._stream.write(f"\n{text}" if self._text else text)
        self._stream.flush()
        self._text = text


def watchers_for(progress: bool) -> list[Watcher]:
    """Who is told how the search goes on: nobody, unless the user wants to see it."""
    return [ProgressLine()] if progress else []


def _first_score(result: FitResult) -> float:
    scores = result["test_scores"]
    return float(next(iter(scores.values())) if isinstance(scores, Mapping) else scores)
