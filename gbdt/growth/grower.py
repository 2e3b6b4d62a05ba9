"""Grows one tree after the other: owns the buffers, and the threads that follow the caller.

The same threads make the passes over all rows between two trees, where the grower is given what these need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.storage_plan import StoragePlan
from dmlgbm.gbdt.growth.feature_rules import changes_steps, rules_of_features
from dmlgbm.gbdt.growth.grown_tree import GrownTree, LeafSteps
from dmlgbm.gbdt.growth.leaf_fitting import add_to_scores, label_others
from dmlgbm.gbdt.growth.row_arrays import RowArrays
from dmlgbm.gbdt.growth.sampling import chosen_features
from dmlgbm.gbdt.growth.split_rules import node_key, split_rules
from dmlgbm.gbdt.growth.tree_request import TreeRequest
from dmlgbm.gbdt.kernels.compiler import for_types_of, prepare
from dmlgbm.gbdt.kernels.gradients import LOSS
from dmlgbm.gbdt.kernels.layout import (
    NODE,
    PACKING,
    SPLIT_RULES,
    Buffers,
    Directions,
    PackedGradients,
    RowPasses,
    TreeNodes,
    TreeSpace,
)
from dmlgbm.gbdt.kernels.leaf_values import STEP_RULES
from dmlgbm.gbdt.kernels.quantise import ROUNDING
from dmlgbm.gbdt.kernels.shared_state import (
    ADD,
    ADD_AND_DERIVE,
    DERIVE,
    EVERY_ROW,
    FIRST_ROW_NUMBER,
    GROW,
    GROW_ADD_AND_DERIVE,
    LEVEL_WISE,
    MAX_LEAVES,
    N_CHOSEN,
    N_FEATURES,
    N_INSTRUCTIONS,
    N_ROWS,
    N_SHARED_WORDS,
    N_THREADS,
    OUTPUT,
    ROWS_WORTH_SHARING,
    TASK,
    TO_PACK,
    TURN,
)
from dmlgbm.gbdt.kernels.tree_turns import end_turns, follow_turn, follow_turns, lead_turn
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers, say_that_threads_are_missing

FloatArray = npt.NDArray[np.float64]

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


_NO_ROWS = RowArrays(np.empty((1, 0)), np.empty((1, 0), np.float32), np.empty((1, 0), np.float32), None)


def row_passes(arrays: RowArrays, parameters: TrainParameters, n_rows: int, n_nodes: int, n_threads: int) -> RowPasses:
    """Room for the passes over the rows of a table that so many threads make."""
    num_leaves = parameters.num_leaves
    loss = arrays.loss
    return RowPasses(
        loss=np.zeros(1, LOSS) if loss is None else loss.constants,
        target=np.empty(0) if loss is None else loss.target,
        weight=np.empty(0) if loss is None else loss.weight,
        scores=arrays.scores,
        gradients=arrays.gradients,
        hessians=arrays.hessians,
        largest=np.zeros((n_threads, 2)),
        rounding=np.zeros(1, ROUNDING),
        labels=np.empty(n_rows, np.uint8 if num_leaves <= 255 else np.uint32),
        leaves=np.empty(num_leaves, np.int64),
        waiting=np.empty(num_leaves, np.int64),
        is_split=np.empty(n_nodes, np.uint8),
        steps=np.zeros(1, STEP_RULES),
        sums=np.empty((n_threads, num_leaves + 1, 2), np.int64),
        leaf_values=np.zeros(num_leaves + 1),
        leaf_hessians=np.zeros(num_leaves + 1),
    )


def tree_space(dataset: Dataset, parameters: TrainParameters, n_threads: int, arrays: RowArrays) -> TreeSpace:
    """Room for trees that so many threads grow."""
    n_rows, plan = dataset.n_rows, dataset.plan
    # Several threads may expand leaves in vain, up to as many again as the tree has.
    max_splits = (parameters.num_leaves - 1) * (2 if n_threads > 1 else 1)
    n_nodes = 2 * max_splits + 1
    n_slots = max_splits + 2 + n_threads
    instructions = np.zeros(N_INSTRUCTIONS, np.int64)
    instructions[MAX_LEAVES], instructions[LEVEL_WISE] = parameters.num_leaves, parameters.grow_policy == "depthwise"
    instructions[ROWS_WORTH_SHARING] = _ROWS_WORTH_SHARING
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
        tree=TreeNodes(
            np.zeros(n_nodes, NODE),
            np.zeros((n_nodes, parameters.max_cat_threshold), np.int32),
            *rules_of_features(parameters, plan.features, n_nodes),
        ),
        directions=Directions(np.empty(65_536, np.uint8), np.zeros(0, np.uint8)),
        free_slots=np.empty(n_slots, np.int64),
        chosen=np.empty(parameters.num_leaves, np.int64),
        shared=np.empty(N_SHARED_WORDS, np.int64),
        instructions=instructions,
        passes=row_passes(arrays, parameters, n_rows, n_nodes, n_threads),
    )


def histogram_bytes(plan: StoragePlan, num_leaves: int) -> int:
    """What the packed histograms of one tree's leaves take."""
    return plan.n_positions * num_leaves * np.dtype(np.int64).itemsize


