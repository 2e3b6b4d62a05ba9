"""Whether a fit stops early, and which evaluation sets it watches for that.

Setting `early_stopping_rounds` and passing an `eval_set` is asking to stop, as in LightGBM and XGBoost;
`early_stopping` says yes or no where that is not meant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, SparseColumn
from dmlgbm.gbdt.parameters import ParameterError, TrainParameters
from dmlgbm.sklearn_api.rows.targets import FloatArray

_DEFAULT_ROUNDS = 10
# What the training rows are called where they are watched because no others are wanted.
TRAINING = "training"


def stopping_rounds(parameters: Mapping[str, Any], *, has_sets: bool) -> int | None:
    """Iterations to wait for an improvement; None if the fit does not stop early."""
    asked, rounds = parameters["early_stopping"], parameters["early_stopping_rounds"]
    if isinstance(asked, str):  # "auto"
        asked = has_sets and rounds is not None
    if not asked:
        return None
    return _DEFAULT_ROUNDS if rounds is None else rounds


def warn_of_rounds_without_sets(parameters: Mapping[str, Any], *, has_sets: bool) -> None:
    """Say that nothing is watched, before anybody takes the model for one that was stopped."""
    rounds = parameters["early_stopping_rounds"]
    if isinstance(parameters["early_stopping"], str) and rounds is not None and not has_sets:
        warnings.warn(
            f"early_stopping_rounds={rounds} has no effect without an eval_set: pass one to fit, or set "
            "early_stopping=True to set rows of X aside.",
            stacklevel=4,
        )


def require_rows_set_aside(parameters: Mapping[str, Any], rounds: int | None, *, has_sets: bool) -> None:
    """Whether there are rows to refit on that the trees were not grown on, if that is wanted."""
    sets_aside = rounds is not None and not has_sets and parameters["validation_fraction"] is not None
    if parameters["refit_after_stopping"] and not sets_aside:
        raise ParameterError(
            "refit_after_stopping=True needs rows that early stopping sets aside: set early_stopping=True and "
            "validation_fraction, and pass no eval_set."
        )


def names_to_watch(asked: Any) -> tuple[str, ...] | None:
    """The parameter `early_stopping_sets` as a tuple of names."""
    if asked is None:
        return None
    names = (asked,) if isinstance(asked, str) else asked
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"early_stopping_sets must be None, a name or a list of names, got {asked!r}.")
    if not names:
        raise ParameterError("early_stopping_sets is empty: name a set to watch, or set early_stopping=False.")
    return tuple(names)


def watching(
    parameters: TrainParameters, names: Sequence[str], holds_training_rows: Callable[[int], bool]
) -> TrainParameters:
    """The parameters with the names of the sets that early stopping watches.

    Where several sets are given and none is named, the training rows among them are left out: they go on improving.
    `holds_training_rows` tells by its number whether a set is that.
    """
    if parameters.early_stopping_rounds is None:
        return parameters
    asked = parameters.early_stopping_sets
    if asked is not None:
        for name in asked:
            if name not in names:
                raise ValueError(
                    f"early_stopping_sets names {name!r}, but the evaluation sets of this fit are "
                    f"{', '.join(map(repr, names))}."
                )
        return parameters
    if len(names) < 2:
        return parameters
    others = tuple(name for number, name in enumerate(names) if not holds_training_rows(number))
    return replace(parameters, early_stopping_sets=others or None)


def are_same_rows(one: Rows, other: Rows) -> bool:
    """Whether two sets hold the same rows in the same order, whatever they weigh."""
    if one.n_rows != other.n_rows or not np.array_equal(one.target, other.target):
        return False
    columns = zip(one.table.columns, other.table.columns, strict=True)
    return all(np.array_equal(_values(own), _values(others), equal_nan=True) for own, others in columns)


def row_digest(rows: Rows, first_row: int) -> int:
    """A number to add up over the parts of a set: equal for sets of the same rows in the same order."""
    from dmlgbm.gbdt.ranks.checkpoints import rows_digest

    values = (_values(column) for column in rows.table.columns)
    # A digest is of bits: there is one zero and one missing value.
    canonical = (np.where(np.isnan(each), np.nan, each + 0.0) for each in (rows.target, *values))
    return rows_digest(first_row, canonical)


def _values(column: Column) -> FloatArray:
    """Numbers as float64 with NaN for missing ones; categories by their number in training."""
    if isinstance(column, CategoricalColumn):
        return column.codes.astype(np.float64)
    if isinstance(column, SparseColumn):
        dense = np.zeros(column.n_rows)
        dense[column.rows] = column.values
        return dense
    values = column.values.astype(np.float64)
    if column.missing is not None:
        values[column.missing] = np.nan
    return values
