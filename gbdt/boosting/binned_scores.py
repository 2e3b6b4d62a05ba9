"""Scores of binned rows after trees that were grown over the same bins.

Thresholds of such trees are bounds of bins, so a row goes the same way by its bins as by its values, and scores that
are added up tree by tree have the bits that training gave them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.feature_bins import NumericBins
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.kernels.layout import NODE, NodeRows, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.leaf_values import add_to_rows, label_rows
from dmlgbm.gbdt.kernels.partition import route_rows
from dmlgbm.gbdt.model.tree import Tree


def scores_over_bins(dataset: Dataset, start: Booster, rows: Rows) -> npt.NDArray[np.float64]:
    """Scores before the next iteration, of rows that are these bins; the model's trees were grown over the same.

    Trees that are averaged leave the scores that derivatives come from as they are.
    """
    scores = np.repeat(start.base_scores[:, None], dataset.n_rows, axis=1)
    if rows.init_score is not None:
        scores = rows.init_score + scores
    if not start.averages:
        add_trees(dataset, start.trees, scores)
    return scores


def splits_at_bounds(dataset: Dataset, trees: Sequence[Tree]) -> bool:
    """Whether every split lies between bins, so that rows go the same way by their bins as by their values."""
    used = set(dataset.plan.features.tolist())
    for tree in trees:
        for node, feature in enumerate(tree.feature.tolist()):
            bins = dataset.bins[feature]
            if feature not in used:
                return False
            if isinstance(bins, NumericBins):
                bounds = np.append(bins.cuts, np.inf)
                position = int(np.searchsorted(bounds, tree.threshold[node]))
                if position == len(bounds) or bounds[position] != tree.threshold[node]:
                    return False
            elif np.any(tree.categories[tree.category_start[node] : tree.category_start[node + 1]] >= bins.n_bins - 1):
                return False
    return True


def add_trees(dataset: Dataset, trees: Sequence[Tree], scores: npt.NDArray[np.float64]) -> None:
    """Add trees, in the order they were grown, to scores [output, row]; tree t adds to output t % n_outputs."""
    for number, (tree, labels) in enumerate(zip(trees, leaves_over_bins(dataset, trees), strict=True)):
        add_to_rows(labels, tree.leaf_value, 0, dataset.n_rows, scores[number % len(scores)])


def leaves_over_bins(dataset: Dataset, trees: Sequence[Tree]) -> Iterator[npt.NDArray[np.uint32]]:
    """The leaf of every row in each tree, valid until the next one is asked for."""
    rows, scratch = np.empty(dataset.n_rows, np.uint32), np.empty(dataset.n_rows, np.uint32)
    labels, directions = np.empty(dataset.n_rows, np.uint32), dataset.empty_directions()
    for tree in trees:
        over_bins, splits, leaves = _over_bins(dataset, tree)
        n_nodes = len(over_bins.nodes)
        of_nodes = NodeRows(rows, scratch, np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64))
        rows[:] = np.arange(dataset.n_rows, dtype=np.uint32)
        route_rows(dataset.binned, over_bins, splits, directions, of_nodes)
        label_rows(rows, of_nodes.starts[leaves], of_nodes.counts[leaves], 0, labels)
        yield labels


def linked_nodes(tree: Tree) -> tuple[RecordArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Nodes that know their children, which of them are the tree's splits in order, and which its leaves in order."""
    nodes = np.zeros(2 * tree.n_nodes + 1, NODE)
    # A split is node 0 or a child; the children of split k are nodes 2k + 1 and 2k + 2.
    splits, leaves = np.zeros(tree.n_nodes, np.int64), np.zeros(tree.n_leaves, np.int64)
    for k, children in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        for node, child in zip((2 * k + 1, 2 * k + 2), children, strict=True):
            if child >= 0:
                splits[child] = node
            else:
                leaves[~child] = node
    nodes["left"][splits] = 2 * np.arange(tree.n_nodes) + 1
    return nodes, splits, leaves


def _over_bins(dataset: Dataset, tree: Tree) -> tuple[TreeNodes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The tree's nodes over bins, its splits in order, its leaves in order."""
    nodes, splits, leaves = linked_nodes(tree)
    positions = np.searchsorted(dataset.plan.features, tree.feature)
    nodes["feature"][splits] = positions
    nodes["missing_left"][splits] = tree.missing_left
    lengths = np.diff(tree.category_start)
    categories = np.zeros((len(nodes), int(lengths.max(initial=0)) + 1), np.int32)
    for k, node in enumerate(splits.tolist()):
        if not tree.categorical[k]:
            first = dataset.first_bounds[positions[k]]
            n_bounds = int(dataset.plan.layout["missing_bin"][positions[k]])
            nodes["bin"][node] = np.searchsorted(dataset.bounds[first : first + n_bounds], tree.threshold[k])
            continue
        codes = tree.categories[tree.category_start[k] : tree.category_start[k + 1]]
        if tree.missing_left[k]:
            codes = np.append(codes, dataset.plan.layout["missing_bin"][positions[k]])
        nodes["bin"][node], nodes["n_categories"][node] = -1, len(codes)
        categories[node, : len(codes)] = codes
    return TreeNodes(nodes, categories), splits, leaves
