"""What belongs to the rows of X: targets, class labels, weights, starting scores and query groups, checked one by one.

Every function returns plain numpy arrays for the engine, or raises one sentence that names the argument and the row.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Each place has a number in the loss.
_LAST_POSITION = 65_535


def numeric_target(y: Any, n_rows: int, name: str = "y") -> FloatArray:
    """The target of a regression or a ranking: finite numbers."""
    values = one_for_each_row(y, n_rows, name)
    target = _numbers(values, name)
    _require_finite(target, name)
    return target


def survival_times(y: Any, n_rows: int, name: str = "y") -> FloatArray:
    """Times, negative where the event did not come: signed already, as (event, time) or as (lower, upper) bounds."""
    values = np.asarray(y)
    if values.dtype.names is not None:
        fields = values.dtype.names
        if len(fields) != 2 or values.dtype[0].kind != "b" or values.ndim != 1:
            raise ValueError(
                f"{name} has the fields {', '.join(fields)}: a structured array of survival times has two, whether the "
                "event came (true or false) and the time."
            )
        times = numeric_target(values[fields[1]], n_rows, name)
        return _signed(times, values[fields[0]], name)
    if values.ndim == 2 and values.shape[1] == 2:
        bounds = _numbers(_of_length(values, n_rows, name), name)
        lower, upper = np.ascontiguousarray(bounds[:, 0]), bounds[:, 1]
        _require_finite(lower, name)
        known = (upper == lower) | (upper == np.inf)
        if not known.all():
            row = int(np.argmin(known))
            raise ValueError(
                f"{name} holds the bounds ({lower[row]:g}, {upper[row]:g}) in row {row}: the upper one must equal "
                "the lower one where the event came, and be infinite where it did not."
            )
        return _signed(lower, upper == lower, name)
    return numeric_target(y, n_rows, name)


def _signed(times: FloatArray, event: npt.NDArray[np.bool_], name: str) -> FloatArray:
    if (times <= 0.0).any():
        row = int(np.argmax(times <= 0.0))
        raise ValueError(f"{name} holds the time {times[row]:g} in row {row}: times must be above 0.")
    return np.where(event, times, -times)


def weight_vector(sample_weight: Any, n_rows: int, name: str = "sample_weight") -> FloatArray | None:
    """Weights: finite, not negative, not all zero. A single number weighs every row alike."""
    if sample_weight is None:
        return None
    weight = nonnegative_weights(sample_weight, n_rows, name)
    require_weight(bool(weight.any()), name)
    return weight


def nonnegative_weights(sample_weight: Any, n_rows: int, name: str) -> FloatArray:
    """Weights of rows that may be a part of all rows: finite, not negative, perhaps all zero."""
    values = np.asarray(sample_weight)
    if values.ndim == 0:
        values = np.full(n_rows, values)
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of shape {values.shape}.")
    weight = _numbers(_of_length(values, n_rows, name), name)
    _require_finite(weight, name)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(f"{name} holds the negative weight {weight[row]:g} in row {row}: weights are at least zero.")
    return weight


def require_weight(found: bool, name: str) -> None:
    """Whether any row weighs something."""
    if not found:
        raise ValueError(f"{name} must hold at least one number above zero: every weight is zero.")


def score_matrix(init_score: Any, n_rows: int, n_outputs: int, name: str = "init_score") -> FloatArray | None:
    """Starting scores, output-major as in the engine, from one number for each row (and class).

    Of several classes, a flat array holds the scores of all rows for the first class, then for the second, and so on.
    """
    if init_score is None:
        return None
    values = np.asarray(init_score)
    shape = (n_rows,) if n_outputs == 1 else (n_rows, n_outputs)
    if n_outputs > 1 and values.shape == (n_rows * n_outputs,):
        values = values.reshape(n_outputs, n_rows).T  # class after class, as LightGBM has it
    if values.shape not in (shape, (n_rows, n_outputs)):
        raise ValueError(f"{name} must have the shape {shape}, got an array of shape {values.shape}.")
    score = np.ascontiguousarray(_numbers(values.reshape(n_rows, n_outputs).T, name))
    _require_finite(score.min(axis=0) + score.max(axis=0), name)
    return score


def position_vector(position: Any, n_rows: int, name: str = "position") -> IntArray | None:
    """At which place each row was shown: whole numbers from 0 on."""
    if position is None:
        return None
    given = _numbers(one_for_each_row(position, n_rows, name), name)
    valid = (given >= 0) & (given <= _LAST_POSITION) & (given == np.floor(given))
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"{name} holds {given[row]:g} in row {row}: positions are whole numbers from 0 to {_LAST_POSITION}."
        )
    return given.astype(np.int64)


def group_boundaries(group: Any, qid: Any, n_rows: int, names: tuple[str, str] = ("group", "qid")) -> IntArray:
    """Where each query starts, and the number of rows at the end, from the sizes of the queries or an id a row."""
    group_name, qid_name = names
    if (group is None) == (qid is None):
        found = "neither" if group is None else "both"
        raise ValueError(
            f"Ranking needs to know which rows form a query: pass either {group_name} (the number of rows of each "
            f"query) or {qid_name} (an id for each row), got {found}."
        )
    if group is not None:
        return _boundaries_from_sizes(np.asarray(group), n_rows, group_name)
    return _boundaries_from_ids(one_for_each_row(qid, n_rows, qid_name), qid_name)


def _boundaries_from_sizes(sizes: npt.NDArray[Any], n_rows: int, name: str) -> IntArray:
    if sizes.dtype.kind == "f" and np.isfinite(sizes).all() and (sizes == np.trunc(sizes)).all():
        sizes = sizes.astype(np.int64)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must list the whole number of rows of each query, got an array of shape {sizes.shape} and "
            f"dtype {sizes.dtype}."
        )
    if (sizes < 1).any():
        query = int(np.argmax(sizes < 1))
        raise ValueError(f"{name} holds the size {sizes[query]} for query {query}: every query has at least one row.")
    boundaries = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    if boundaries[-1] != n_rows:
        raise ValueError(f"The sizes in {name} add up to {boundaries[-1]}, but X has {n_rows} rows.")
    return boundaries


def _boundaries_from_ids(ids: npt.NDArray[Any], name: str) -> IntArray:
    starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1]).astype(np.int64)
    require_separate_queries(starts, ids[starts].tolist(), name)
    return np.append(starts, len(ids))


def require_separate_queries(starts: IntArray, query_ids: list[Any], name: str) -> None:
    """Whether queries that start in these rows have an id of their own each."""
    if len(set(query_ids)) == len(query_ids):
        return
    seen: set[Any] = set()
    for start, query_id in zip(starts.tolist(), query_ids, strict=True):
        if query_id in seen:
            raise ValueError(
                f"{name} returns to {query_id!r} in row {start} after other queries: sort the rows by {name} so "
                "that the rows of a query follow one another."
            )
        seen.add(query_id)


def one_for_each_row(y: Any, n_rows: int, name: str) -> npt.NDArray[Any]:
    """A one-dimensional array of n_rows values; a single column is flattened with scikit-learn's warning."""
    if y is None:
        raise ValueError(f"This estimator requires {name} to be passed, but the target {name} is None.")
    values = np.asarray(y)
    if is_column(values):
        warn_of_column(name)
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} should be a 1d array with one value for each row, got shape {values.shape} instead.")
    return _of_length(values, n_rows, name)


