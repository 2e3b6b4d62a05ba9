"""The arrays of one number a row and output that an iteration reads and writes, besides its trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.objectives.protocol import Objective, RowLoss
from dmlgbm.gbdt.parameters import TrainParameters

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowArrays:
    """Scores and derivatives [output, row]."""

    scores: FloatArray
    gradients: npt.NDArray[np.float32]
    hessians: npt.NDArray[np.float32]  # no rows where every hessian is 1
    loss: RowLoss | None  # None: kernels that pass over the rows cannot compute the derivatives


def row_arrays(loss: Objective, scores: FloatArray, parameters: TrainParameters) -> RowArrays:
    """Room for the derivatives of a loss at these scores."""
    # Rows that are weighed anew have hessians of their own.
    is_constant = loss.constant_hessian and not parameters.weighs_rows
    hessians = np.empty((len(scores), 0 if is_constant else scores.shape[1]), np.float32)
    # In other modes more happens to scores or derivatives between two trees than kernels know of.
    is_plain = parameters.boosting_type == "gbdt" and not parameters.weighs_rows
    return RowArrays(scores, np.empty(scores.shape, np.float32), hessians, loss.row_loss() if is_plain else None)
