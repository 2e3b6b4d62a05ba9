"""The nodes and leaves of a model as plain values: LightGBM's `dump_model` and `trees_to_dataframe`.

The value of a split is the mean of the leaves below it, weighted by their hessians, as it would be if it were a leaf
(to the bit only where `reg_lambda` and `reg_alpha` are 0).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.model.model_file import FORMAT_VERSION
from dmlgbm.gbdt.model.tree import Tree

# LightGBM's.
_BETWEEN_CATEGORIES = "||"


def dump_of(model: Booster, first_iteration: int, n_iterations: int) -> dict[str, Any]:
    """The model, and the trees of some of its iterations."""
    size = model.n_outputs
    numbers = range(first_iteration * size, (first_iteration + n_iterations) * size)
    names = model.columns.listed_names
    splits = model.feature_importance("split").tolist()
    return {
        "name": "tree",
        "version": f"dmlgbm {FORMAT_VERSION}",
        "num_class": size,
        "num_tree_per_iteration": size,
        "max_feature_idx": model.n_features - 1,
        "objective": model.objective,
        "average_output": model.averages,
        "base_scores": model.base_scores.tolist(),
        "feature_names": names,
        "categories": [None if known is None else list(known) for known in model.categories],
        "tree_info": [_dumped(number, model.trees[number], model.columns) for number in numbers],
        "feature_importances": {name: int(n) for name, n in zip(names, splits, strict=True) if n},
    }


def frame_of(model: Booster) -> Any:
    """A row for each node and leaf: parents before their children, all of the left one before the right one."""
    import pandas as pd

    names = model.columns.listed_names
    rows = [row for number, tree in enumerate(model.trees) for row in _listed(number, tree, model.columns, names)]
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = [
    *("tree_index", "node_depth", "node_index", "left_child", "right_child", "parent_index", "split_feature"),
    *("split_gain", "threshold", "decision_type", "missing_direction", "missing_type", "value", "weight", "count"),
]


def _dumped(number: int, tree: Tree, columns: Columns) -> dict[str, Any]:
    values, weights = _values_and_weights(tree)
    leaves = [
        {"leaf_index": leaf, "leaf_value": value, "leaf_weight": weight, "leaf_count": count}
        for leaf, (value, weight, count) in enumerate(
            zip(tree.leaf_value.tolist(), tree.leaf_weight.tolist(), tree.leaf_count.tolist(), strict=True)
        )
    ]
    nodes: list[dict[str, Any]] = [{} for _ in range(tree.n_nodes)]
    # Children have larger numbers than their parents.
    for node in reversed(range(tree.n_nodes)):
        children = [nodes[child] if child >= 0 else leaves[~child] for child in (tree.left[node], tree.right[node])]
        threshold = _threshold(tree, node, columns)
        nodes[node] = {
            "split_index": node,
            "split_feature": int(tree.feature[node]),
            "split_gain": float(tree.gain[node]),
            # JSON knows no infinity.
            "threshold": threshold if isinstance(threshold, str) else min(threshold, sys.float_info.max),
            "decision_type": "==" if tree.categorical[node] else "<=",
            "default_left": bool(tree.missing_left[node]),
            "missing_type": "NaN",
            "internal_value": float(values[node]),
            "internal_weight": float(weights[node]),
            "internal_count": int(tree.count[node]),
            "left_child": children[0],
            "right_child": children[1],
        }
    return {
        "tree_index": number,
        "num_leaves": tree.n_leaves,
        "num_cat": int(tree.categorical.sum()),
        "tree_structure": nodes[0] if nodes else leaves[0],
    }


def _listed(number: int, tree: Tree, columns: Columns, names: list[str]) -> Iterator[dict[str, Any]]:
    values, weights = _values_and_weights(tree)
    waiting: list[tuple[int, int, str | None]] = [(0 if tree.n_nodes else ~0, 1, None)]
    while waiting:
        child, depth, parent = waiting.pop()
        name = _named(number, child)
        row: dict[str, Any] = {
            "tree_index": number,
            "node_depth": depth,
            "node_index": name,
            "parent_index": parent,
        }
        if child < 0:
            leaf = ~child
            row |= {
                "value": float(tree.leaf_value[leaf]),
                "weight": float(tree.leaf_weight[leaf]),
                "count": int(tree.leaf_count[leaf]),
            }
        else:
            left, right = int(tree.left[child]), int(tree.right[child])
            row |= {
                "left_child": _named(number, left),
                "right_child": _named(number, right),
                "split_feature": names[tree.feature[child]],
                "split_gain": float(tree.gain[child]),
                "threshold": _threshold(tree, child, columns),
                "decision_type": "==" if tree.categorical[child] else "<=",
                "missing_direction": "left" if tree.missing_left[child] else "right",
                "missing_type": "NaN",
                "value": float(values[child]),
                "weight": float(weights[child]),
                "count": int(tree.count[child]),
            }
            waiting += [(right, depth + 1, name), (left, depth + 1, name)]
        yield row


def _named(tree: int, child: int) -> str:
    return f"{tree}-S{child}" if child >= 0 else f"{tree}-L{~child}"


def _threshold(tree: Tree, node: int, columns: Columns) -> float | str:
    """The largest value that goes left, or all categories that do."""
    known = columns.categories[tree.feature[node]]
    if known is None:
        return float(tree.threshold[node])
    codes = tree.categories[tree.category_start[node] : tree.category_start[node + 1]]
    return _BETWEEN_CATEGORIES.join(str(known[code]) for code in codes.tolist())


def _values_and_weights(tree: Tree) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of each split, from the leaves below it."""
    totals, weights = np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    for node in reversed(range(tree.n_nodes)):
        for child in (tree.left[node], tree.right[node]):
            if child >= 0:
                totals[node] += totals[child]
                weights[node] += weights[child]
            else:
                totals[node] += tree.leaf_value[~child] * tree.leaf_weight[~child]
                weights[node] += tree.leaf_weight[~child]
    return np.divide(totals, weights, out=np.zeros_like(totals), where=weights > 0), weights
