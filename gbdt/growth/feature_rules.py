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
    NO_GROUPS,
    RecordArray,
)
from dmlgbm.gbdt.kernels.output_bounds import put_in_order
from dmlgbm.gbdt.parameters import TrainParameters

_BITS = 64


def rules_of_features(
    parameters: TrainParameters, features: npt.NDArray[np.int64], n_nodes: int
) -> tuple[RecordArray, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """What `TreeNodes` hold of features, given by their numbers in the original table."""
    return single_rules(parameters, features), *groups_of(parameters, features, n_nodes)


def single_rules(parameters: TrainParameters, features: npt.NDArray[np.int64]) -> RecordArray:
    """The rules of single features, or nothing where nobody looks at any."""
    if not compares_gains(parameters):
        return NO_FEATURE_RULES
    rules = np.zeros(len(features), FEATURE_RULES)
    rules["gain_factor"] = 1.0
    if parameters.monotone_constraints is not None:
        rules["direction"] = np.array(parameters.monotone_constraints, np.int64)[features]
    if parameters.feature_contri is not None:
        rules["gain_factor"] = np.array(parameters.feature_contri)[features]
    return rules


def groups_of(
    parameters: TrainParameters, features: npt.NDArray[np.int64], n_nodes: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The groups [node, word] of a tree's nodes, of which the root is in all, and those [feature, word] of features."""
    groups = parameters.interaction_constraints
    if groups is None:
        return NO_GROUPS, NO_GROUPS
    members = np.concatenate([np.asarray(group, np.int64) for group in groups])
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    is_kept = np.isin(members, features)
    members, owners = np.searchsorted(features, members[is_kept]), owners[is_kept]
    n_words = -(-len(groups) // _BITS)
    of_features, of_nodes = np.zeros((len(features), n_words), np.uint64), np.zeros((n_nodes, n_words), np.uint64)
    np.bitwise_or.at(of_features, (members, owners // _BITS), np.uint64(1) << (owners % _BITS).astype(np.uint64))
    of_nodes[0] = ~np.uint64(0)
    return of_nodes, of_features


def changes_steps(parameters: TrainParameters) -> bool:
    """Whether what finished leaves give out is more than their steps."""
    return parameters.monotone_constraints is not None or parameters.path_smooth > 0.0


def compares_gains(parameters: TrainParameters) -> bool:
    """Whether splits are compared by gains, because scores do not tell what they are worth."""
    return changes_steps(parameters) or parameters.feature_contri is not None


def kind_of_bounds(parameters: TrainParameters) -> int:
    """How a split at a constrained feature bounds its children."""
    if parameters.monotone_constraints is None:
        return NO_BOUNDS
    return BOUNDS_IN_THE_MIDDLE if parameters.monotone_constraints_method == "basic" else BOUNDS_OF_THE_OTHER


def smoothed_steps(
    grown: GrownTree, steps: LeafSteps, path_smooth: float, output_unit: float, rate: float, largest_step: float
) -> LeafSteps:
    """The steps drawn to what the leaves' parents would give out, which is in units of the tree."""
    leaves = grown.nodes[grown.leaves]
    counts = np.maximum(leaves["count"], 1)  # a bag may be empty
    own_share = counts / (counts + np.where(leaves["depth"] > 0, path_smooth, 0.0))
    of_parents = rate * output_unit * leaves["parent_output"]
    values = steps.values * own_share + of_parents * (1.0 - own_share)
    return LeafSteps(np.clip(values, -rate * largest_step, rate * largest_step), steps.hessians)


def steps_in_order(grown: GrownTree, steps: LeafSteps, l2: float) -> LeafSteps:
    """The steps with the least change that puts them in the order of all constraints."""
    values, ranges = steps.values.copy(), np.zeros((len(grown.nodes), 2), np.int64)
    put_in_order(grown.tree, grown.splits, grown.leaves, values, steps.hessians + l2, ranges)
    return LeafSteps(values, steps.hessians)
