"""From grown nodes over bins to a `Tree` over values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.dataset import Dataset
from gbdt.grower import GrownTree
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
    codes = {int(k): _category_codes(grown, dataset, splits[k]) for k in np.flatnonzero(nodes["bin"] < 0)}
    lengths = [len(codes[k]) if k in codes else 0 for k in range(len(splits))]
    return Tree(
        feature=dataset.plan.features[nodes["feature"]].astype(np.int32),
        threshold=_thresholds(dataset, nodes),
        missing_left=_missing_left(grown, dataset).astype(np.uint8),
        categorical=(nodes["bin"] < 0).astype(np.uint8),
        left=number[nodes["left"]],
        right=number[nodes["left"] + 1],
        gain=nodes["gain"] * gain_unit,
        count=nodes["count"].copy(),
        category_start=np.cumsum([0, *lengths], dtype=np.int32),
        categories=np.concatenate([np.zeros(0, np.int32), *codes.values()]),
        leaf_value=leaf_value,
        leaf_count=grown.nodes["count"][grown.leaves],
        leaf_weight=leaf_weight,
    )


def _thresholds(dataset: Dataset, nodes: RecordArray) -> npt.NDArray[np.float64]:
    """The largest value that goes left: the upper bound of the last bin on the left (0 for categories)."""
    places = dataset.first_bounds[nodes["feature"]] + nodes["bin"]
    return np.where(nodes["bin"] >= 0, dataset.bounds[places], 0.0)


def _category_codes(grown: GrownTree, dataset: Dataset, node: int) -> npt.NDArray[np.int32]:
    """The categories that go left, ascending, without the bin of missing values."""
    record = grown.nodes[node]
    chosen = np.sort(grown.categories[node, : record["n_categories"]])
    return chosen[chosen != dataset.plan.layout[record["feature"]]["missing_bin"]]


def _missing_left(grown: GrownTree, dataset: Dataset) -> npt.NDArray[np.int64]:
    """Missing values of a categorical split go where their bin goes."""
    nodes = grown.nodes[grown.splits]
    missing_left = nodes["missing_left"].copy()
    for k in np.flatnonzero(nodes["bin"] < 0):
        missing_bin = dataset.plan.layout[nodes["feature"][k]]["missing_bin"]
        chosen = grown.categories[grown.splits[k], : nodes["n_categories"][k]]
        missing_left[k] = int(missing_bin in chosen)
    return missing_left
