"""From grown nodes over bins to a `Tree` over values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.dataset import Dataset
from gbdt.grown_tree import GrownTree
from gbdt.kernels.layout import RecordArray
from gbdt.tree import Tree


def tree_over_values(
    grown: GrownTree,
    dataset: Dataset,
    gain_unit: float,
    leaf_value: npt.NDArray[np.float64],
    leaf_weight: npt.NDArray[np.float64],
) -> Tree:
    """The tree with thresholds and categories instead of bins; nodes are numbered in the order of splitting."""
    nodes, splits = grown.nodes[grown.splits], grown.splits
    number = np.zeros(len(grown.nodes), np.int32)
    number[splits] = np.arange(len(splits))
    number[grown.leaves] = ~np.arange(len(grown.leaves))
    codes, lengths, missing_left = _category_sets(grown, dataset, nodes)
    return Tree(
        feature=dataset.plan.features[nodes["feature"]].astype(np.int32),
        threshold=_thresholds(dataset, nodes),
        missing_left=np.where(nodes["bin"] < 0, missing_left, nodes["missing_left"]).astype(np.uint8),
        categorical=(nodes["bin"] < 0).astype(np.uint8),
        left=number[nodes["left"]],
        right=number[nodes["left"] + 1],
        gain=nodes["gain"] * gain_unit,
        count=nodes["count"].copy(),
        category_start=np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        categories=codes,
        leaf_value=leaf_value,
        leaf_count=grown.nodes["count"][grown.leaves],
        leaf_weight=leaf_weight,
    )


def _thresholds(dataset: Dataset, nodes: RecordArray) -> npt.NDArray[np.float64]:
    """The largest value that goes left: the upper bound of the last bin on the left (0 for categories)."""
    places = dataset.first_bounds[nodes["feature"]] + nodes["bin"]
    return np.where(nodes["bin"] >= 0, dataset.bounds[places], 0.0)


def _category_sets(
    grown: GrownTree, dataset: Dataset, nodes: RecordArray
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The categories that go left, ascending, of one split after the other; how many each has; where missing go.

    Missing values of a categorical split go where their bin goes; the bin itself is no category.
    """
    if np.all(nodes["bin"] >= 0):
        return np.empty(0, np.int32), np.zeros(len(nodes), np.int64), np.zeros(len(nodes), bool)
    chosen = grown.categories[grown.splits]
    n_chosen = np.where(nodes["bin"] < 0, nodes["n_categories"], 0)
    is_chosen = np.arange(chosen.shape[1]) < n_chosen[:, None]
    is_missing = is_chosen & (chosen == dataset.plan.layout["missing_bin"][nodes["feature"]][:, None])
    is_category = is_chosen & ~is_missing
    last = np.iinfo(np.int32).max
    ordered = np.sort(np.where(is_category, chosen, last), axis=1)
    return ordered[ordered < last], is_category.sum(axis=1), is_missing.any(axis=1)
