"""Rows for the commands that bring their own data: the same numbers on every machine, without a random generator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import random_bits


class Rows(NamedTuple):
    """Features and a number to predict from them."""

    features: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]


def generated_rows(n_rows: int, n_features: int, first_row: int = 0) -> Rows:
    """Features between -1 and 1; the target needs an interaction and a threshold of the first ones, and is noisy."""
    # One column more than asked for: the noise.
    first = first_row * (n_features + 1)
    hashed = random_bits(0, np.arange(first, first + n_rows * (n_features + 1), dtype=np.uint64))
    uniform = (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    values = uniform.reshape(n_rows, n_features + 1)
    features, noise = np.ascontiguousarray(values[:, :-1]), values[:, -1]
    a, b, c = (features[:, column % n_features] for column in range(3))
    return Rows(features, 2.0 * a * b + np.where(c > 0.2, 0.5, -0.3) + 0.5 * noise)