class TreeGrower:
    """Grows trees over one data set, one at a time, in buffers that are allocated once.

    Its threads are started with the first turn and wait for the next one until the grower is closed, or, where turns of
    all threads are rare, come from the workers for each. With the `arrays` of the rows it also makes the passes between
    trees: it packs gradients, sums them by leaf and adds to the scores.
    """

    def __init__(
        self,
        dataset: Dataset,
        parameters: TrainParameters,
        workers: Workers,
        arrays: RowArrays | None = None,
        *,
        keeps_threads: bool = True,
    ) -> None:
        self._dataset = dataset
        self._parameters = parameters
        self._workers = workers
        cells = dataset.n_rows * max(1, len(dataset.plan.features))
        n_threads = max(1, min(workers.n_threads, cells // _CELLS_WORTH_A_THREAD))
        self._has_rows = arrays is not None
        self._derives = arrays is not None and arrays.loss is not None and dataset.n_rows > 0
        self._has_derived = False  # for the scores as they are now
        self._keeps_threads = keeps_threads
        self._alone = False  # whether one thread grows the tree, whatever others there are
        self._units_of_rules: tuple[float, float, int] | None = None
        self._space = tree_space(dataset, parameters, n_threads, arrays or _NO_ROWS)
        self._buffers = [search_buffers(dataset, parameters.num_leaves) for _ in range(n_threads)]
        self._followers: list[Thread] = []
        # By far the largest kernels: on a new machine they are compiled while gradients are computed.
        prepare(lead_turn, self._space, self._buffers[0])
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

    @property
    def packs(self) -> bool:
        """Whether it packs the gradients of a tree over all rows itself."""
        return self._has_rows and len(self._dataset.segments) == 1

    def derive(self) -> tuple[float, float] | None:
        """Write the derivatives of all rows; the largest magnitudes of gradients and hessians. None: it cannot."""
        if not self._derives:
            return None
        if not self._has_derived:
            self._take_turn(DERIVE)
        self._has_derived = False
        gradient, hessian = self._space.passes.largest.max(axis=0).tolist()
        return gradient, hessian

    def add_to_scores(self, grown: GrownTree, output: int, values: FloatArray, scores: FloatArray) -> None:
        """Add the tree, whose labels are those of the last one grown here, to the scores of all rows."""
        if not self._has_rows:
            add_to_scores(grown, values, scores, self._workers)
            return
        self._space.passes.leaf_values[: len(values)] = values
        self._space.instructions[OUTPUT] = output
        # The next iteration's derivatives in the same pass: nobody but its trees changes scores in between.
        self._take_turn(ADD_AND_DERIVE if self._derives else ADD)
        self._has_derived = self._derives

    def grow(self, request: TreeRequest, bag: npt.NDArray[np.uint32] | None) -> GrownTree:
        """Grow one tree over all rows, or over those in `bag`."""
        n_rows = self._dataset.n_rows if bag is None else len(bag)
        if bag is not None:
            self._space.rows[:n_rows] = bag
            self._space.passes.labels[:] = self._parameters.num_leaves
        self._alone = request.alone
        self._write_instructions(request, n_rows, bag is None)
        # Leaf values that are more than steps are added once they are known.
        adds = self._derives and bag is None and not changes_steps(self._parameters)
        self._take_turn(GROW_ADD_AND_DERIVE if adds else GROW)
        self._has_derived = adds
        return self._finished(adds)

    def _take_turn(self, task: int) -> None:
        """Have all threads do what the instructions say."""
        space, buffers = self._space, self._buffers
        if self._lead is None:  # always the same arrays: their types are looked at once
            self._lead = for_types_of(lead_turn, space, buffers[0])
        if self._keeps_threads and not self._alone:
            self._start_followers()
        n_called = 0 if self._keeps_threads or self._alone else len(buffers) - 1
        n_kept = 0 if self._alone else len(self._followers)
        space.instructions[TASK], space.instructions[N_THREADS] = task, 1 + n_called + n_kept
        if n_called == 0:
            self._lead(space, buffers[0])
            return
        turn = int(space.instructions[TURN])
        # What could go wrong does so here: whoever leads waits for the others.
        follow = for_types_of(follow_turn, space, buffers[0], turn)
        followers = [partial(follow, space, own, turn) for own in buffers[1:]]
        self._workers.run([partial(self._lead, space, buffers[0]), *followers])

    def grow_together(self, requests: Sequence[TreeRequest], bag: npt.NDArray[np.uint32] | None) -> list[GrownTree]:
        """Grow the one tree that there is room for."""
        return [self.grow(requests[0], bag)]

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""
        label_others(grown, self._dataset, bag)

    def _write_instructions(self, request: TreeRequest, n_rows: int, every_row: bool) -> None:
        """Write what is different in every tree."""
        parameters, space, quantised, tree = self._parameters, self._space, request.quantised, request.number
        features = chosen_features(len(space.features), parameters.colsample_bytree, parameters.seed, tree)
        space.features[: len(features)] = features
        space.gradients.packing[:] = quantised.packing
        units = quantised.gradient_scale, quantised.hessian_scale, quantised.hessian_margin
        if units == self._units_of_rules:
            space.rules["node_key"] = node_key(parameters, tree)
        else:
            space.rules[:] = split_rules(parameters, quantised, tree, len(features))
            self._units_of_rules = units
        instructions, passes = space.instructions, space.passes
        instructions[N_ROWS], instructions[EVERY_ROW], instructions[N_FEATURES] = n_rows, every_row, len(features)
        instructions[OUTPUT], instructions[TO_PACK] = request.output, not quantised.written
        instructions[FIRST_ROW_NUMBER] = self._dataset.segments[0].first_row_number if self.packs else 0
        passes.rounding[:] = quantised.rounding
        passes.steps[:] = request.steps

    def _start_followers(self) -> None:
        """Before the first turn, one thread for each set of buffers but the first."""
        for buffers in self._buffers[len(self._followers) + 1 :]:
            # What could go wrong does so here: whoever leads waits for the followers.
            follow = for_types_of(follow_turns, self._space, buffers)
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

    def _finished(self, added: bool) -> GrownTree:
        space, passes = self._space, self._space.passes
        n_splits = int(space.shared[N_CHOSEN])
        n_leaves = n_splits + 1
        steps = LeafSteps(passes.leaf_values[:n_leaves].copy(), passes.leaf_hessians[:n_leaves].copy())
        return GrownTree(
            tree=space.tree,
            splits=space.chosen[:n_splits].copy(),
            leaves=passes.leaves[:n_leaves].copy(),
            rows=space.rows,
            starts=space.tree.nodes["start"],
            counts=space.tree.nodes["count"],
            labels=passes.labels,
            no_leaf=self._parameters.num_leaves,
            sums=passes.sums.sum(axis=0)[:n_leaves] if self._has_rows and not added else None,
            added=steps if added else None,
        )
