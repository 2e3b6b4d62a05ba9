"""Other forms of a data set: float arrays instead of frames, a few rows to warm up with, many times the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import scipy.sparse

from benchmarks.datasets import Array, Dataset, Features, Split, take_rows

WARM_UP_ROWS = 5_000
# So small that it moves hardly any row across a cut between bins, so large that no two cells are the same number.
JITTER = 1e-6


def as_arrays(dataset: Dataset) -> Dataset:
    """Numbers as float64 in row-major order, categories as their numbers, what is missing as NaN."""
    return replace(dataset, train=_array_split(dataset.train), test=_array_split(dataset.test))


def _array_split(split: Split) -> Split:
    features = split.features
    if not isinstance(features, pd.DataFrame):
        return split
    cells = np.empty(features.shape, np.float64)
    for position, (_, column) in enumerate(features.items()):
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes = column.cat.codes.to_numpy()
            cells[:, position] = np.where(codes < 0, np.nan, codes)
        else:
            cells[:, position] = column.to_numpy(np.float64, na_value=np.nan)
    return replace(split, features=cells)


def warm_up_rows(split: Split) -> Split:
    """A few rows from all over the table, so that every class is among them."""
    n_rows = split.features.shape[0]
    chosen = np.zeros(n_rows, bool)
    chosen[:: max(1, n_rows // WARM_UP_ROWS)] = True
    return take_rows(split, chosen)


def repeat_rows(split: Split, copies: int) -> Split:
    """The rows so many times; numbers that are not whole differ a little from copy to copy, queries stay apart."""
    if copies == 1:
        return split
    target = np.tile(split.target, copies)
    repeated = replace(split, features=_repeat_features(split.features, copies), target=target)
    if split.weight is not None:
        repeated = replace(repeated, weight=np.tile(split.weight, copies))
    if split.query is not None:
        apart = int(split.query.max()) + 1
        repeated = replace(repeated, query=np.concatenate([split.query + copy * apart for copy in range(copies)]))
    return repeated


def _repeat_features(features: Features, copies: int) -> Features:
    if isinstance(features, pd.DataFrame):
        repeated = pd.concat([features] * copies, ignore_index=True)
        for name, column in repeated.items():
            if pd.api.types.is_float_dtype(column.dtype):
                repeated[name] = _shake(column.to_numpy(np.float64, na_value=np.nan))
        return repeated
    if isinstance(features, np.ndarray):
        repeated_cells = np.tile(features, (copies, 1))
        for position in range(features.shape[1]):
            repeated_cells[:, position] = _shake(repeated_cells[:, position])
        return repeated_cells
    return scipy.sparse.csr_matrix(scipy.sparse.vstack([features] * copies, format="csr"))


def _shake(cells: Array) -> Array:
    """The cells with a little noise, unless they are whole numbers: counts, flags and numbers of categories."""
    known = cells[~np.isnan(cells)]
    if (known == np.rint(known)).all():
        return cells
    generator = np.random.default_rng(len(cells))
    return cells + JITTER * known.std() * generator.standard_normal(len(cells))
