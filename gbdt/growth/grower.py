"""Grows one tree after the other from packed gradients: owns the buffers, and the threads that follow the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.storage_plan import StoragePlan
from dmlgbm.gbdt.growth.grown_tree import GrownTree, label_leaves, leaves_of
from dmlgbm.gbdt.growth.leaf_fitting import label_others
from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.growth.sampling import chosen_features
from dmlgbm.gbdt.growth.split_rules import split_rules
from dmlgbm.gbdt.kernels.compiler import for_types_of, prepare
from dmlgbm.gbdt.kernels.layout import (
    NODE,
    PACKING,
    SPLIT_RULES,
    Buffers,
    Directions,
    PackedGradients,
    TreeNodes,
    TreeSpace,
)
from dmlgbm.gbdt.kernels.leaf_values import Labels
from dmlgbm.gbdt.kernels.shared_state import (
    EVERY_ROW,
    LEVEL_WISE,
    MAX_LEAVES,
    N_CHOSEN,
    N_FEATURES,
    N_FREE,
    N_IN_FLIGHT,
    N_INSTRUCTIONS,
    N_PARTS,
    N_ROWS,
    N_SHARED_WORDS,
    N_THREADS,
    ROWS_WORTH_SHARING,
)
from dmlgbm.gbdt.kernels.tree_turns import end_turns, follow_trees, lead_tree
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers, say_that_threads_are_missing

# Bins visited at the root for each thread. (Measured with one thread and two: fits of 20,000 bins took the same time,
# of 130,000 bins 68 and 55 ms, of 450,000 bins 176 and 134 ms.)
_CELLS_WORTH_A_THREAD = 65_536
# Leaves of fewer rows are partitioned (in about 100 microseconds) before another thread has come to help.
_ROWS_WORTH_SHARING = 65_536


def search_buffers(dataset: Dataset, num_leaves: int) -> Buffers:
    """Scratch space of one thread."""
    plan, layout = dataset.plan, dataset.plan.layout
    n_bins = max(int(layout["bins"].max(initial=1)), len(layout)) + 1
    return Buffers(
        sums=np.empty((4, n_bins), np.int64),
        gains=np.empty(n_bins, np.float64),
        order=np.empty(max(n_bins, num_leaves + 1), np.int64),
        usable=np.empty((2, len(layout)), np.uint8),
        directions=dataset.empty_directions(),
        block=np.empty(plan.joints.end, np.int64),
    )


def tree_space(dataset: Dataset, parameters: TrainParameters, n_threads: int) -> TreeSpace:
    """Room for trees that so many threads grow."""
    n_rows, plan = dataset.n_rows, dataset.plan
    # Several threads may expand leaves in vain, up to as many again as the tree has.
    max_splits = (parameters.num_leaves - 1) * (2 if n_threads > 1 else 1)
    n_nodes = 2 * max_splits + 1
    n_slots = max_splits + 2 + n_threads
    instructions = np.zeros(N_INSTRUCTIONS, np.int64)
    instructions[MAX_LEAVES], instructions[LEVEL_WISE] = parameters.num_leaves, parameters.grow_policy == "depthwise"
    instructions[N_THREADS] = n_threads
    return TreeSpace(
        table=dataset.binned,
        gradients=PackedGradients(np.zeros(1, PACKING), np.empty((2, n_rows), np.int64)),
        rules=np.zeros(1, SPLIT_RULES),
        features=np.empty(len(plan.features), np.int64),
        rows=np.empty(n_rows, np.uint32),
        scratch=np.empty(n_rows, np.uint32),
        # Untouched slots cost no memory: the operating system hands out pages on first use. The last ones take what
        # each thread sums of a leaf that several share.
        pool=np.empty((n_slots + n_threads - 1, 3, plan.n_positions), np.int64),
        hopeless=np.empty((n_slots, len(plan.features)), np.uint8),
        tree=TreeNodes(np.zeros(n_nodes, NODE), np.zeros((n_nodes, parameters.max_cat_threshold), np.int32)),
        directions=Directions(np.empty(65_536, np.uint8), np.zeros(0, np.uint8)),
        free_slots=np.empty(n_slots, np.int64),
        chosen=np.empty(parameters.num_leaves, np.int64),
        shared=np.empty(N_SHARED_WORDS, np.int64),
        instructions=instructions,
    )


def histogram_bytes(plan: StoragePlan, num_leaves: int) -> int:
    """What the packed histograms of one tree's leaves take."""
    return plan.n_positions * num_leaves * np.dtype(np.int64).itemsize


