"""Class labels: any sortable values in, the class numbers 0, 1, ... out for the engine; and the weights of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.sklearn_api.parameters.values import is_number
from dmlgbm.sklearn_api.rows.targets import FloatArray, one_for_each_row

Labels = npt.NDArray[Any]

# Up to this many values between the smallest and the largest label, counting beats sorting.
_LOOKUP_RANGE = 1 << 16
_LABELS_IN_MESSAGES = 5


def encoded_labels(y: Any, n_rows: int) -> tuple[Labels, FloatArray]:
    """The sorted distinct labels, at least two of them, and the number of each row's label."""
    labels = label_vector(y, n_rows)
    classes, numbers = distinct_labels(labels)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only, {_shown(classes)}: a classifier needs at least two classes.")
    return classes, numbers.astype(np.float64)


def numbers_of_known_labels(y: Any, n_rows: int, classes: Labels, name: str) -> FloatArray:
    """The class numbers of labels that must be among `classes`."""
    present, numbers = distinct_labels(label_vector(y, n_rows, name))
    number_of = {label: number for number, label in enumerate(classes.tolist())}
    unknown = [label for label in present.tolist() if label not in number_of]
    if unknown:
        raise ValueError(
            f"{name} holds the class {unknown[0]!r}, which is none of those that are learnt: {_shown(classes)}."
        )
    return np.array([number_of[label] for label in present.tolist()], np.float64)[numbers]


def label_vector(y: Any, n_rows: int, name: str = "y") -> Labels:
    """One label for each row: no missing value, no fraction."""
    labels = one_for_each_row(y, n_rows, name)
    kind = labels.dtype.kind
    if kind == "f":
        _check_float_labels(labels, name)
    elif kind == "O":
        _check_object_labels(labels, name)
    elif kind not in "biuU":
        if kind != "T":
            raise ValueError(f"Unknown label type: {name} has dtype {labels.dtype}; use strings or whole numbers.")
        labels = labels.astype(object)
    return labels


def class_weights(
    class_weight: Any, classes: Labels, numbers: FloatArray, weight: FloatArray | None
) -> FloatArray | None:
    """The weight of each row, times that of its class."""
    counts = np.bincount(numbers.astype(np.intp), minlength=len(classes))
    of_class = weights_of_classes(class_weight, classes, counts)
    if of_class is None:
        return weight
    of_row = of_class[numbers.astype(np.intp)]
    return of_row if weight is None else weight * of_row


