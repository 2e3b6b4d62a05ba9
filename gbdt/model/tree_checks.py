"""What must hold of trees that come from a file before anything walks down them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import Category
from dmlgbm.gbdt.model.model_file import ModelFileError
from dmlgbm.gbdt.model.tree import Tree

_DTYPES = {
    "feature": np.int32,
    "threshold": np.float64,
    "missing_left": np.uint8,
    "categorical": np.uint8,
    "left": np.int32,
    "right": np.int32,
    "gain": np.float64,
    "count": np.int64,
    "category_start": np.int32,
    "categories": np.int32,
    "leaf_value": np.float64,
    "leaf_count": np.int64,
    "leaf_weight": np.float64,
    "tree_nodes": np.int32,
    "base_scores": np.float64,
}


def check_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise unless every array of a tree model is there, flat and of its type."""
    for name, dtype in _DTYPES.items():
        if name not in arrays:
            raise ModelFileError(f"the model file has no array {name!r}")
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise ModelFileError(f"the array {name!r} of the model file is not a list of {np.dtype(dtype).name}")


def check_header(header: Mapping[str, Any]) -> None:
    """Raise unless names, categories and metadata are what they should be."""
    n_features, names, categories = header["n_features"], header["feature_names"], header["categories"]
    if not isinstance(n_features, int) or n_features < 1 or len(categories) != n_features:
        raise ModelFileError("the model file's features do not fit together")
    if names is not None and (len(names) != n_features or not all(isinstance(name, str) for name in names)):
        raise ModelFileError("the model file's feature names do not fit its features")
    values = [value for known in categories if known is not None for value in known]
    if not all(isinstance(value, str | int | float) for value in values):
        raise ModelFileError("the model file has categories that are neither text nor numbers")
    if not isinstance(header["metadata"], Mapping):
        raise ModelFileError("the model file's metadata are not a mapping")
    if header.get("averages", True) is not True:
        raise ModelFileError("the model file does not say whether trees are averaged")
    if header.get("changed_rate", True) is not True:
        raise ModelFileError("the model file does not say whether the learning rate has changed")


def check_trees(
    trees: Sequence[Tree],
    n_features: int,
    categories: Sequence[tuple[Category, ...] | None],
    base_scores: npt.NDArray[np.float64],
) -> None:
    """Raise unless every walk from a root ends in a leaf and every feature and category exists."""
    if len(base_scores) < 1 or len(trees) % len(base_scores):
        raise ModelFileError("the model file's number of trees does not fit its number of outputs")
    sizes = np.array([-1 if known is None else len(known) for known in categories])
    for number, tree in enumerate(trees):
        if tree.n_nodes and (tree.feature.min() < 0 or tree.feature.max() >= n_features):
            raise ModelFileError(f"tree {number} of the model file splits on a feature that does not exist")
        _check_children(tree, number)
        _check_flags(tree, number, sizes)


def _check_flags(tree: Tree, number: int, sizes: npt.NDArray[np.int64]) -> None:
    """Categorical nodes split features that have categories, and only by categories those have."""
    own_sizes = sizes[tree.feature]
    if np.any(tree.missing_left > 1) or not np.array_equal(tree.categorical, own_sizes >= 0):
        raise ModelFileError(f"tree {number} of the model file has flags that do not fit its features")
    most = np.repeat(own_sizes, np.diff(tree.category_start))
    if np.any(tree.categories < 0) or np.any(tree.categories >= most):
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
