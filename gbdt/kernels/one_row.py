"""Prediction of a single row: the leaf of every tree, their sum and the link function in one call.

One idea is needed to read this file. A walk from the root to a leaf is a chain of loads that wait for one another,
but the walks of different trees do not: all trees go down one level at a time, and those that reached a leaf leave the
list. Values are as in `dmlgbm.gbdt.kernels.predict`, one for each slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import kernel
from dmlgbm.gbdt.kernels.gradients import (
    write_exponential,
    write_shares_of_sigmoids,
    write_sigmoid,
    write_softmax,
)
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.predict import is_in_set

# What is made of the sums.
LINK_NONE, LINK_EXPONENTIAL, LINK_TWO_CLASSES, LINK_CLASSES, LINK_SIGMOID, LINK_ONE_VS_ALL = range(6)


class WalkedTrees(NamedTuple):
    """What of a forest walking needs; see `ForestArrays`."""

    roots: npt.NDArray[np.int32]
    nodes: RecordArray
    words: npt.NDArray[np.uint64]
    leaf_value: npt.NDArray[np.float64]
    base_scores: npt.NDArray[np.float64]
    divisor: npt.NDArray[np.float64]  # how many iterations are averaged; nothing where they are added up


@kernel
def predict_row(
    forest: WalkedTrees, values: npt.NDArray[np.float64], link: int, prediction: npt.NDArray[np.float64]
) -> None:
    """Write what the row is predicted: a number, or the probability of each class."""
    nodes, words, leaf_value = forest.nodes, forest.words, forest.leaf_value
    n_trees, n_outputs = forest.roots.size, np.uint64(forest.base_scores.size)
    positions = np.empty(n_trees, np.int32)
    active = np.empty(n_trees, np.uint32)
    n_active = np.uint64(0)
    for tree in range(np.uint64(n_trees)):
        positions[tree] = forest.roots[tree]
        active[n_active] = tree
        n_active += np.uint64(forest.roots[tree] >= 0)
    while n_active > np.uint64(0):
        n_still_active = np.uint64(0)
        for k in range(n_active):
            tree = np.uint64(active[k])
            node = np.uint64(np.uint32(positions[tree]))
            value = values[np.uint64(nodes[node].slot)]
            if nodes[node].categorical:
                goes_right = np.int32(not is_in_set(nodes, words, node, np.uint64(np.int64(value))))
            else:
                is_missing_right = np.int32(value != value) & np.int32(nodes[node].missing_right)
                goes_right = np.int32(value > nodes[node].threshold) | is_missing_right
            # A choice between two loads would become a branch, and mispredicted half of the time.
            left = nodes[node].left
            child = left ^ ((left ^ nodes[node].right) & -goes_right)
            positions[tree] = child
            active[n_still_active] = tree
            n_still_active += np.uint64(child >= 0)
        n_active = n_still_active
    scores = np.empty((forest.base_scores.size, 1))
    averages = forest.divisor.size > 0
    for output in range(n_outputs):
        scores[output, 0] = 0.0 if averages else forest.base_scores[output]
    output = np.uint64(0)
    for tree in range(np.uint64(n_trees)):
        scores[output, 0] += leaf_value[np.uint64(np.uint32(~positions[tree]))]
        output += np.uint64(1)
        output = output if output < n_outputs else np.uint64(0)
    if averages:
        for output in range(n_outputs):
            scores[output, 0] = forest.base_scores[output] + scores[output, 0] / forest.divisor[0]
    if link == LINK_CLASSES:
        write_softmax(scores, prediction.reshape((prediction.size, 1)))
    elif link == LINK_TWO_CLASSES:
        write_sigmoid(scores[0], prediction[1:])
        prediction[0] = 1.0 - prediction[1]
    elif link == LINK_EXPONENTIAL:
        write_exponential(scores[0], prediction)
    elif link == LINK_SIGMOID:
        write_sigmoid(scores[0], prediction)
    elif link == LINK_ONE_VS_ALL:
        write_shares_of_sigmoids(scores, prediction.reshape((prediction.size, 1)))
    else:
        for output in range(n_outputs):
            prediction[output] = scores[output, 0]
