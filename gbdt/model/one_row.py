"""One row at a time: a model with everything resolved beforehand that does not depend on the row.

The one idea: reading a table means to find out what its columns are, and for a single row that takes a hundred times
as long as walking the trees. Here the columns are known, so that a call picks the values out of the row, looks
categories up in a dictionary and calls one kernel. Nothing is shared between calls, so any number of threads may call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.feature_bins import MAX_CATEGORIES
from dmlgbm.gbdt.kernels.compiler import for_types_of
from dmlgbm.gbdt.kernels.one_row import (
    LINK_CLASSES,
    LINK_EXPONENTIAL,
    LINK_NONE,
    LINK_ONE_VS_ALL,
    LINK_SIGMOID,
    LINK_TWO_CLASSES,
    WalkedTrees,
    predict_row,
)

Link = Literal["none", "exponential", "sigmoid", "classes", "one_vs_all"]
ReadNumber = Callable[[object, str], float]
ReadCategory = Callable[[object, int], int]
_Getter = Callable[[Any], Sequence[Any]]

_MISSING = 0.0  # as a value of a slot with categories


class RowReader:
    """Turns a row into the values of a forest's slots: those of numbers first, then those of categories.

    `read_number` and `read_category` are asked about values that are neither a plain number nor a known category; the
    latter returns a category's number, or -1 for a missing one.
    """

    def __init__(self, columns: Columns, read_number: ReadNumber, read_category: ReadCategory) -> None:
        categories = columns.categories
        self._numeric = [feature for feature, known in enumerate(categories) if known is None]
        self._categorical = [feature for feature, known in enumerate(categories) if known is not None]
        self._names = columns.names
        self._n_features = columns.n_features
        self._read_number, self._read_category = read_number, read_category
        self._values_of = [_slot_values(known) for known in categories if known is not None]
        self._pack = struct.Struct(f"{len(categories)}d").pack
        self._numbers_at, self._categories_at = _getter(self._numeric), _getter(self._categorical)
        if columns.names is not None:
            self._numbers_named = _getter([columns.names[feature] for feature in self._numeric])
            self._categories_named = _getter([columns.names[feature] for feature in self._categorical])

    @property
    def features(self) -> list[int]:
        """The feature of each slot."""
        return self._numeric + self._categorical

    def read(self, row: Any) -> npt.NDArray[np.float64]:
        """The values of the slots for a mapping from names to values, or a sequence or array of values."""
        if hasattr(row, "keys"):
            numbers, categories = self._by_name(row)
        else:
            if len(row) != self._n_features:
                raise ValueError(
                    f"the row has {len(row)} values, but the model was fitted on {self._n_features} columns."
                )
            if isinstance(row, np.ndarray):
                row = row.tolist()
            numbers, categories = self._numbers_at(row), self._categories_at(row)
        slots = self._slots_of(categories) if self._categorical else ()
        try:
            packed = self._pack(*numbers, *slots)
        except (struct.error, TypeError, OverflowError):
            packed = self._pack(*map(self._number, numbers, self._numeric), *slots)
        return np.frombuffer(packed)

    def _by_name(self, row: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        if self._names is None:
            raise ValueError("the model was fitted without column names: pass the values of a row in their order.")
        try:
            return self._numbers_named(row), self._categories_named(row)
        except KeyError as error:
            absent = next((name for name in self._names if name not in row.keys()), None)  # noqa: SIM118
            if absent is None:
                raise
            raise KeyError(f"the row has no value for the column {absent!r}.") from error

    def _slots_of(self, categories: Sequence[Any]) -> list[float]:
        try:
            slots = [values.get(value) for values, value in zip(self._values_of, categories, strict=True)]
        except TypeError:  # unhashable
            slots = [None] * len(self._values_of)
        if None in slots:
            return [
                self._slot(value, feature) if slot is None else slot
                for slot, value, feature in zip(slots, categories, self._categorical, strict=True)
            ]
        return slots  # type: ignore[return-value]

    def _slot(self, value: object, feature: int) -> float:
        number = self._read_category(value, feature)
        return number + 1.0 if 0 <= number < MAX_CATEGORIES else _MISSING

    def _number(self, value: object, feature: int) -> float:
        if isinstance(value, float | int):
            return float(value)
        return self._read_number(value, str(feature) if self._names is None else repr(self._names[feature]))


class OneRow:
    """Predicts one row a call: a number, or the probabilities of classes."""

    def __init__(self, reader: RowReader, trees: WalkedTrees, link: Link) -> None:
        n_outputs = len(trees.base_scores)
        self._reader = reader
        self._trees = trees
        self._link, self._n_results = {
            "none": (LINK_NONE, n_outputs),
            "exponential": (LINK_EXPONENTIAL, n_outputs),
            "sigmoid": (LINK_SIGMOID, n_outputs),
            "one_vs_all": (LINK_ONE_VS_ALL, n_outputs),
            "classes": (LINK_CLASSES, n_outputs) if n_outputs > 1 else (LINK_TWO_CLASSES, 2),
        }[link]
        self._is_number = self._n_results == 1
        example = np.frombuffer(bytes(8 * len(reader.features))), self._link, np.empty(self._n_results)
        self._predict = for_types_of(predict_row, trees, *example)

    def __call__(self, row: Any) -> Any:
        """What `predict` (of a classifier `predict_proba`) gives for the row, to the same bits."""
        prediction = np.empty(self._n_results)
        self._predict(self._trees, self._reader.read(row), self._link, prediction)
        return prediction.item() if self._is_number else prediction


def _getter(keys: Sequence[Any]) -> _Getter:
    """What picks the values at all keys out of a row, in their order."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda row: [row[key] for key in keys]


def _slot_values(known: Sequence[object]) -> dict[object, float]:
    """Of each category, the value that its slot has; beyond the most that are told apart it counts as missing."""
    return {category: code + 1.0 if code < MAX_CATEGORIES else _MISSING for code, category in enumerate(known)}
