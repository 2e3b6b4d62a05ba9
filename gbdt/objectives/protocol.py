"""What the training loop may ask of an objective."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SingleArray = npt.NDArray[np.float32]

# Kernels take an array in any case, so that each is compiled once: an empty one stands for "no weights".
NO_WEIGHT: FloatArray = np.empty(0)


class Objective(Protocol):
    """A loss over the rows of one data set, which it holds with their targets and weights."""

    @property
    def name(self) -> str:
        """The name in `objective=...`, "custom" for a callable."""

    @property
    def n_outputs(self) -> int:
        """Scores a row has and trees an iteration adds: the classes of "multiclass", otherwise one."""

    @property
    def constant_hessian(self) -> bool:
        """Whether the hessian of every row is 1; `hessians` then has the shape (n_outputs, 0)."""

    @property
    def leaf_percentile(self) -> float | None:
        """The level, if leaf values are a percentile of the residuals instead of a Newton step."""

    def base_scores(self) -> FloatArray:
        """The score of every row before the first tree, for each output; independent of the order of rows."""

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers
    ) -> None:
        """Write the derivatives of the weighted loss at the scores; all arrays are [output, row]."""
