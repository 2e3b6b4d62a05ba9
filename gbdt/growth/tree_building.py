"""From grown nodes over bins to a `Tree` over values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.grown_tree import GrownTree, LeafSteps
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.tree_description import BinMeanings, TreeArrays, describe_splits
from dmlgbm.gbdt.model.tree import Tree


def tree_over_values(
    grown: GrownTree,
    dataset: Dataset,
    gain_unit: float,
    steps: LeafSteps,
) -> Tree:
    """The tree with thresholds and categories instead of bins; nodes are numbered in the order of splitting."""
    n_splits = len(grown.splits)
    described = _empty_arrays(n_splits, len(grown.leaves), n_splits * grown.tree.categories.shape[1])
    meanings = BinMeanings(dataset.plan.layout, dataset.plan.features, dataset.bounds, dataset.first_bounds)
    number = np.empty(len(grown.nodes), np.int32)
    n_codes = describe_splits(grown.tree, grown.splits, grown.leaves, meanings, gain_unit, number, described)
    described = described._replace(categories=described.categories[:n_codes].copy())
    return Tree(**described._asdict(), leaf_value=steps.values, leaf_weight=steps.hessians)


def is_chance(grown: GrownTree, steps: RecordArray) -> bool:
    """Whether the first split gains too little to be believed."""
    return len(grown.splits) > 0 and bool(grown.nodes["gain"][grown.splits[0]] < steps["least_root_gain"][0])


def tree_without_splits(grown: GrownTree, leaf_weight: npt.NDArray[np.float64]) -> Tree:
    """A tree in place of a grown one that adds nothing to any score."""
    described = _empty_arrays(0, 1, 0)
    described.category_start[:] = 0
    described.leaf_count[:] = grown.nodes["count"][grown.splits[0]]
    return Tree(**described._asdict(), leaf_value=np.zeros(1), leaf_weight=np.array([leaf_weight.sum()]))


def _empty_arrays(n_splits: int, n_leaves: int, n_codes: int) -> TreeArrays:
    return TreeArrays(
        feature=np.empty(n_splits, np.int32),
        threshold=np.empty(n_splits, np.float64),
        missing_left=np.empty(n_splits, np.uint8),
        categorical=np.empty(n_splits, np.uint8),
        left=np.empty(n_splits, np.int32),
        right=np.empty(n_splits, np.int32),
        gain=np.empty(n_splits, np.float64),
        count=np.empty(n_splits, np.int64),
        category_start=np.empty(n_splits + 1, np.int32),
        categories=np.empty(n_codes, np.int32),
        leaf_count=np.empty(n_leaves, np.int64),
    )