def is_column(values: npt.NDArray[Any]) -> bool:
    """Whether this is a table of one column, which is taken for a vector."""
    return values.ndim == 2 and values.shape[1] == 1


def warn_of_column(name: str) -> None:
    """scikit-learn's warning."""
    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        f"A column-vector {name} was passed when a 1d array was expected. Please change the shape of {name} to "
        "(n_samples, ), for example using ravel().",
        DataConversionWarning,
        stacklevel=5,
    )


def _of_length(values: npt.NDArray[Any], n_rows: int, name: str) -> npt.NDArray[Any]:
    if len(values) != n_rows:
        raise ValueError(f"{name} has {len(values)} values for {n_rows} rows of X: pass one value for each row.")
    return values


def _numbers(values: npt.NDArray[Any], name: str) -> FloatArray:
    """The values as float64; text is read if it spells a number."""
    if values.dtype.kind in "biuf":
        return np.require(values, np.float64, ["C", "A"])
    if values.dtype.kind in "mMc":
        raise TypeError(f"{name} has dtype {values.dtype}: convert it to numbers.")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        row, value = next((row, value) for row, value in enumerate(values.ravel().tolist()) if not _is_number(value))
        raise ValueError(f"{name} holds {value!r} in row {row}, which is not a number.") from None


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _require_finite(values: FloatArray, name: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        found = "NaN" if np.isnan(values[row]) else "an infinite value"
        raise ValueError(f"{name} holds {found} in row {row}: remove the row or give it a finite value.")