def weights_of_classes(class_weight: Any, classes: Labels, counts: npt.NDArray[np.integer]) -> FloatArray | None:
    """The weight of each class, which has this many rows; None where all weigh the same."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        # A class may have no row left: all of its rows weigh nothing.
        return counts.sum() / (len(classes) * np.maximum(counts, 1))
    if isinstance(class_weight, Mapping):
        return _listed_weights(class_weight, classes)
    raise ValueError(f'class_weight must be None, "balanced" or a dictionary of class to weight, got {class_weight!r}.')


def require_two_weighted_classes(classes: Labels, numbers: FloatArray, weight: FloatArray | None) -> None:
    """A class all of whose rows weigh nothing is as good as absent."""
    if weight is not None:
        counts = np.bincount(numbers[weight > 0].astype(np.intp), minlength=len(classes))
        require_weighted_classes(classes, counts > 0)


def require_weighted_classes(classes: Labels, present: npt.NDArray[np.bool_]) -> None:
    """Whether two classes at least have a row that weighs something."""
    if present.sum() < 2:
        raise ValueError(
            f"Only one class, {_shown(classes[present])}, has a row whose weight is above zero: a classifier needs at "
            "least two classes."
        )


def _listed_weights(class_weight: Mapping[Any, Any], classes: Labels) -> FloatArray:
    known = classes.tolist()
    weights = np.ones(len(classes))
    for label, value in class_weight.items():
        if label not in known:
            raise ValueError(
                f"class_weight lists {label!r}, which is not a class of y: its classes are {_shown(classes)}."
            )
        if not is_number(value) or not 0 <= value < np.inf:
            raise ValueError(f"class_weight of {label!r} must be a finite number of at least zero, got {value!r}.")
        weights[known.index(label)] = value
    if not weights.any():
        raise ValueError("class_weight is zero for every class: give at least two classes a weight above zero.")
    return weights


def _check_float_labels(labels: Labels, name: str) -> None:
    finite = np.isfinite(labels)
    if not finite.all():
        row = int(np.argmin(finite))
        found = "NaN" if np.isnan(labels[row]) else "an infinite label"
        raise ValueError(f"{name} holds {found} in row {row}: remove the row or give it a class.")
    fraction = labels != np.floor(labels)
    if fraction.any():
        row = int(np.argmax(fraction))
        raise ValueError(
            f"Unknown label type: {name} is continuous (row {row} holds {labels[row]:g}): classes are strings, "
            "booleans or whole numbers; use a regressor for a continuous target."
        )


def _check_object_labels(labels: Labels, name: str) -> None:
    values = labels.tolist()
    kinds = {str if isinstance(value, str) else type(value) for value in values}
    if kinds == {str}:
        return
    for row, value in enumerate(values):
        # NaN, NaT and pandas' NA do not equal themselves.
        if value is None or not (isinstance(value, str) or value is True or _equals_itself(value)):
            raise ValueError(f"{name} is missing in row {row} ({value!r}): remove the row or give it a class.")
    if str in kinds:
        row = next(row for row, value in enumerate(values) if isinstance(value, str) != isinstance(values[0], str))
        raise ValueError(
            f"Unknown label type: {name} mixes strings and other values (row 0 holds {values[0]!r}, row {row} "
            f"{values[row]!r}): convert all of them to strings."
        )
    if all(isinstance(value, float | np.floating) for value in values):
        _check_float_labels(labels.astype(np.float64), name)


def _equals_itself(value: object) -> bool:
    try:
        return bool(value == value)
    except (TypeError, ValueError):
        return False


def distinct_labels(labels: Labels) -> tuple[Labels, npt.NDArray[np.intp]]:
    """Sorted distinct labels and each row's position among them."""
    if labels.dtype.kind == "O":
        return _factorised_objects(labels)
    if labels.dtype.kind in "biuf" and _range_of(labels) < _LOOKUP_RANGE:
        as_integers = labels.astype(np.int64)
        offsets = as_integers - as_integers.min()
        seen = np.zeros(int(offsets.max()) + 1, np.bool_)
        seen[offsets] = True
        label_at = np.empty(len(seen), labels.dtype)
        label_at[offsets] = labels
        return label_at[seen], (np.cumsum(seen) - 1)[offsets]
    return np.unique(labels, return_inverse=True)


def _range_of(labels: Labels) -> float:
    """Largest minus smallest label; infinite where int64 does not hold them."""
    smallest, largest = float(labels.min()), float(labels.max())
    return largest - smallest if max(-smallest, largest) < 2.0**62 else np.inf


def _factorised_objects(labels: Labels) -> tuple[Labels, npt.NDArray[np.intp]]:
    values = labels.tolist()
    try:
        distinct = sorted(set(values))
    except TypeError as error:
        raise ValueError(f"Unknown label type: the classes of y cannot be put in order ({error}).") from None
    number_of = {value: number for number, value in enumerate(distinct)}
    classes = np.empty(len(distinct), object)
    classes[:] = distinct
    return classes, np.fromiter(map(number_of.__getitem__, values), np.intp, len(values))


def _shown(classes: Labels) -> str:
    shown = ", ".join(repr(label) for label in classes.tolist()[:_LABELS_IN_MESSAGES])
    n_left_out = len(classes) - _LABELS_IN_MESSAGES
    return f"{shown} and {n_left_out} more" if n_left_out > 0 else shown
