"""From grown nodes over bins to a `Tree` over values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.kernels.tree_description import describe_splits
from dmlgbm.gbdt.model.tree import Tree

# In the order in which the kernel takes them.
SPLIT_ARRAYS: dict[str, type[np.generic]] = {
    "feature": np.int32,
    "threshold": np.float64,
    "missing_left": np.uint8,
    "categorical": np.uint8,
    "left": np.int32,
    "right": np.int32,
    "gain": np.float64,
    "count": np.int64,
}


def tree_over_values(
    grown: GrownTree,
    dataset: Dataset,
    gain_unit: float,
    leaf_value: npt.NDArray[np.float64],
    leaf_weight: npt.NDArray[np.float64],
) -> Tree:
    """The tree with thresholds and categories instead of bins; nodes are numbered in the order of splitting."""
    n_splits = len(grown.splits)
    category_start = np.empty(n_splits + 1, np.int32)
    codes = np.empty(n_splits * grown.categories.shape[1], np.int32)
    leaf_count = np.empty(len(grown.leaves), np.int64)
    of_splits: dict[str, Any] = {name: np.empty(n_splits, dtype) for name, dtype in SPLIT_ARRAYS.items()}
    n_codes = describe_splits(
        grown.nodes, grown.categories, grown.splits, grown.leaves, dataset.plan.layout, dataset.plan.features,
        dataset.bounds, dataset.first_bounds, gain_unit, np.empty(len(grown.nodes), np.int32),
        category_start, codes, leaf_count, *of_splits.values(),
    )  # fmt: skip
    return Tree(
        **of_splits,
        category_start=category_start,
        categories=codes[:n_codes].copy(),
        leaf_value=leaf_value,
        leaf_count=leaf_count,
        leaf_weight=leaf_weight,
    )


def is_chance(grown: GrownTree, gain_unit: float, least_gain: float) -> bool:
    """Whether the first split gains too little to be believed."""
    return len(grown.splits) > 0 and float(grown.nodes["gain"][grown.splits[0]]) * gain_unit < least_gain


def tree_without_splits(grown: GrownTree, leaf_weight: npt.NDArray[np.float64]) -> Tree:
    """A tree in place of a grown one that adds nothing to any score."""
    none: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in SPLIT_ARRAYS.items()}
    return Tree(
        **none,
        category_start=np.zeros(1, np.int32),
        categories=np.empty(0, np.int32),
        leaf_value=np.zeros(1),
        leaf_count=np.array([grown.nodes["count"][grown.splits[0]]], np.int64),
        leaf_weight=np.array([leaf_weight.sum()]),
    )
