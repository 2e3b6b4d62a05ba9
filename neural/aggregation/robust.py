"""Aggregates of updates that a few hostile ones cannot move far: functions of a table with an update in each row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.model import FloatArray

# (updates, how many of them may be hostile) -> one update
RobustAggregate = Callable[[FloatArray, int], FloatArray]


def krum_scores(updates: FloatArray, n_hostile: int) -> npt.NDArray[np.float64]:
    """For each update the sum of the squared distances to its n - n_hostile - 2 nearest others (Blanchard 2017)."""
    n_updates = len(updates)
    if n_updates < 2 * n_hostile + 3:
        raise ValueError(
            f"krum needs at least 2 * {n_hostile} + 3 updates to outvote {n_hostile} hostile ones, got {n_updates}: "
            "lower hostile_fraction or let more clients take part"
        )
    # Distances are taken around the mean: the squares of the updates themselves would swallow small differences.
    centred = updates.astype(np.float64) - updates.mean(axis=0, dtype=np.float64)
    products = centred @ centred.T
    squares = np.diag(products)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2.0 * products, 0.0)
    np.fill_diagonal(distances, np.inf)
    n_near = n_updates - n_hostile - 2
    return np.partition(distances, n_near - 1, axis=1)[:, :n_near].sum(axis=1)


def krum(updates: FloatArray, n_hostile: int) -> FloatArray:
    """The one update that has the nearest company."""
    return updates[int(np.argmin(krum_scores(updates, n_hostile)))].copy()


def multi_krum(updates: FloatArray, n_hostile: int) -> FloatArray:
    """The mean of the n - n_hostile - 2 updates with the nearest company."""
    scores = krum_scores(updates, n_hostile)
    chosen = np.sort(np.argsort(scores, kind="stable")[: len(updates) - n_hostile - 2])
    return updates[chosen].mean(axis=0, dtype=np.float64).astype(updates.dtype)


def trimmed_mean(updates: FloatArray, n_hostile: int) -> FloatArray:
    """For each value the mean without the n_hostile largest and smallest."""
    if len(updates) <= 2 * n_hostile:
        raise ValueError(
            f"trimmed_mean leaves nothing of {len(updates)} updates without {n_hostile} at either end: "
            "lower hostile_fraction or let more clients take part"
        )
    ordered = np.sort(updates, axis=0)[n_hostile : len(updates) - n_hostile]
    return ordered.mean(axis=0, dtype=np.float64).astype(updates.dtype)


def median(updates: FloatArray, n_hostile: int) -> FloatArray:
    """For each value the median; any number of hostile updates below a half is outvoted."""
    if len(updates) <= 2 * n_hostile:
        raise ValueError(f"the median of {len(updates)} updates cannot outvote {n_hostile} hostile ones")
    return np.median(updates, axis=0).astype(updates.dtype)


ROBUST_AGGREGATES: dict[str, RobustAggregate] = {
    "krum": krum,
    "multi_krum": multi_krum,
    "trimmed_mean": trimmed_mean,
    "median": median,
}
