"""From grown nodes over bins to a `Tree` over values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.kernels.tree_description import BinMeanings, TreeArrays, describe_splits
from dmlgbm.gbdt.model.tree import Tree


def tree_over_values(
    grown: GrownTree,
    dataset: Dataset,
    gain_unit: float,
    leaf_value: npt.NDArray[np.float64],
    leaf_weight: npt.NDArray[np.float64],
) -> Tree:
    """The tree with thresholds and categories instead of bins; nodes are numbered in the order of splitting."""
    n_splits = len(grown.splits)
    described = TreeArrays(
        feature=np.empty(n_splits, np.int32),
        threshold=np.empty(n_splits, np.float64),
        missing_left=np.empty(n_splits, np.uint8),
        categorical=np.empty(n_splits, np.uint8),
        left=np.empty(n_splits, np.int32),
        right=np.empty(n_splits, np.int32),
        gain=np.empty(n_splits, np.float64),
        count=np.empty(n_splits, np.int64),
        category_start=np.empty(n_splits + 1, np.int32),
        categories=np.empty(n_splits * grown.tree.categories.shape[1], np.int32),
        leaf_count=np.empty(len(grown.leaves), np.int64),
    )
    meanings = BinMeanings(dataset.plan.layout, dataset.plan.features, dataset.bounds, dataset.first_bounds)
    number = np.empty(len(grown.nodes), np.int32)
    n_codes = describe_splits(grown.tree, grown.splits, grown.leaves, meanings, gain_unit, number, described)
    described = described._replace(categories=described.categories[:n_codes].copy())
    return Tree(**described._asdict(), leaf_value=leaf_value, leaf_weight=leaf_weight)
