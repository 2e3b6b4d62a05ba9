"""What the training loop may ask of an objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ClassArray = npt.NDArray[np.integer[Any]]
SingleArray = npt.NDArray[np.float32]

# The largest step of a leaf for losses of log-odds and log-rates, before the learning rate. Where a probability is far
# off, the hessian is nearly zero and a Newton step enormous: tables with rare classes diverged, to log losses of 20 and
# more (docs/measurements.md, section 15). Smaller steps learn rare classes more slowly.
LARGEST_LOGARITHMIC_STEP = 10.0
NO_LARGEST_STEP = math.inf


@dataclass(frozen=True)
class RareClassLimits:
    """What trees of each output must reach; 0 for all but rare classes."""

    leaf_hessians: FloatArray  # of a leaf, beyond `min_child_weight`
    root_gains: FloatArray  # of a tree's first split


def no_limits(n_outputs: int) -> RareClassLimits:
    """For objectives without classes."""
    return RareClassLimits(np.zeros(n_outputs), np.zeros(n_outputs))


@dataclass(frozen=True)
class RowLoss:
    """A loss that a row's target, weight and score decide."""

    constants: RecordArray  # one LOSS
    target: FloatArray
    weight: FloatArray  # or nothing


@dataclass(frozen=True)
class LeafPercentile:
    """Which percentile of the residuals of its rows a leaf's value is."""

    level: float
    weight: FloatArray | IntArray | None  # of the residuals; integers stand for repeated ones


class Objective(Protocol):
    """A loss over the rows of one data set, which it holds with their targets and weights."""

    @property
    def name(self) -> str:
        """The name in `objective=...`, "custom" for a callable."""

    @property
    def n_outputs(self) -> int:
        """Scores a row has and trees an iteration adds: one, or one for each of several classes."""

    @property
    def weights(self) -> RowWeights:
        """What the rows weigh; `repeats` are not in the derivatives yet."""

    @property
    def constant_hessian(self) -> bool:
        """Whether the hessian of every row, before repeats, is 1; `hessians` then has the shape (n_outputs, 0)."""

    @property
    def leaf_percentile(self) -> LeafPercentile | None:
        """Which one, if leaf values are a percentile of the residuals instead of a Newton step."""

    largest_step: float
    """What a leaf may add to a score at most, before the learning rate; infinite for no limit."""

    def rare_class_limits(self) -> RareClassLimits:
        """What trees of each output must reach: more than 0 for rare classes."""

    def base_scores(self) -> FloatArray:
        """The score of every row before the first tree, for each output; independent of the order of rows."""

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        """Write the derivatives of the loss at the scores, weighted but for repeats; all arrays are [output, row].

        What a loss draws at random is a hash of the key, which each iteration has for itself, and of row numbers.
        """

    def row_loss(self) -> RowLoss | None:
        """The same for kernels that make passes over the rows, where a LOSS can say it."""
