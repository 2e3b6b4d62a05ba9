"""Naive oracle for prediction: one row and one tree at a time, straight from the definition of a tree."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlgbm.gbdt.model.tree import Tree


def leaf_of(tree: Tree, row: Sequence[float], child: int = 0) -> int:
    """The leaf a row of numbers and category codes ends in; NaN is missing, a number or a category alike."""
    if tree.n_nodes == 0:
        return 0
    if child < 0:
        return ~child
    value = row[tree.feature[child]]
    if math.isnan(value):
        goes_left = bool(tree.missing_left[child])
    elif tree.categorical[child]:
        goes_left = value in tree.categories[tree.category_start[child] : tree.category_start[child + 1]]
    else:
        goes_left = value <= tree.threshold[child]
    return leaf_of(tree, row, int(tree.left[child] if goes_left else tree.right[child]))


def raw_scores(
    trees: Sequence[Tree], row: Sequence[float], base_scores: Sequence[float], first_tree: int, last_tree: int
) -> list[float]:
    scores = list(base_scores)
    for number in range(first_tree, last_tree):
        tree = trees[number]
        scores[number % len(scores)] += float(tree.leaf_value[leaf_of(tree, row)])
    return scores
