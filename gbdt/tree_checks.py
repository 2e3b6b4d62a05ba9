"""What must hold of trees that come from a file before anything walks down them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gbdt.model_file import ModelFileError
from gbdt.table import Category
from gbdt.tree import Tree


def check_trees(
    trees: Sequence[Tree],
    n_features: int,
    categories: Sequence[tuple[Category, ...] | None],
    base_scores: npt.NDArray[np.float64],
) -> None:
    """Raise unless every walk from a root ends in a leaf and every feature and category exists."""
    if n_features < 1 or len(categories) != n_features:
        raise ModelFileError("the model file's features do not fit together")
    if base_scores.ndim != 1 or len(base_scores) < 1 or len(trees) % len(base_scores):
        raise ModelFileError("the model file's number of trees does not fit its number of outputs")
    for number, tree in enumerate(trees):
        if tree.n_nodes and (tree.feature.min() < 0 or tree.feature.max() >= n_features):
            raise ModelFileError(f"tree {number} of the model file splits on a feature that does not exist")
        _check_children(tree, number)
        if len(tree.categories) and (tree.categories.min() < 0 or tree.categories.max() > 65_535):
            raise ModelFileError(f"tree {number} of the model file names a category that does not exist")


def _check_children(tree: Tree, number: int) -> None:
    """Children come after their parent and each node and leaf has one parent: no walk can loop."""
    children = np.concatenate((tree.left, tree.right)).astype(np.int64)
    parents = np.tile(np.arange(tree.n_nodes), 2)
    internal = children >= 0
    expected = np.concatenate((np.arange(1, tree.n_nodes), ~np.arange(tree.n_leaves)))
    whole = tree.n_nodes == 0 or np.array_equal(np.sort(children), np.sort(expected))
    if not whole or np.any(children[internal] <= parents[internal]):
        raise ModelFileError(f"tree {number} of the model file is not a tree")
