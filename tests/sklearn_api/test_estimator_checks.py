"""scikit-learn's own checks: for classifier and regressor every one passes, and none is expected to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

Check = Callable[[BaseEstimator], None]


class RankerOfOneQuery(DMLGBMRanker):
    """All rows in one query, and targets of any kind as grades, for checks that know neither."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        target = np.asarray(y)
        if y is None or target.dtype.kind not in "iu":
            return super().fit(X, y, group=[target.size], sample_weight=sample_weight)
        grades = np.unique(target.ravel(), return_inverse=True)[1] % 5
        return super().fit(X, grades, group=[len(grades)], sample_weight=sample_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(X, np.asarray(y) % 5, group=[len(y)], sample_weight=sample_weight)


def skip_where_repeated_rows_differ_from_weighted_ones(check: Check, reason: str) -> None:
    if "sample_weight_equivalence" in getattr(check, "func", check).__name__:
        pytest.skip(reason)


@parametrize_with_checks([DMLGBMClassifier(), DMLGBMRegressor()])
def test_scikit_learn_check(estimator: BaseEstimator, check: Check) -> None:
    check(estimator)


@parametrize_with_checks([DMLGBMClassifier(n_estimators=5, early_stopping=True, min_child_samples=1)])
def test_scikit_learn_check_with_early_stopping_and_small_leaves(estimator: BaseEstimator, check: Check) -> None:
    skip_where_repeated_rows_differ_from_weighted_ones(check, "other rows are set aside")
    check(estimator)


@parametrize_with_checks([RankerOfOneQuery(n_estimators=5)])
def test_scikit_learn_check_of_the_ranker(estimator: BaseEstimator, check: Check) -> None:
    skip_where_repeated_rows_differ_from_weighted_ones(check, "two equal rows take two positions in a ranking")
    check(estimator)
