"""What it means that two searches have the same results."""

from __future__ import annotations

from typing import Any

import numpy as np


def require_same_results(ours: Any, theirs: Any) -> None:
    """Every column that does not hold times, bit by bit, and the choice of the best."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name, column in theirs.cv_results_.items():
        if not name.endswith("_time"):
            require_same_column(np.ma.asarray(ours.cv_results_[name]), np.ma.asarray(column), name)
    for name in ("best_index_", "best_params_", "best_score_", "n_splits_", "multimetric_"):
        assert hasattr(ours, name) == hasattr(theirs, name), name
        if hasattr(theirs, name):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)


def require_same_column(ours: Any, theirs: Any, name: str) -> None:
    assert ours.dtype == theirs.dtype, name
    np.testing.assert_array_equal(np.ma.getmaskarray(ours), np.ma.getmaskarray(theirs), name)
    if theirs.dtype.kind == "f":
        # Not only equal: the same bits, of numbers and of what is not a number.
        assert ours.filled(0).tobytes() == theirs.filled(0).tobytes(), name
    else:
        assert repr(ours.tolist()) == repr(theirs.tolist()), name
