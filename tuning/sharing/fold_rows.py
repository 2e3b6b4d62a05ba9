"""The rows of a fold, taken out of the table once for all calls on it, and their scores.

scikit-learn takes the rows of a fold out anew for every call. Here all calls on a fold see the same objects, which
spares the copies and lets estimators know them again; so this is only for estimators and scorers that write to
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics._scorer import _BaseScorer, _MultimetricScorer, _PassthroughScorer
from sklearn.model_selection._validation import _score
from sklearn.utils.metaestimators import _safe_split

from dmlgbm.tuning.calls import SearchData
from dmlgbm.tuning.sharing.limited_cache import slices_cache

# Some versions of scikit-learn warn of targets where more than half of the values differ from each other.
_ROWS_PER_CLASS = 4


@dataclass
class Part:
    """Rows to learn from or to test on."""

    X: Any
    y: Any
    holds_classes: bool = False
    """Whether scikit-learn's accuracy has found y to be good."""

    def score(self, estimator: Any, scorer: Any, error_score: Any) -> Any:
        """What scikit-learn's `_score` gives."""
        if not _is_accuracy(scorer, estimator) or not self._is_plain(estimator):
            return _score(estimator, self.X, self.y, scorer, {}, error_score)
        if self.holds_classes:
            return float(np.mean(estimator.predict(self.X) == self.y))
        score = _score(estimator, self.X, self.y, scorer, {}, "raise")
        self.holds_classes = True
        return score

    @property
    def n_bytes(self) -> int:
        return sum(_bytes_of(each) for each in (self.X, self.y))

    def _is_plain(self, estimator: Any) -> bool:
        """Whether accuracy is the share of equal values, with nothing to warn of."""
        if type(self.y) is not np.ndarray or self.y.ndim != 1 or self.y.dtype.kind not in "biuU":
            return False
        classes: Any = getattr(estimator, "classes_", None)
        same_kind = type(classes) is np.ndarray and classes.dtype.kind == self.y.dtype.kind
        return same_kind and _ROWS_PER_CLASS * len(classes) <= len(self.y)


@dataclass(frozen=True)
class FoldRows:
    """Both parts of a fold."""

    train: Part
    test: Part


def fold_rows(split: str, estimator: Any, data: SearchData) -> FoldRows:
    """The rows of a fold, as scikit-learn takes them out for such an estimator."""

    def take_out() -> tuple[FoldRows, int]:
        train, test = data.splits[split]
        X, y = data.shared.X, data.shared.y
        fold = FoldRows(Part(*_safe_split(estimator, X, y, train)), Part(*_safe_split(estimator, X, y, test, train)))
        return fold, fold.train.n_bytes + fold.test.n_bytes

    fold: FoldRows = slices_cache(data).get_or_make(split, take_out)[0]
    return fold


def writes_to_nothing(scorer: Any) -> bool:
    """Whether a scorer is scikit-learn's own, and so leaves the rows as they are."""
    if isinstance(scorer, _MultimetricScorer):
        return all(map(writes_to_nothing, scorer._scorers.values()))
    if isinstance(scorer, _BaseScorer):
        return str(getattr(scorer._score_func, "__module__", "")).startswith("sklearn.")
    return isinstance(scorer, _PassthroughScorer)


def _is_accuracy(scorer: Any, estimator: Any) -> bool:
    return isinstance(scorer, _PassthroughScorer) and type(estimator).score is ClassifierMixin.score


def _bytes_of(rows: Any) -> int:
    if isinstance(rows, np.ndarray):
        return rows.nbytes
    usage = getattr(rows, "memory_usage", None)
    return int(np.sum(usage(index=True))) if callable(usage) else 0