class TreeGrower:
    """Grows trees over one data set, one at a time, in buffers that are allocated once.

    Its threads are started with the first tree and wait for the next one until the grower is closed.
    """

    def __init__(self, dataset: Dataset, parameters: TrainParameters, workers: Workers) -> None:
        self._dataset = dataset
        self._parameters = parameters
        self._workers = workers
        cells = dataset.n_rows * max(1, len(dataset.plan.features))
        n_threads = max(1, min(workers.n_threads, cells // _CELLS_WORTH_A_THREAD))
        self._space = tree_space(dataset, parameters, n_threads)
        self._buffers = [search_buffers(dataset, parameters.num_leaves) for _ in range(n_threads)]
        self._labels: Labels = np.empty(dataset.n_rows, np.uint8 if parameters.num_leaves <= 255 else np.uint32)
        self._followers: list[Thread] = []
        n_free = len(self._space.free_slots) - 1
        self._all_slots_free = np.arange(n_free, 0, -1)
        # By far the largest kernels: on a new machine they are compiled while gradients are computed.
        prepare(lead_tree, self._space, self._buffers[0])
        self._lead: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._followers:
            end_turns(self._space.instructions)
        for follower in self._followers:
            follower.join()

    @property
    def words(self) -> list[npt.NDArray[np.int64]]:
        """Where the packed gradients of the next tree belong."""
        return [self._space.gradients.words]

    def grow(self, quantised: Quantised, bag: npt.NDArray[np.uint32] | None, tree: int) -> GrownTree:
        """Grow one tree over all rows, or over those in `bag`, from what is in `words`."""
        n_rows = self._dataset.n_rows if bag is None else len(bag)
        if bag is not None:
            self._space.rows[:n_rows] = bag
        self._write_instructions(quantised, tree, n_rows, bag is None)
        self._clear_state()
        self._start_followers()
        if self._lead is None:  # always the same arrays: their types are looked at once
            self._lead = for_types_of(lead_tree, self._space, self._buffers[0])
        self._lead(self._space, self._buffers[0])
        return self._finished(n_rows, bag is None)

    def grow_together(
        self, quantised: Sequence[Quantised], bag: npt.NDArray[np.uint32] | None, numbers: Sequence[int]
    ) -> list[GrownTree]:
        """Grow the one tree that there is room for."""
        return [self.grow(quantised[0], bag, numbers[0])]

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""
        label_others(grown, self._dataset, bag)

    def _write_instructions(self, quantised: Quantised, tree: int, n_rows: int, every_row: bool) -> None:
        """Write what is different in every tree."""
        parameters, space = self._parameters, self._space
        features = chosen_features(len(space.features), parameters.colsample_bytree, parameters.seed, tree)
        space.features[: len(features)] = features
        space.gradients.packing[:] = quantised.packing
        space.rules[:] = split_rules(parameters, quantised, tree, len(features))
        packed = n_rows <= int(quantised.packing["packed_rows"][0])
        space.instructions[N_ROWS], space.instructions[EVERY_ROW] = n_rows, every_row
        space.instructions[N_FEATURES], space.instructions[N_PARTS] = len(features), 1 if packed else len(self._buffers)

    def _clear_state(self) -> None:
        space = self._space
        space.tree.nodes["state"] = 0
        n_free = len(self._all_slots_free)
        space.free_slots[:n_free] = self._all_slots_free
        space.shared[:] = 0
        space.shared[N_IN_FLIGHT], space.shared[N_FREE] = 1, n_free
        space.shared[ROWS_WORTH_SHARING] = _ROWS_WORTH_SHARING

    def _start_followers(self) -> None:
        """Before the first tree, one thread for each set of buffers but the first."""
        for buffers in self._buffers[len(self._followers) + 1 :]:
            # What could go wrong does so here: whoever leads waits for the followers.
            follow = for_types_of(follow_trees, self._space, buffers)
            follower = Thread(target=follow, args=(self._space, buffers), name="dmlgbm-tree")
            try:
                follower.start()
            except RuntimeError:
                self._do_without_more_threads()
                return
            self._followers.append(follower)

    def _do_without_more_threads(self) -> None:
        """The system starts none: those that are there grow the trees, in buffers made for more."""
        n_threads = len(self._followers) + 1
        say_that_threads_are_missing(len(self._buffers), n_threads)
        del self._buffers[n_threads:]
        instructions = self._space.instructions
        instructions[N_THREADS], instructions[N_PARTS] = n_threads, min(instructions[N_PARTS], n_threads)

    def _finished(self, n_rows: int, every_row: bool) -> GrownTree:
        space = self._space
        splits = space.chosen[: space.shared[N_CHOSEN]].copy()
        grown = GrownTree(
            tree=space.tree,
            splits=splits,
            leaves=leaves_of(space.tree.nodes, splits),
            rows=space.rows,
            starts=space.tree.nodes["start"],
            counts=space.tree.nodes["count"],
            labels=self._labels,
            no_leaf=self._parameters.num_leaves,
        )
        label_leaves(grown, n_rows, every_row, self._workers)
        return grown
