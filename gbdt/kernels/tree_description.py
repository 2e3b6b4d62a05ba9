"""From grown nodes over bins to the arrays of a tree over values, in one call: the arrays are many and short."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.layout import RecordArray, TreeNodes


class BinMeanings(NamedTuple):
    """What the features and bins of a binned table are in the original one."""

    layout: RecordArray  # FEATURE
    features: npt.NDArray[np.int64]  # their numbers in the original table
    bounds: npt.NDArray[np.float64]  # upper bounds of the value bins of all features, one after the other
    first_bounds: npt.NDArray[np.int64]  # where those of each feature begin


class TreeArrays(NamedTuple):
    """A tree over values as `model.tree.Tree` has it, but for the values and weights of its leaves."""

    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    missing_left: npt.NDArray[np.uint8]
    categorical: npt.NDArray[np.uint8]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    gain: npt.NDArray[np.float64]
    count: npt.NDArray[np.int64]
    category_start: npt.NDArray[np.int32]
    categories: npt.NDArray[np.int32]  # room for those of all splits
    leaf_count: npt.NDArray[np.int64]


@inlined
def insert_in_order(codes: npt.NDArray[np.int32], first: int, end: int, code: int) -> None:
    """Put a code among the ascending ones in codes[first:end]."""
    position = end
    while position > first and codes[position - 1] > code:
        codes[position] = codes[position - 1]
        position -= 1
    codes[position] = code


@kernel
def list_leaves(
    nodes: RecordArray,
    splits: npt.NDArray[np.int64],
    is_split: npt.NDArray[np.uint8],
    waiting: npt.NDArray[np.int64],
    leaves: npt.NDArray[np.int64],
) -> None:
    """The leaves that these splits leave, from left to right: down to the left, right children wait."""
    for k in range(splits.size):
        is_split[splits[k]] = 1
    n_waiting, n_leaves, node = 0, 0, np.int64(0)
    while n_leaves < leaves.size:
        if is_split[node] == 1:
            waiting[n_waiting] = nodes[node].left + 1
            n_waiting += 1
            node = nodes[node].left
        else:
            leaves[n_leaves] = node
            n_leaves += 1
            n_waiting -= 1
            node = waiting[max(n_waiting, 0)]


@kernel
def describe_splits(
    tree: TreeNodes,
    splits: npt.NDArray[np.int64],
    leaves: npt.NDArray[np.int64],
    meanings: BinMeanings,
    gain_unit: float,
    number: npt.NDArray[np.int32],
    described: TreeArrays,
) -> int:
    """Fill the arrays of the splits, numbered in the order they were made; return how many category codes there are.

    The threshold is the largest value that goes left: the upper bound of the last bin on the left (0 for categories).
    Missing values of a categorical split go where their bin goes; the bin itself is no category.
    """
    nodes, chosen_bins = tree.nodes, tree.categories
    category_start = described.category_start
    for k in range(splits.size):
        number[splits[k]] = k
    for k in range(leaves.size):
        number[leaves[k]] = ~k
        described.leaf_count[k] = nodes[leaves[k]].count
    n_codes = np.int64(0)
    category_start[0] = 0
    for k in range(splits.size):
        node = splits[k]
        stored, last_left = nodes[node].feature, nodes[node].bin
        described.feature[k], described.count[k] = meanings.features[stored], nodes[node].count
        described.gain[k] = nodes[node].gain * gain_unit
        described.left[k], described.right[k] = number[nodes[node].left], number[nodes[node].left + 1]
        described.categorical[k] = 1 if last_left < 0 else 0
        described.threshold[k], described.missing_left[k] = 0.0, 0
        if last_left >= 0:
            described.threshold[k] = meanings.bounds[meanings.first_bounds[stored] + last_left]
            described.missing_left[k] = nodes[node].missing_left
        else:
            for position in range(nodes[node].n_categories):
                code = chosen_bins[node, position]
                if code == meanings.layout[stored].missing_bin:
                    described.missing_left[k] = 1
                else:
                    insert_in_order(described.categories, np.int64(category_start[k]), n_codes, code)
                    n_codes += 1
        category_start[k + 1] = n_codes
    return n_codes
