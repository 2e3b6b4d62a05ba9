"""Grows one tree from packed gradients: owns the buffers and sets the threads to work on one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gbdt.dataset import Dataset
from gbdt.grown_tree import GrownTree, label_leaves, leaves_of
from gbdt.kernels.compiler import prepare
from gbdt.kernels.layout import NODE, PACKING, SPLIT_RULES, Buffers, RecordArray
from gbdt.kernels.leaf_values import Labels
from gbdt.kernels.shared_state import N_CHOSEN, N_FREE, N_IN_FLIGHT, N_PLACES, ROWS_WORTH_SHARING
from gbdt.kernels.tree_growth import grow_tree
from gbdt.leaf_fitting import label_others
from gbdt.parameters import TrainParameters
from gbdt.quantisation import Quantised
from gbdt.sampling import chosen_features
from gbdt.split_rules import split_rules
from gbdt.storage_plan import StoragePlan
from gbdt.threads import Workers

# Bins visited at the root below which one thread is faster than waking others. (Measured: a tree over 130,000 bins took
# 1.4 ms alone and 2.4 ms with a second thread, most of it until the second one ran; one over 7 million 34 and 22 ms.)
_CELLS_WORTH_THREADS = 1_500_000
# Leaves of fewer rows are partitioned (in about 100 microseconds) before another thread has come to help.
_ROWS_WORTH_SHARING = 65_536


def search_buffers(plan: StoragePlan, num_leaves: int) -> Buffers:
    """Scratch space of one thread."""
    layout = plan.layout
    n_bins = max(int(layout["bins"].max(initial=1)), len(layout)) + 1
    return Buffers(
        sums=np.empty((4, n_bins), np.int64),
        gains=np.empty(n_bins, np.float64),
        order=np.empty(max(n_bins, num_leaves + 1), np.int64),
        usable=np.empty((2, len(layout)), np.uint8),
        goes_left=np.empty(65_536, np.uint8),
        block=np.empty(plan.n_positions, np.int64),
    )


class TreeGrower:
    """Grows trees over one data set, one at a time, in buffers that are allocated once."""

    def __init__(self, dataset: Dataset, parameters: TrainParameters, workers: Workers) -> None:
        self._dataset = dataset
        self._parameters = parameters
        self._workers = workers
        cells = dataset.n_rows * max(1, len(dataset.plan.features))
        n_threads = workers.n_threads if cells >= _CELLS_WORTH_THREADS else 1
        # Several threads may expand leaves in vain, up to as many again as the tree has.
        max_splits = (parameters.num_leaves - 1) * (2 if n_threads > 1 else 1)
        n_nodes = 2 * max_splits + 1
        self._nodes = np.zeros(n_nodes, NODE)
        self._categories = np.zeros((n_nodes, parameters.max_cat_threshold), np.int32)
        # Untouched slots cost no memory: the operating system hands out pages on first use.
        n_slots = max_splits + 2 + n_threads
        # The last slots take what each thread sums of a leaf that several share.
        self._pool = np.empty((n_slots + n_threads - 1, 3, dataset.plan.n_positions), np.int64)
        self.words = [np.empty((2, dataset.n_rows), np.int64)]
        self._rows = np.empty(dataset.n_rows, np.uint32)
        self._scratch = np.empty(dataset.n_rows, np.uint32)
        self._labels: Labels = np.empty(dataset.n_rows, np.uint8 if parameters.num_leaves <= 255 else np.uint32)
        self._buffers = [search_buffers(dataset.plan, parameters.num_leaves) for _ in range(n_threads)]
        self._free_slots = np.empty(n_slots, np.int64)
        self._chosen = np.empty(parameters.num_leaves, np.int64)
        self._shared = np.empty(N_PLACES, np.int64)
        self._goes_left = np.empty(65_536, np.uint8)
        # By far the largest kernel: on a new machine it is compiled while gradients are computed.
        packing, rules = np.zeros(1, PACKING), np.zeros(1, SPLIT_RULES)
        arguments = self._arguments(packing, self.words[0], rules, self._features(0), 0, True, 1, self._buffers[0])
        prepare(grow_tree, *arguments)

    def grow(self, quantised: Quantised, bag: npt.NDArray[np.uint32] | None, tree: int) -> GrownTree:
        """Grow one tree over all rows, or over those in `bag`."""
        features = self._features(tree)
        rules = split_rules(self._parameters, quantised, tree, len(features))
        n_rows = self._dataset.n_rows if bag is None else len(bag)
        if bag is not None:
            self._rows[:n_rows] = bag
        growth = _Growth(quantised, rules, features, n_rows, bag is None)
        self._run_threads(growth)
        return self._finished(growth)

    def grow_together(
        self, quantised: Sequence[Quantised], bag: npt.NDArray[np.uint32] | None, numbers: Sequence[int]
    ) -> list[GrownTree]:
        """Grow the one tree that there is room for."""
        return [self.grow(quantised[0], bag, numbers[0])]

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""
        label_others(grown, self._dataset, bag)

    def _features(self, tree: int) -> npt.NDArray[np.int64]:
        parameters = self._parameters
        n_features = len(self._dataset.plan.features)
        return chosen_features(n_features, parameters.colsample_bytree, parameters.seed, tree)

    def _run_threads(self, growth: _Growth) -> None:
        """Let every thread expand leaves until the tree is complete."""
        quantised = growth.quantised
        packed = growth.n_rows <= int(quantised.packing["packed_rows"][0])
        n_parts = 1 if packed else len(self._buffers)
        self._nodes["state"] = 0
        self._shared[:] = 0
        self._shared[N_IN_FLIGHT] = 1
        n_free = len(self._free_slots) - 1
        self._shared[N_FREE] = n_free
        self._shared[ROWS_WORTH_SHARING] = _ROWS_WORTH_SHARING

        def work(buffers: Buffers) -> None:
            arguments = self._arguments(
                quantised.packing, quantised.words, growth.rules, growth.features,
                growth.n_rows, growth.every_row, n_parts, buffers,
            )  # fmt: skip
            grow_tree(*arguments)

        self._free_slots[:n_free] = np.arange(n_free, 0, -1)
        self._workers.run([partial(work, buffers) for buffers in self._buffers])

    def _arguments(
        self,
        packing: RecordArray,
        words: npt.NDArray[np.int64],
        rules: RecordArray,
        features: npt.NDArray[np.int64],
        n_rows: int,
        every_row: bool,
        n_parts: int,
        buffers: Buffers,
    ) -> tuple[Any, ...]:
        """What `grow_tree` is called with."""
        dataset, parameters = self._dataset, self._parameters
        return (
            dataset.storage, dataset.plan.layout, packing, rules, features,
            self._rows, self._scratch, n_rows, every_row, words,
            self._pool, buffers, self._nodes, self._categories,
            parameters.num_leaves, parameters.grow_policy == "depthwise",
            n_parts, len(self._buffers), self._goes_left, self._free_slots, self._chosen, self._shared,
        )  # fmt: skip

    def _finished(self, growth: _Growth) -> GrownTree:
        nodes, splits = self._nodes, self._chosen[: self._shared[N_CHOSEN]].copy()
        leaves = leaves_of(nodes, splits)
        ranges = nodes["start"], nodes["count"]
        no_leaf = self._parameters.num_leaves
        grown = GrownTree(nodes, self._categories, splits, leaves, self._rows, *ranges, self._labels, no_leaf)
        label_leaves(grown, growth.n_rows, growth.every_row, self._workers)
        return grown


@dataclass(frozen=True)
class _Growth:
    """What stays the same while one tree grows."""

    quantised: Quantised
    rules: RecordArray
    features: npt.NDArray[np.int64]
    n_rows: int
    every_row: bool
