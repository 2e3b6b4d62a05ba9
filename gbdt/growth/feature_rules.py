"""What the user asks of the splits at single features, for the features that trees may use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.growth.grown_tree import GrownTree, LeafSteps
from dmlgbm.gbdt.kernels.layout import (
    BOUNDS_IN_THE_MIDDLE,
    BOUNDS_OF_THE_OTHER,
    FEATURE_RULES,
    NO_BOUNDS,
    NO_FEATURE_RULES,
    RecordArray,
)
from dmlgbm.gbdt.kernels.output_bounds import put_in_order
from dmlgbm.gbdt.parameters import TrainParameters


def feature_rules(parameters: TrainParameters, features: npt.NDArray[np.int64]) -> RecordArray:
    """The rules of features, given by their numbers in the original table; nothing where there are none."""
    if parameters.monotone_constraints is None:
        return NO_FEATURE_RULES
    rules = np.zeros(len(features), FEATURE_RULES)
    rules["direction"] = np.array(parameters.monotone_constraints, np.int64)[features]
    return rules


def kind_of_bounds(parameters: TrainParameters) -> int:
    """How a split at a constrained feature bounds its children."""
    if parameters.monotone_constraints is None:
        return NO_BOUNDS
    return BOUNDS_IN_THE_MIDDLE if parameters.monotone_constraints_method == "basic" else BOUNDS_OF_THE_OTHER


def steps_in_order(grown: GrownTree, steps: LeafSteps, l2: float) -> LeafSteps:
    """The steps with the least change that puts them in the order of all constraints."""
    values, ranges = steps.values.copy(), np.zeros((len(grown.nodes), 2), np.int64)
    put_in_order(grown.tree, grown.splits, grown.leaves, values, steps.hessians + l2, ranges)
    return LeafSteps(values, steps.hessians)
