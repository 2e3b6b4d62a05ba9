"""Scores of rows that lie on several ranks: every rank makes sums, the sums are added, and one formula ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.losses import codes_of
from dmlgbm.neural.model import FloatArray, Model
from dmlgbm.neural.shards import RowShard

if TYPE_CHECKING:
    from dmlgbm.collectives import Communicator


def evaluate(model: Model, rows: RowShard, classifies: bool, communicator: Communicator) -> float:
    """Accuracy, or R2 averaged over outputs, of the owned rows of all ranks by weight; equal on every rank."""
    inputs, targets = rows.take(rows.owned)
    outputs = model.outputs(inputs)
    weights = rows.weights_of(rows.owned)
    if weights is None:
        weights = np.ones(len(targets))
    sums = _class_sums(outputs, targets, weights) if classifies else _value_sums(outputs, targets, weights[:, None])
    if communicator.world_size > 1:
        sums = communicator.all_reduce(sums)
    return float(sums[0] / sums[1] if sums[1] else 0.0) if classifies else _r2(sums)


def _class_sums(outputs: FloatArray, targets: Any, weights: FloatArray) -> npt.NDArray[np.float64]:
    return np.array([weights[codes_of(outputs) == targets].sum(), weights.sum()], np.float64)


def _value_sums(outputs: FloatArray, targets: Any, weights: FloatArray) -> npt.NDArray[np.float64]:
    values = targets.astype(np.float64)
    return np.stack(
        [
            (weights * np.square(outputs - values)).sum(axis=0),
            (weights * values).sum(axis=0),
            (weights * np.square(values)).sum(axis=0),
            np.full(values.shape[1], weights.sum(), np.float64),
        ]
    )


def _r2(sums: npt.NDArray[np.float64]) -> float:
    residual, total, squares, count = sums
    spread = squares - total * total / np.where(count > 0, count, 1.0)
    return float(np.mean(1.0 - residual / np.where(spread > 0, spread, 1.0)))
